"""The order of the tests: files that start Spark or Airflow come first, so that no process ends long after the others."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONG_FIRST = (
    "dags/test_whole_run.py",
    "plugins/test_embedded.py",
    "jobs",
    "dags",
    "test_readme.py",
    "plugins",
    "deploy",
)
"""Files and folders below tests/; what is not named is fast and comes last."""


def _place_in_order(file: Path) -> int:
    relative = file.relative_to(TESTS).as_posix()
    places = [place for place, name in enumerate(LONG_FIRST) if relative == name or relative.startswith(f"{name}/")]
    return min(places, default=len(LONG_FIRST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place_in_order(item.path))

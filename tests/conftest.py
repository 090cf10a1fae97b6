"""Which tests run, and in which order: the longest files first, so that no process ends long after the others, and
each to a process that has started what it needs (tests/order/next_file.py)."""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
DURATIONS = TESTS / "durations.json"
"""File below tests/ -> its duration in seconds. `pytest --record-durations` writes this file."""
UNKNOWN_S = 30.0
"""Estimate for a file that may start Spark or Airflow and was never timed. Other files without a time count as 0 s."""
HEAVY = ("jobs", "dags", "plugins", "browser")
DEEP = int(os.environ.get("CLEANTAIL_HISTORIES", "1")) > 1
"""Whether this is `make test-deep`, which sets the variable."""


def pytest_sessionstart() -> None:
    from tests.quick_sqlite import wait_for_no_disk

    wait_for_no_disk()
    gc.disable()  # imports and collection make almost no garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write {DURATIONS.name} again")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler for `--dist loadfile`. pytest calls this hook only if pytest-xdist is active."""
    from tests.order.whole_files import WholeFiles

    if config.getoption("dist") != "loadfile":
        return None
    known = _known_seconds()
    return WholeFiles(config, log, lambda file: _seconds(file.removeprefix("tests/"), known))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files, longest first. Deselect tests marked `deep` unless this is `make test-deep`: they repeat a rule for
    more cases."""
    known = _known_seconds()
    if not DEEP:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("deep")])
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
    items.sort(key=lambda item: (-_seconds(_name(item.path), known), _name(item.path)))


def pytest_collection_finish() -> None:
    """Exempt the objects that exist now from garbage collection: they stay to the end.

    Raise the thresholds, because later imports, such as Airflow's, also allocate many objects that stay."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def _known_seconds() -> dict[str, float]:
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


@cache
def _name(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


def _seconds(name: str, known: dict[str, float]) -> float:
    return known.get(name, UNKNOWN_S if name.startswith(HEAVY) else 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the durations of all files that ran. Files that did not run lose their time, so record whole runs only."""
    if not config.getoption("--record-durations"):
        return
    seconds: Counter[str] = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports if hasattr(r, "duration")):
        seconds[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration
    timed = {name: round(spent) for name, spent in seconds.most_common()}  # also 0, which marks a fast file
    DURATIONS.write_text(json.dumps(timed, indent=1) + "\n")

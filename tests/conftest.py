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
"""File below tests/ -> seconds that it took; `pytest --record-durations` writes it anew."""
UNKNOWN_S = 30.0
"""Of a file that starts Spark or Airflow and was never timed; any other is fast."""
HEAVY = ("jobs", "dags", "plugins", "browser")
DEEP = int(os.environ.get("CLEANTAIL_HISTORIES", "1")) > 1
"""As `make test-deep` sets it."""


def pytest_sessionstart() -> None:
    from tests.quick_sqlite import wait_for_no_disk

    wait_for_no_disk()
    gc.disable()  # hardly anything of what is imported and collected is garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write {DURATIONS.name} anew")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `--dist loadfile` only; without pytest-xdist nobody asks."""
    from tests.order.whole_files import WholeFiles

    if config.getoption("dist") != "loadfile":
        return None
    known = _known_seconds()
    return WholeFiles(config, log, lambda file: _seconds(file.removeprefix("tests/"), known))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Longest files first. What is marked `deep` repeats a rule for more cases: it is left to `make test-deep`."""
    known = _known_seconds()
    if not DEEP:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("deep")])
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
    items.sort(key=lambda item: (-_seconds(_name(item.path), known), _name(item.path)))


def pytest_collection_finish() -> None:
    """What is there when the first test begins stays to the end: it is no garbage, and is not looked through for any.
    Nor is what tests import later, Airflow for one, each time that 70,000 objects are new."""
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
    """Whole runs only: what was not run keeps no time."""
    if not config.getoption("--record-durations"):
        return
    seconds: Counter[str] = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports if hasattr(r, "duration")):
        seconds[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration
    timed = {name: round(spent) for name, spent in seconds.most_common()}  # 0 as well: it is known to be fast
    DURATIONS.write_text(json.dumps(timed, indent=1) + "\n")

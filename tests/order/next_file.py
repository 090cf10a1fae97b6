"""Which file a process of a test run takes next: one that needs what this process has started before.

A Spark session costs a minute of the processor before it is warm, a broker nearly as much, and Airflow less than half.
So one process takes the files of a system, as long as there are some, rather than every process a few of each; a second
one begins with the same system where enough is left for both. Files that need no system fill the time of any process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
NONE, AIRFLOW, SPARK, KAFKA = "none", "airflow", "spark", "kafka"
NEEDS = {NONE: {NONE}, AIRFLOW: {AIRFLOW}, SPARK: {SPARK}, KAFKA: {KAFKA, SPARK}}
"""System of a file -> the systems that a process has started once it has run the file; NONE is there as soon as it has
run a file that needs nothing."""
WORTH_S = 120.0
"""So many seconds of a system's files must be left for each process at it, for one more to start that system. It is
meant for few cores, which the other processes keep busy; where there are many, a broker could be started sooner."""
BROKER = re.compile(r"^ *def \w+\([^)]*\bkafka\b", re.MULTILINE)
"""A test or a fixture that asks for the broker of tests/jobs/conftest.py."""


@cache
def system_of(file: str) -> str:
    """Returns what the tests of a file share with those of other files: `file` is its path from the repository's root.
    What a test starts for itself alone, as a broker that it kills, does not count."""
    folder, _, rest = file.removeprefix("tests/").partition("/")
    if folder == "jobs":
        path = TESTS / folder / rest
        return KAFKA if path.exists() and BROKER.search(path.read_text()) else SPARK
    return AIRFLOW if folder in ("dags", "plugins") else NONE


def next_file(files: Mapping[str, float], started: Collection[str], others: Collection[Collection[str]]) -> str | None:
    """Returns the file that a process takes next, None where it had better end. `files`: those that no process has
    taken, the first to be taken first -> seconds; `started`: the systems that the process has started; `others`: those
    of each other process that takes files.

    A system whose files are left is given up by no process that has started it, so that None leaves no file behind.
    """
    left = Counter[str]()
    for file, seconds in files.items():
        left[system_of(file)] += seconds

    def processes_at(system: str) -> int:
        return sum(system in other for other in others)

    def share(system: str) -> float:
        return left[system] / (processes_at(system) + 1)

    own = [system for system in left if system in started]
    new = [s for s in left if s != NONE and (not processes_at(s) or share(s) > WORTH_S)]
    new.sort(key=lambda system: (processes_at(system) > 0, -share(system)))
    if own:
        chosen = min(own, key=processes_at)  # what fewest of the others would take
    elif new and not (started and NONE in left):  # rather what needs nothing than a second system
        chosen = new[0]
    else:
        chosen = NONE
    return next((file for file in files if system_of(file) == chosen), None)

"""Which tests are asked about a mutant: those that run its lines, the module's own test file first, the fastest first.

Coverage.py notes, in one run of all tests of the kernel, which test runs which line. A line that runs at import (a constant, a
default) is asked of the module's own test file as a whole, and of all other tests that run anything of the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import coverage
import pytest

from tests.mutation.changes import Mutant

TESTS = "tests/cleantail"
AT_ONCE = 25
"""Tests of one process: the first failure ends it, so few are asked before many."""


@dataclass(frozen=True)
class Seen:
    """What a run of tests showed: rule file -> line -> the tests that ran it, and the seconds of each test."""

    lines: Mapping[str, Mapping[int, frozenset[str]]]
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, parts: list[Seen]) -> Seen:
        """Each test is in one part, each line may be in all."""
        lines: dict[str, dict[int, frozenset[str]]] = {}
        for part in parts:
            for file, of_file in part.lines.items():
                known = lines.setdefault(file, {})
                for line, tests in of_file.items():
                    known[line] = known.get(line, frozenset()) | tests
        return cls(lines, {test: seconds for part in parts for test, seconds in part.seconds.items()})

    def asked(self, mutant: Mutant, file: str, own_only: bool) -> Iterator[list[str]]:
        """The tests of one process after the other; `own_only` leaves out all but the module's own test file."""
        of_file = self.lines.get(file, {})
        own_file = f"/test_{mutant.module}.py"  # no two test files have the same name
        lines = range(mutant.line, mutant.end_line + 1)
        found = _union(of_file.values() if mutant.at_import else (of_file.get(n, frozenset()) for n in lines))
        own = [test for test in found if test.partition("::")[0].endswith(own_file)]
        if own and mutant.at_import:
            yield [own[0].partition("::")[0]]
        else:
            yield from self._fastest_first(own)
        if not (own and own_only):
            yield from self._fastest_first([test for test in found if test not in own])

    def _fastest_first(self, tests: list[str]) -> Iterator[list[str]]:
        ordered = sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))
        yield from (ordered[n : n + AT_ONCE] for n in range(0, len(ordered), AT_ONCE))


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


@dataclass
class Watch:
    """A plugin of pytest that tells coverage.py which test is running, and keeps what each took."""

    coverage: coverage.Coverage
    seconds: dict[str, float] = field(default_factory=dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(function_of(item.nodeid))
        result = yield
        self.coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = function_of(report.nodeid)
        self.seconds[test] = self.seconds.get(test, 0.0) + report.duration

    def seen(self) -> Seen:
        data = self.coverage.get_data()
        lines = {
            str(Path(file).relative_to(Path.cwd())): {
                line: frozenset(test for test in tests if test) for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        return Seen(lines, self.seconds)


def function_of(node_id: str) -> str:
    """The test function without its parameters."""
    return node_id.partition("[")[0]

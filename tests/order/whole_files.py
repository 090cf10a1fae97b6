"""pytest-xdist's distribution of whole files, each to a process that has started what it needs (tests/order/next_file.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdist.scheduler import LoadFileScheduling

from tests.order.next_file import NEEDS, next_file, system_of

FEW = 2
"""A process that has so many tests before it, or fewer, is given its next file: pytest-xdist's own limit."""


class WholeFiles(LoadFileScheduling):
    """Each process is given its next file by what it has started, and ends where no file that is left is worth
    starting another system for.

    The test that ended its process has failed, and the process that is started instead goes on with the one after it.
    Of pytest-xdist 3.8 itself (1) that process gets the test again, as its first, and so do all that follow it: a test
    that hangs is waited for as often as processes may be started anew; (2) it gets one file, be there one test or none
    to run in it, and begins a test only when it knows the next one: the run hangs; (3) one that is still collecting is
    given a file when another ends, which loses the file.
    """

    def __init__(self, config: Any, log: Any, seconds_of: Callable[[str], float]) -> None:
        """`seconds_of`: how long a file takes, about, by its path from the repository's root."""
        super().__init__(config, log)
        self._seconds_of = seconds_of
        self._started: dict[Any, set[str]] = {}

    def remove_node(self, node: Any) -> str | None:
        files = self.assigned_work.get(node, {})
        crashed = next((test for tests in files.values() for test, done in tests.items() if not done), None)
        for tests in files.values():
            if crashed in tests:
                tests[crashed] = True
        for file in [file for file, tests in files.items() if all(tests.values())]:
            del files[file]
        super().remove_node(node)
        return crashed

    def schedule(self) -> None:
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:
            return  # it is still collecting, and asks when it is done
        has_room = not node.shutting_down and self._pending_of(self.assigned_work[node]) <= FEW
        if self.workqueue and has_room and self._next(node) is None:
            node.shutdown()  # it runs what it was given, and the others take the rest
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        if (file := self._next(node)) is None:
            return  # at the beginning pytest-xdist gives to each process: what it has none for ends at once
        self.workqueue.move_to_end(file, last=False)
        self._started.setdefault(node, set()).update(NEEDS[system_of(file)])
        super()._assign_work_unit(node)

    def _next(self, node: Any) -> str | None:
        others = [self._started.get(n, set()) for n in self.nodes if n is not node and not n.shutting_down]
        files = {file: self._seconds_of(file) for file in self.workqueue}
        return next_file(files, self._started.get(node, set()), others)

"""pytest-xdist's distribution of whole files, for runs in which a process of it may end in the middle of a test."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling


class WholeFiles(LoadFileScheduling):
    """The test that ended its process has failed, and the process that is started instead goes on with the one after it.

    Of pytest-xdist 3.8 itself (1) that process gets the test again, as its first, and so do all that follow it: a test
    that hangs is waited for as often as processes may be started anew; (2) it gets one file, be there one test or none
    to run in it, and begins a test only when it knows the next one: the run hangs.
    """

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

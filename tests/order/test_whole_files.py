"""However a run's processes end, each test is run once and the run ends: the scheduler with processes that only count."""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace

import pytest
from xdist.remote import Producer

from tests.order.whole_files import WholeFiles

FILES = {
    "tests/jobs/round/test_rounds.py": (4, 300.0),
    "tests/jobs/engine/test_engine.py": (3, 250.0),
    "tests/dags/test_dag_runs.py": (3, 110.0),
    "tests/jobs/restore/test_restore.py": (1, 80.0),
    "tests/cleantail/config/test_config.py": (5, 10.0),
    "tests/cleantail/log/test_triggers.py": (1, 0.0),
}
TESTS = [f"{file}::test_{number}" for file, (count, _) in FILES.items() for number in range(count)]


class Process:
    """A process as pytest-xdist sees it: it begins a test only when it knows the next one, or that there is none."""

    def __init__(self) -> None:
        self.given, self.shutting_down, self.is_ready = deque[int](), False, True
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, tests):
        self.given.extend(tests)

    def shutdown(self):
        self.shutting_down = True

    @property
    def has_work(self):
        return self.is_ready and len(self.given) > (0 if self.shutting_down else 1)


class Run:
    """A run of all TESTS; a test of `ends` ends its process, the first time that it is run."""

    def __init__(self, processes, ends=()):
        option = SimpleNamespace(loadscopereorder=False)
        config = SimpleNamespace(option=option, getvalue=lambda _: ["popen"] * processes)
        config.getoption = config.getvalue
        self.scheduler = WholeFiles(config, Producer("run", enabled=False), lambda file: FILES[file][1])
        self.run, self.ends = Counter(), set(ends)
        self.processes = [Process() for _ in range(processes)]
        for process in self.processes:
            self.scheduler.add_node(process)
        for process in self.processes:
            self.scheduler.add_node_collection(process, TESTS)
        self.scheduler.schedule()

    def step(self, process):
        """Runs the next test of a process."""
        index = process.given.popleft()
        self.run[TESTS[index]] += 1
        if TESTS[index] not in self.ends:
            self.scheduler.mark_test_complete(process, index)
            return
        self.ends.discard(TESTS[index])
        self.processes.remove(process)
        process.shutting_down = True
        assert self.scheduler.remove_node(process) == TESTS[index]
        self.processes.append(another := Process())
        another.is_ready = False  # it collects first
        self.scheduler.add_node(another)

    def collected(self):
        """Lets the processes that were started last end their collection."""
        for process in [process for process in self.processes if not process.is_ready]:
            process.is_ready = True
            self.scheduler.add_node_collection(process, TESTS)
            self.scheduler.schedule()

    def to_the_end(self):
        while working := [process for process in self.processes if process.has_work]:
            for process in working:
                self.step(process)
            if not any(process.has_work for process in self.processes):
                self.collected()
        assert not self.scheduler.has_pending
        return self.run


def test_a_process_ends_where_what_is_left_is_not_worth_another_system():
    run = Run(3)
    assert [TESTS[process.given[0]].split("::")[0] for process in run.processes] == [
        "tests/jobs/round/test_rounds.py",
        "tests/dags/test_dag_runs.py",
        "tests/jobs/restore/test_restore.py",
    ]
    assert run.to_the_end() == dict.fromkeys(TESTS, 1)


def test_a_process_without_a_file_to_run_ends_at_once():
    run = Run(9)
    assert sum(bool(process.given) for process in run.processes) == 5  # one file, of Spark's, waits for who has it
    assert all(process.shutting_down for process in run.processes if not process.given)
    assert run.to_the_end() == dict.fromkeys(TESTS, 1)


@pytest.mark.parametrize("processes", [1, 2, 3, 9])
@pytest.mark.parametrize(
    "ends",
    [
        ["tests/jobs/engine/test_engine.py::test_1"],
        [
            "tests/jobs/round/test_rounds.py::test_0",
            "tests/dags/test_dag_runs.py::test_0",
        ],  # both, before either is back
        [
            "tests/jobs/round/test_rounds.py::test_3",
            "tests/jobs/engine/test_engine.py::test_0",
        ],  # and what came instead of it
        TESTS,
    ],
    ids=["one", "two at once", "one after another", "each"],
)
def test_each_test_is_run_once_whichever_processes_end(processes, ends):
    assert Run(processes, ends).to_the_end() == dict.fromkeys(TESTS, 1)

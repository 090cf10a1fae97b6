"""What Airflow says of a DAG, in words."""

import pytest

from cleantail.watch.dag_state import DagRun, DagState, FailedTask, failure_text, standstill_text

RED = DagRun("r1", "failed", 0, 60_000)


@pytest.mark.parametrize(
    ("dag", "text"),
    [
        pytest.param(DagState(), "", id="no run"),
        pytest.param(DagState(last=DagRun("r", "success", 0, 1)), "", id="green"),
        pytest.param(DagState(last=RED), "its last run failed 2 min ago", id="no task of it failed"),
        pytest.param(
            DagState(last=RED, failed_tasks=(FailedTask("evaluate"),)),
            "its last run failed 2 min ago in task evaluate",
            id="one task",
        ),
        pytest.param(
            DagState(last=RED, failed_tasks=tuple(FailedTask("compact", i, f"partitions {i}") for i in range(5))),
            "its last run failed 2 min ago in tasks compact (partitions 0), compact (partitions 1), "
            "compact (partitions 2), 2 more",
            id="many",
        ),
        pytest.param(
            DagState(last=DagRun("r", "failed"), failed_tasks=(FailedTask("compact", 4),)),
            "its last run failed in task compact (map index 4)",
            id="without a time and a label",
        ),
    ],
)
def test_a_failed_run_is_described_with_its_time_and_tasks(dag, text):
    assert failure_text(dag, 180_000) == text
    assert dag.failed is bool(text)


@pytest.mark.parametrize(
    ("dag", "text"),
    [
        (DagState(), ""),
        (DagState(paused=True), "its DAG is paused"),
        (DagState(exists=False, paused=True), "Airflow has no DAG of it"),
    ],
)
def test_a_dag_that_stands_still_says_why(dag, text):
    assert (standstill_text(dag), dag.stands_still) == (text, bool(text))


def test_a_queued_run_does_not_run():
    assert not DagState(active=DagRun("r", "queued")).running
    assert DagState(active=DagRun("r", "running")).running
    assert not DagState().running

"""Which topics failed in a red run of a group, and at which task that is shown."""

import pytest

from cleantail.watch.dag_state import CRASHED, EVERY_TOPIC, FailedTask, failures_by_topic

PACK = {"label": "2 topics", "topics": ["left", "right"]}
BAD = {"topic": "left", "ok": False, "station": "ingest", "error": "line 3 is no record\nand more"}


@pytest.mark.parametrize(("skipped", "task"), [([], "ingest"), (["ingest", "reconcile"], "run_pack")])
def test_a_failure_is_shown_at_its_station_or_where_that_was_skipped_at_run_pack(skipped, task):
    plan = {"packs": [PACK], "skipped": skipped}
    found = failures_by_topic(plan, {0: {"topics": [BAD, {"topic": "right"}]}}, {(task, 0): ""})
    assert found == {"left": (FailedTask(task, 0, "pack 0", "line 3 is no record"),)}


def test_a_topic_of_a_crashed_application_that_has_told_nothing_of_it_failed_at_run_pack():
    found = failures_by_topic(
        {"packs": [PACK]}, {0: {"topics": [{"topic": "right"}]}}, {("run_pack", 0): "names of others"}
    )
    assert found == {"left": (FailedTask("run_pack", 0, "pack 0", CRASHED),)}


@pytest.mark.parametrize(
    ("task", "only", "expected"),
    [("evaluate", "", EVERY_TOPIC), ("evaluate", "left", "left"), ("rollback", "left", "left")],
)
def test_a_task_before_the_packs_failed_with_its_reason(task, only, expected):
    found = failures_by_topic(None, {}, {(task, -1): "the task was killed"}, only)
    assert found == {expected: (FailedTask(task, reason="the task was killed"),)}

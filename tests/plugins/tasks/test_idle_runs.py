"""What an idle run says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.config.topic import Topic
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.log.source_position import Forgotten
from cleantail_airflow.tasks.run_note import idle_note
from tests.cleantail.kernel_builders import log_state

ORDERS = Topic(topic="orders", table="lake.orders")
RED = Quarantine(kind="compact", reason="unique_keys", since_ms=1, attempts=1, retry_at_ms=60_000)


def log(partition, quarantine=None):
    return replace(log_state(state=PartitionState(quarantine=quarantine)), partition=partition)


@pytest.mark.parametrize(
    ("logs", "words"),
    [
        pytest.param([log(0), log(1)], "Nothing was due, all is well: the log", id="nothing_held"),
        pytest.param([log(0), log(1, RED)], "Nothing was due, but partition 1 is blocked (", id="one_held"),
        pytest.param([log(0, RED), log(1, RED)], "Nothing was due, but partitions 0, 1 are blocked (", id="two_held"),
    ],
)
def test_a_run_without_work_says_that_all_is_well_only_where_nothing_is_held_back(logs, words):
    note = idle_note(ORDERS.schedule, "no compaction is due: the log is clean", logs)
    assert note.startswith(words)
    assert ("all is well" in note) == ("blocked" not in note)


def test_a_calm_run_of_a_topic_that_may_lack_deletions_says_so():
    missing = replace(log(0), forgotten=Forgotten(0, 2, 9, 3, 1_000, 1_000))
    note = idle_note(ORDERS.schedule, "no compaction is due: the log is clean", [missing])
    assert note.startswith("Nothing was due, but a reconciliation is needed (details on the tab Compaction): the log")

"""How much the stations of a topic read, by which topics share a pack."""

from dataclasses import replace

from cleantail.log.due_work import UpkeepDecision
from cleantail.log.partition_state import Horizon, PartitionState
from cleantail.rounds.run_plan import NewInput, due_topic
from tests.cleantail.lake.test_evaluate import NOW_MS, facts, log, planned, topic

CLEAN = PartitionState(checkpoint=30)
DEAD = {"records": 10, "deleted_records": 5}


def read_bytes(plan, new_bytes=None, converts=False, force=False, **config):
    due = due_topic(plan, NewInput(new_bytes, converts), topic(**config).config, force=force)
    return None if due is None else due.read_bytes


def test_nothing_is_due_of_a_clean_log():
    assert read_bytes(planned(facts(log(0), {0: CLEAN}))) is None


def test_a_round_reads_up_to_where_it_ends_and_what_is_new_after_the_ingestion():
    plan = planned(facts(log(0) + log(1), {1: CLEAN}))
    assert (read_bytes(plan), read_bytes(plan, 7)) == (300, 300 + 2 * 7)


def test_a_clean_log_that_may_become_due_by_what_is_new_is_read_from_its_start():
    plan = planned(facts(log(0), {0: CLEAN}))
    assert (read_bytes(plan, 300), read_bytes(plan, 301)) == (600, 300 + 602)
    assert read_bytes(plan, 7) == 14
    assert read_bytes(plan, 7, force=True) == 314
    assert read_bytes(plan, 7, max_compaction_lag_ms=9) == 314  # what comes may be old
    assert read_bytes(plan, 301, max_compaction_lag_ms=9, cleanup_policy="delete") == 602


def test_an_expiry_reads_the_logs_of_which_tombstones_go():
    waiting = PartitionState(checkpoint=30, horizons=(Horizon(30, NOW_MS, 2),))
    plan = planned(facts(log(0) + log(1), {0: waiting, 1: CLEAN}))
    assert (plan.swept, plan.units, read_bytes(plan)) == ((0,), (), 300)


def test_a_reclaim_reads_the_files_that_it_rewrites():
    state = PartitionState(checkpoint=30, known_sequence_number=1)
    plan = planned(
        facts(log(0, **DEAD), {0: state}), cleantail_reclaim_deleted_ratio=0.2, min_cleanable_dirty_ratio=1.0
    )
    rewritten = sum(file.live_bytes for group in plan.reclaim.groups for file in group)
    assert plan.reclaim.groups and not plan.units and read_bytes(plan) == rewritten > 0


def test_a_reconciliation_and_a_conversion_read_the_table_whole():
    clean = planned(facts(log(0) + log(1), {0: CLEAN, 1: CLEAN}))
    assert read_bytes(replace(clean, reconcile=UpkeepDecision(True, "asked for"))) == 600
    assert read_bytes(clean, 0, converts=True) == 600

"""How much the stations of a topic read, by which topics share a pack."""

from dataclasses import replace

from cleantail.log.due_work import UpkeepDecision
from cleantail.log.partition_state import Horizon, PartitionState
from cleantail.rounds.run_plan import NewInput, due_topic
from tests.cleantail.lake.test_evaluate import NOW_MS, facts, log, planned, topic

CLEAN = PartitionState(checkpoint=30)
DEAD = {"records": 10, "deleted_records": 5}


def read_bytes(plan, new_bytes=None, converts=None, force=None, **config):
    new = NewInput(new_bytes) if converts is None else NewInput(new_bytes, converts)
    how = {} if force is None else {"force": force}
    due = due_topic(plan, new, topic(**config).config, **how)
    return None if due is None else due.read_bytes


def test_the_login_of_the_kafka_client_is_not_in_the_text_of_new_input():
    assert "hunter2" not in repr(NewInput(client={"sasl.password": "hunter2"}))


def test_nothing_is_due_of_a_clean_log():
    assert read_bytes(planned(facts(log(0), {0: CLEAN}))) is None


def test_a_checkpoint_to_repair_is_due_though_no_station_has_work():
    plan = planned(facts(log(0), {0: PartitionState(checkpoint=200)}), min_cleanable_dirty_ratio=1.0)
    assert (plan.due, plan.has_work, read_bytes(plan)) == (False, True, 0)


def test_a_topic_is_as_urgent_as_the_most_urgent_log_that_is_compacted():
    late = {"max_compaction_lag_ms": 4_000, "min_cleanable_dirty_ratio": 1.0}
    files = [file for p, ms in enumerate((5_000, 4_000, 9_000)) for file in log(p, min_timestamp_ms=ms)]
    states = {0: PartitionState(checkpoint=20), 1: PartitionState(checkpoint=10)}
    plan = planned(facts(files, states), **late)
    due = due_topic(plan, NewInput(), topic(**late).config, left_since_ms=7)
    assert due is not None
    assert (due.overdue_ms, due.dirty_ratio, due.left_since_ms) == (2_000, 2 / 3, 7)


def test_a_topic_of_which_only_new_input_is_due_is_not_urgent():
    due = due_topic(planned(facts(log(0), {0: CLEAN})), NewInput(7), topic().config)
    assert due is not None
    assert (due.overdue_ms, due.dirty_ratio) == (0, 0.0)


def test_a_round_reads_up_to_where_it_ends_and_what_is_new_after_the_ingestion():
    plan = planned(facts(log(0) + log(1), {1: CLEAN}))
    assert (read_bytes(plan), read_bytes(plan, 7)) == (300, 300 + 2 * 7)


def test_a_clean_log_that_may_become_due_by_what_is_new_is_read_from_its_start():
    plan = planned(facts(log(0), {0: CLEAN}))
    assert (read_bytes(plan, 300), read_bytes(plan, 301)) == (600, 300 + 602)
    assert read_bytes(plan, 7) == 14
    assert read_bytes(plan, 7, force=True) == 314
    assert read_bytes(plan, 0, force=True) == 0
    assert read_bytes(plan, 7, max_compaction_lag_ms=9) == 314  # what comes may be old
    assert read_bytes(plan, 301, max_compaction_lag_ms=9, cleanup_policy="delete") == 602


def test_what_cannot_be_cleaned_yet_makes_a_log_due_too_once_new_input_comes():
    plan = planned(facts(log(0, min_timestamp_ms=NOW_MS), {0: PartitionState(checkpoint=10)}), segment_ms=9)
    [waiting] = plan.logs
    assert (waiting.clean_bytes, waiting.cleanable_bytes, waiting.uncleanable_bytes, plan.units) == (100, 100, 100, ())
    assert read_bytes(plan, 1) == 302


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

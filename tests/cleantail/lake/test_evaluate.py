"""What a run would do: decisions, retention, sweep and reclaim of all logs joined to one plan."""

import json
import re
import time
from dataclasses import replace

import pytest

from cleantail.config.topic import Topic
from cleantail.config.topic_source import Source
from cleantail.config.topic_table import Columns
from cleantail.errors import HeldError, TableError
from cleantail.lake import evaluate
from cleantail.lake.evaluate import evaluate_topic, log_states, plan_run, read_facts, unit_at
from cleantail.lake.facts_cache import FactsCache
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.due_work import UpkeepDecision
from cleantail.log.horizons import Reader
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.work_units import UNIT_BYTES, PartitionWork, round_name
from cleantail.rounds.run_plan import RUN_PLAN_JSON
from tests.cleantail.kernel_builders import data_file

SETTINGS = {"segment.ms": 1, "segment.bytes": 100, "min.cleanable.dirty.ratio": 0.5}
NOW_MS = 10_000


def topic(**changes):
    names = {name.replace("_", "."): value for name, value in changes.items()}
    return Topic.model_validate({"topic": "orders", "table": "n.orders", "config": SETTINGS | names})


def facts(files=(), states=None, arrived=()):
    return TableFacts("n.orders", 77, 5, tuple(files), tuple(arrived), states or {}, frozenset(), ())


def log(partition, segments=3, **changes):
    return [
        data_file(10 * n, 10 * n + 9, partition=partition, path=f"p{partition}n{n}", **changes) for n in range(segments)
    ]


def planned(table, now_ms=NOW_MS, how=None, **changes):
    return plan_run(topic(**changes), table, now_ms=now_ms, **(how or {}))


def works(plan):
    return [w for unit in plan.units for w in unit.partitions]


def actions(plan):
    return [row["action"] for row in plan.as_json()["partitions"]]


# ---- nothing to do


@pytest.mark.parametrize("table", [None, facts()], ids=["no table", "no data"])
def test_without_records_nothing_is_due(table):
    plan = planned(table)
    assert (plan.due, plan.units, plan.swept, plan.repairs) == (False, (), (), {})
    assert (plan.reclaim.due, plan.reclaim.expired_snapshots) == (False, 0)
    assert (plan.reason, plan.sweep_reason) == ("the table has no records yet", "there is no tombstone to expire")


def test_one_reason_for_all_logs_is_said_once():
    table = facts(log(0) + log(1), {p: PartitionState(checkpoint=30) for p in (0, 1)})
    assert planned(table).reason == "no compaction is due: the log is clean up to its end, offset 30"


def test_more_reasons_are_counted():
    table = facts(log(0) + log(1) + log(2), {0: PartitionState(checkpoint=30), 1: PartitionState(checkpoint=20)})
    assert (
        planned(table, min_cleanable_dirty_ratio=1.0).reason
        == "no compaction is due: dirty ratio 0.33 is not above min.cleanable.dirty.ratio 1.0, and no record is overdue "
        "(and 2 more reasons)"
    )


def test_two_reasons_are_one_and_one_more():
    table = facts(log(0) + log(1), {0: PartitionState(checkpoint=30)})
    assert (
        planned(table, min_cleanable_dirty_ratio=1.0).reason
        == "no compaction is due: dirty ratio 1.0000 is not above min.cleanable.dirty.ratio 1.0, and no record is overdue "
        "(and 1 more reason)"
    )


# ---- compaction


def test_a_dirty_log_is_one_work():
    plan = planned(facts(log(0)))
    assert works(plan) == [PartitionWork(0, 0, 30, 0, 30, 300, 30, dirty_bytes=300, read_bytes=300, records=30)]
    assert (plan.reason, plan.due, actions(plan)) == ("1 of 1 partition is due", True, ["compact"])
    assert (plan.units[0].base_snapshot_id, plan.units[0].round, plan.units[0].now_ms) == (77, plan.round, NOW_MS)


def test_the_dirtiest_log_is_first():
    table = facts(log(0) + log(1) + log(2), {0: PartitionState(checkpoint=10), 1: PartitionState(checkpoint=30)})
    plan = planned(table)
    assert [w.partition for w in works(plan)] == [2, 0]
    assert (plan.reason, actions(plan)) == ("2 of 3 partitions are due", ["compact", "none", "compact"])


def test_a_work_has_the_bounds_of_its_log():
    files = log(0, 5) + log(0, 0)
    files[4] = replace(files[4], min_timestamp_ms=NOW_MS, max_timestamp_ms=NOW_MS)
    state = PartitionState(checkpoint=10, log_start_offset=2, log_end_offset=70)
    expected = PartitionWork(0, 10, 40, 0, 70, 500, 30, dirty_bytes=300, read_bytes=400, records=50)
    assert works(planned(facts(files, {0: state}))) == [expected]


def test_force_passes_over_the_ratio():
    table = facts(log(0), {0: PartitionState(checkpoint=20)})
    assert not planned(table).units
    assert works(planned(table, how={"force": True})) == [
        PartitionWork(0, 20, 30, 0, 30, 300, 10, dirty_bytes=100, read_bytes=300, records=30)
    ]


def test_one_partition_may_be_asked_for():
    plan = planned(facts(log(0) + log(1)), how={"partition": 1})
    assert ([w.partition for w in works(plan)], [s.partition for s in plan.logs]) == ([1], [1])


def test_partition_0_may_be_asked_for():
    assert [s.partition for s in planned(facts(log(0) + log(1)), how={"partition": 0}).logs] == [0]


def test_a_partition_that_is_not_there_is_named():
    with pytest.raises(TableError, match="topic orders has no partition 7: it has 0"):
        planned(facts(log(0)), how={"partition": 7})


def test_case_23_a_log_that_was_emptied_does_not_disturb_the_others():
    table = facts(log(1), {0: PartitionState(checkpoint=30, log_start_offset=30, log_end_offset=30)})
    assert [w.partition for w in works(planned(table))] == [1]


def test_logs_come_by_number_with_their_own_state():
    table = facts(log(1) + log(0), {1: PartitionState(checkpoint=20)}, arrived=log(1, 1))
    found = log_states(topic(), table, NOW_MS)
    assert [(s.partition, s.checkpoint, s.late_offset) for s in found] == [(0, None, None), (1, 20, 0)]
    assert log_states(topic(), None, NOW_MS) == ()


# ---- retention


def test_a_log_of_which_only_retention_is_due_gets_no_compaction():
    """first dirty == end: nothing is compacted, records below the log start go."""
    state = PartitionState(checkpoint=30, log_start_offset=0)
    plan = planned(facts(log(0), {0: state}), cleanup_policy="compact,delete", retention_bytes=100, retention_ms=-1)
    assert works(plan) == [PartitionWork(0, 30, 30, 20, 30, 300, read_bytes=100, records=30)]
    assert (actions(plan), plan.reason) == (["retain"], "1 of 1 partition is due")


def test_retention_beyond_the_clean_point_takes_it_along():
    state = PartitionState(checkpoint=10, log_start_offset=0)
    plan = planned(facts(log(0), {0: state}), cleanup_policy="delete", retention_bytes=100, retention_ms=-1)
    assert works(plan) == [PartitionWork(0, 20, 20, 20, 30, 300, records=30)]


def test_case_16_one_work_retains_and_compacts():
    plan = planned(facts(log(0)), cleanup_policy="compact,delete", retention_bytes=200, retention_ms=-1)
    assert works(plan) == [PartitionWork(0, 10, 30, 10, 30, 300, 20, dirty_bytes=200, read_bytes=200, records=30)]
    assert actions(plan) == ["compact"]


def test_when_retention_takes_all_there_is_nothing_left_to_compact():
    plan = planned(facts(log(0)), cleanup_policy="compact,delete", retention_ms=1)
    assert works(plan) == [PartitionWork(0, 30, 30, 30, 30, 300, records=30)]


def test_logs_of_which_only_retention_is_due_come_last():
    table = facts(log(0) + log(1), {0: PartitionState(checkpoint=30)})
    plan = planned(table, cleanup_policy="compact,delete", retention_bytes=100, retention_ms=-1)
    assert [w.partition for w in works(plan)] == [1, 0]


# ---- sweep

SWEPT = PartitionState(checkpoint=30, horizons=(Horizon(30, NOW_MS, 4),))


@pytest.mark.parametrize(
    ("now_ms", "sweep", "reason"),
    [
        pytest.param(
            NOW_MS - 1,
            (),
            "no tombstone is due before 1970-01-01 00:00:10 UTC (delete.retention.ms)",
            id="before the horizon",
        ),
        pytest.param(NOW_MS, (0,), "4 tombstones are past their horizon", id="now == horizon"),
    ],
)
def test_a_log_without_new_data_is_swept_when_its_tombstones_are_due(now_ms, sweep, reason):
    plan = planned(facts(log(0), {0: SWEPT}), now_ms)
    assert (plan.swept, plan.sweep_reason, plan.units, plan.due) == (sweep, reason, (), bool(sweep))


def test_due_tombstones_of_all_logs_are_counted():
    table = facts(log(0) + log(1) + log(2), {0: SWEPT, 1: PartitionState(checkpoint=30), 2: SWEPT})
    plan = planned(table)
    assert (plan.swept, plan.sweep_reason) == ((0, 2), "8 tombstones are past their horizon")
    assert plan.reason == "no compaction is due: the log is clean up to its end, offset 30"


def test_the_soonest_horizon_of_all_logs_is_named():
    later = replace(SWEPT, horizons=(Horizon(30, NOW_MS + 5, 1),))
    plan = planned(facts(log(0) + log(1), {0: later, 1: SWEPT}), 0)
    assert plan.sweep_reason == "no tombstone is due before 1970-01-01 00:00:10 UTC (delete.retention.ms)"


LATE = [data_file(2, 3, partition=0, path="late", data_sequence_number=9)]


def test_what_late_records_hold_back_is_swept_in_the_run_that_cleans_them():
    """A tombstone above the lowest late record may still have to beat one; after the round it has."""
    swept = tuple(replace(h, swept_to=2) for h in SWEPT.horizons)
    known = replace(SWEPT, known_sequence_number=5, horizons=swept)
    table = facts(log(0) + LATE, {0: known}, LATE)
    assert planned(table, min_cleanable_dirty_ratio=1.0).swept == ()
    plan = planned(table, how={"force": True})
    assert ([w.first_dirty_offset for w in works(plan)], plan.swept) == ([2], (0,))


@pytest.mark.parametrize(("retention_ms", "expected"), [(0, {0: 0}), (1, {})])
def test_without_retention_the_run_says_which_horizons_are_its_own(retention_ms, expected):
    """delete.retention.ms 0: a tombstone still takes two cleanings (semantics.md 1.5)."""
    plan = planned(facts(log(0) + log(1), {1: SWEPT}), delete_retention_ms=retention_ms)
    assert plan.sweep is not None
    assert plan.sweep.fresh_from == expected
    assert RUN_PLAN_JSON.of_plain(json.loads(json.dumps(plan.as_json())), "the XCom").sweep == plan.sweep


@pytest.mark.parametrize(
    ("now_ms", "sweep", "reason"),
    [
        pytest.param(
            NOW_MS - 1,
            (),
            "no tombstone is due before 1970-01-01 00:00:10 UTC (delete.retention.ms)",
            id="before the horizon",
        ),
        pytest.param(
            NOW_MS,
            (1,),
            "4 tombstones are past their horizon; 4 more wait for reader slow (at offset 0 of partition 0) "
            "until 1970-01-01 00:00:10 UTC",
            id="a reader of one log",
        ),
        pytest.param(NOW_MS + 50, (0, 1), "8 tombstones are past their horizon", id="now == horizon + cap"),
    ],
)
def test_a_sweep_waits_for_the_slowest_reader_of_its_log(now_ms, sweep, reason):
    readers = (Reader("orders", "fast", 0, 30, 0), Reader("orders", "slow", 0, 0, 0))
    table = replace(facts(log(0) + log(1), {0: SWEPT, 1: SWEPT}), readers=readers)
    plan = planned(table, now_ms, cleantail_readers_hold_cap_ms=50)
    assert (plan.swept, plan.sweep_reason, plan.readers) == (sweep, reason, readers)


def test_without_compact_in_the_policy_no_tombstone_goes():
    assert planned(facts(log(0), {0: SWEPT}), cleanup_policy="delete").swept == ()


# ---- quarantine

HELD = Quarantine(1, "compact", "check failed: x", 1, retry_at_ms=NOW_MS + 1)


def quarantined(held=HELD, **changes):
    state = replace(SWEPT, log_start_offset=0, quarantine=held)
    table = facts(log(0) + log(1), {0: replace(state, checkpoint=30), 1: SWEPT})
    return planned(table, cleanup_policy="compact,delete", retention_bytes=100, retention_ms=-1, **changes)


def test_a_quarantined_log_is_retained_but_not_swept_before_its_next_try():
    """Unlike Kafka, whose uncleanable partitions are left out of deletion too."""
    plan = quarantined()
    assert ([w.partition for w in works(plan)], plan.swept) == ([0, 1], (1,))
    assert (
        plan.by_log[0].decision.reason
        == "blocked until 1970-01-01 00:00:10 UTC (log.cleaner.backoff.ms, doubled with every try): check failed: x"
    )
    assert (plan.by_log[0].retention.log_start_offset, actions(plan)) == (20, ["retain", "retain"])
    assert all(work.only_retention for work in works(plan))


def test_after_a_rejection_a_log_rests_from_retention_too():
    """The next run would ask the same again."""
    plan = quarantined(replace(HELD, reason="rejected by anna"))
    assert ([w.partition for w in works(plan)], plan.swept) == ([1], (1,))
    assert (
        plan.by_log[0].decision.reason
        == "blocked until 1970-01-01 00:00:10 UTC (cleantail.approval.pause.ms): rejected by anna"
    )
    assert [w.partition for w in works(quarantined(replace(HELD, reason="rejected by anna"), now_ms=NOW_MS + 1))] == [
        0,
        1,
    ]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"now_ms": NOW_MS + 1}, id="now == next try"),
        pytest.param({"how": {"force": True}}, id="forced"),
        pytest.param({"how": {"retry_quarantined": True}}, id="a person asks"),
    ],
)
def test_at_its_next_try_a_quarantined_log_is_like_any_other(changes):
    plan = quarantined(**changes)
    assert ([w.partition for w in works(plan)], plan.swept) == ([0, 1], (0, 1))


def test_a_quarantined_log_is_not_compacted_before_its_next_try():
    table = facts(log(0), {0: PartitionState(quarantine=HELD)})
    assert (
        planned(table).reason
        == "no compaction is due: blocked until 1970-01-01 00:00:10 UTC (log.cleaner.backoff.ms, doubled with every try): check failed: x"
    )
    assert planned(table, how={"retry_quarantined": True}).units


# ---- repairs


def test_case_13_a_repaired_checkpoint_is_written_back_though_nothing_is_compacted():
    state = PartitionState(checkpoint=200, known_sequence_number=4, head_tombstones=3)
    plan = planned(facts(log(0), {0: state}), min_cleanable_dirty_ratio=1.0)
    assert (plan.units, plan.repairs) == ((), {0: replace(state, checkpoint=0)})
    assert plan.as_json()["partitions"][0]["warnings"] == [
        "first dirty offset 200 is above the log end 30: reset to the log start 0"
    ]


def test_a_log_that_is_compacted_needs_no_repair_of_its_own():
    assert planned(facts(log(0), {0: PartitionState(checkpoint=200)})).repairs == {}


def test_a_checkpoint_inside_the_log_is_not_repaired():
    assert planned(facts(log(0), {0: PartitionState(checkpoint=30)})).repairs == {}


# ---- the plan as a whole


def test_a_plan_may_be_restricted_to_some_partitions():
    plan = planned(facts(log(0) + log(1) + log(2)))
    restricted = plan.with_works([work for work in works(plan) if work.partition != 1])
    assert [w.partition for w in works(restricted)] == [0, 2]
    assert restricted.units[0].base_snapshot_id == 77
    assert restricted.units[0].branch == plan.units[0].branch
    assert planned(None).with_works([]).units == ()


def test_what_was_one_unit_stays_one_and_several_are_packed_by_their_size():
    large = [replace(work, bytes=UNIT_BYTES) for work in works(planned(facts(log(0) + log(1))))]
    one = planned(facts(log(0) + log(1))).with_works(large)
    assert [len(unit.partitions) for unit in one.units] == [2]
    several = replace(one, units=one.units * 2).with_works(large)
    assert [len(unit.partitions) for unit in several.units] == [1, 1]
    assert {unit.base_snapshot_id for unit in several.units} == {77}


def test_logs_of_an_adopted_table_are_one_unit_however_large_they_are():
    table = facts([file for p in (0, 1) for file in log(p, size_bytes=UNIT_BYTES)])
    assert [len(unit.partitions) for unit in planned(table, segment_bytes=2**31 - 1).units] == [1, 1]
    adopted = topic().model_copy(update={"columns": Columns(partition="p", offset="o", key="k")})
    assert [len(unit.partitions) for unit in plan_run(adopted, table, now_ms=NOW_MS).units] == [2]


def test_logs_share_files_if_a_file_is_in_the_list_of_several():
    apart, shared = log(0) + log(1), log(0) + [replace(log(1)[0], path="p0n0")]
    assert [planned(table).shared_files for table in (None, facts(apart), facts(shared))] == [False, False, True]


@pytest.mark.parametrize(
    ("changes", "has_rounds"),
    [({}, True), ({"how": {"partition": 1}}, True), ({"now_ms": 0, "how": {"partition": 1}}, False)],
    ids=["compaction and expiry", "expiry", "none"],
)
def test_a_plan_has_rounds_if_it_compacts_or_expires(changes, has_rounds):
    assert planned(facts(log(0) + log(1), {1: SWEPT}), **changes).has_rounds is has_rounds
    assert planned(facts(log(0))).has_rounds  # a compaction alone


def test_a_unit_is_planned_again_as_a_run_plans_it_with_or_without_force():
    """Of a log in quarantine a run takes old segments; one with force compacts it too."""
    table = facts(log(0), {0: PartitionState(checkpoint=10, log_start_offset=0, quarantine=HELD)})
    policy = {"cleanup_policy": "compact,delete", "retention_bytes": 100, "retention_ms": -1}
    units = [planned(table, how={"force": force}, **policy).units[0] for force in (False, True)]
    assert [(w.first_dirty_offset, w.end_offset) for unit in units for w in unit.partitions] == [(20, 20), (20, 30)]
    assert [unit_at(topic(**policy), table, unit) for unit in units] == units
    wrong = replace(units[0], partitions=(replace(units[0].partitions[0], end_offset=25),))
    with pytest.raises(HeldError, match="partition 0 should have first_dirty_offset 20, end_offset 30, .* but has"):
        unit_at(topic(**policy), table, wrong)


def test_a_plan_knows_how_many_records_the_table_has():
    assert planned(facts(log(0) + log(1, deleted_records=4))).records == 48
    assert planned(None).records == 0


def test_what_a_reconciliation_waits_for_is_said_of_topics_that_have_one():
    plan = planned(facts(log(0)))
    assert "reconcile" not in plan.table()
    assert replace(plan, reconcile=UpkeepDecision(reason="asked for")).table().endswith("\n  reconcile: asked for")


def test_a_plan_travels_as_json():
    table = facts(log(0) + log(1), {1: SWEPT})
    plan = planned(table)
    document = json.loads(json.dumps(plan.as_json()))
    assert set(document) == {
        "topic",
        "round",
        "now_ms",
        "records",
        "reason",
        "partitions",
        "units",
        "sweep",
        "sweep_reason",
        "readers",
        "reclaim",
        "reconcile",
    }
    assert document["sweep"] == {"now_ms": NOW_MS, "partitions": [1], "fresh_from": {}}
    assert (document["partitions"][0]["partition"], document["partitions"][0]["dirty_ratio"]) == (0, 1.0)
    assert document["reclaim"] == {"due": False, "reason": plan.reclaim.reason}
    assert RUN_PLAN_JSON.of_plain(document, "the XCom").units == plan.units
    assert document["reconcile"] == {
        "due": False,
        "reason": "its source is not Kafka, so there is nothing to compare with",
    }


def test_without_a_sweep_there_is_none_to_pass_on():
    assert planned(facts(log(0))).as_json()["sweep"] is None


def test_the_table_has_a_line_for_each_log_and_warning():
    lines = planned(facts(log(0) + log(1), {0: PartitionState(checkpoint=200)})).table().splitlines()
    assert lines[0] == "orders: 2 of 2 partitions are due"
    assert re.fullmatch(
        r"  partition   0  compact  \[0, 30\) +dirty ratio 1\.00 is above min\.cleanable\.dirty\.ratio 0\.5", lines[1]
    )
    assert (
        lines[2] == "  partition   0  warning  first dirty offset 200 is above the log end 30: reset to the log start 0"
    )
    assert lines[-2:] == [
        "  tombstones: there is no tombstone to expire",
        "  reclaim: no file is over the deleted share, nothing to merge, no snapshot to expire",
    ]


@pytest.mark.parametrize(
    ("now_ms", "sequence", "name"),
    [
        pytest.param(0, 0, "19700101T000000_000_0", id="the epoch"),
        pytest.param(1_767_225_600_007, 12, "20260101T000000_007_12", id="milliseconds count"),
        pytest.param(253_402_300_799_999, 1, "99991231T235959_999_1", id="the end of the calendar"),
        pytest.param((1 << 63) - 1, 1, "99991231T235959_807_1", id="the largest clock"),
    ],
)
def test_a_round_has_a_name_that_is_safe_in_a_branch(now_ms, sequence, name):
    assert round_name(now_ms, sequence) == name
    assert re.fullmatch(r"[A-Za-z0-9_]+", name)


def test_a_round_is_named_after_the_clock_and_the_table():
    assert planned(facts(log(0))).round == "19700101T000010_000_5"
    assert planned(None).round == "19700101T000010_000_0"


# ---- from a real catalog


def test_a_topic_is_evaluated_as_its_table_stands(orders_table):
    topic = orders_table.topic
    assert evaluate_topic(topic, now_ms=NOW_MS).reason == "the table has no records yet"
    orders_table.append((0, 0, 0, b"a", b"x"))
    assert works(evaluate_topic(topic, now_ms=NOW_MS))[0].end_offset == 1
    orders_table.catalog.drop_table("cleantail.orders")
    assert read_facts(topic) is None


def test_unless_somebody_asks_a_quarantined_log_waits(orders_table):
    state = PartitionState(log_start_offset=0, quarantine=HELD)
    orders_table.append((0, 0, 0, b"a", b"x")).set_properties(**{"cleantail.partition.0": state.as_json()})
    topic = orders_table.topic
    assert not evaluate_topic(topic, now_ms=NOW_MS).due
    assert evaluate_topic(topic, now_ms=NOW_MS, retry_quarantined=True).due
    assert evaluate_topic(topic, now_ms=NOW_MS, force=True).due


def test_only_a_later_round_of_a_run_leaves_retention_as_it_is(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x"))
    config = orders_table.topic.config.model_copy(update={"cleanup_policy": "delete", "retention_ms": 1})
    topic = orders_table.topic.model_copy(update={"config": config})
    plans = [evaluate_topic(topic, now_ms=NOW_MS, **how) for how in ({}, {"later_round": True})]
    assert [plan.by_log[0].retention.due for plan in plans] == [True, False]


def test_only_a_run_that_converts_deletes_passes_over_those_of_others_and_no_cache_helps_it(orders_table, monkeypatch):
    passes, real = [], evaluate.table_facts
    monkeypatch.setattr(
        evaluate, "table_facts", lambda *a, **how: passes.append(how["pass_foreign"]) or real(*a, **how)
    )
    read_facts(orders_table.topic)
    evaluate_topic(orders_table.topic, now_ms=NOW_MS, kept=FactsCache(orders_table.platform), unconverted=True)
    assert passes == [False, True]


def test_snapshots_expire_by_the_real_clock_whatever_the_clock_of_the_run(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x")).append((0, 1, 0, b"a", b"y"))
    config = orders_table.topic.config.model_copy(update={"cleantail_snapshot_retention_ms": 1})
    topic = orders_table.topic.model_copy(update={"config": config})
    time.sleep(0.01)
    now_ms = int(time.time() * 1000) + 10 * 365 * 86_400_000
    assert evaluate_topic(topic, now_ms=now_ms).reclaim.expired_snapshots == 1
    long = topic.model_copy(update={"config": config.model_copy(update={"cleantail_snapshot_retention_ms": 3_600_000})})
    assert evaluate_topic(long, now_ms=now_ms).reclaim.expired_snapshots == 0


def test_a_topic_is_reconciled_with_its_source_where_somebody_asks(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x"))
    source = Source.model_validate({"kafka": {"bootstrap.servers": "h:1"}})
    topic = orders_table.topic.model_copy(update={"source": source})
    assert not evaluate_topic(topic, now_ms=NOW_MS).reconcile.due
    assert evaluate_topic(topic, now_ms=NOW_MS, reconcile=True).reconcile.due
    table = read_facts(topic)
    assert not plan_run(topic, table, now_ms=NOW_MS).reconcile.due
    assert plan_run(topic, table, now_ms=NOW_MS, reconcile=True).reconcile.due


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        pytest.param("compact", "no compaction is due: the log is clean up to its end, offset 30", id="compact"),
        pytest.param("compact,delete", "no compaction or retention is due: the log is clean up", id="both"),
        pytest.param("delete", "no retention is due: ", id="delete"),
    ],
)
def test_the_reason_is_of_compaction_and_retention_alone_because_other_work_may_be_due(policy, reason):
    """Above it said that nothing is due, and below that tombstones expire and files are rewritten."""
    plan = planned(facts(log(0), {0: SWEPT}), cleanup_policy=policy)
    assert plan.reason.startswith(reason) and "cleanup.policy has no" not in plan.reason
    assert plan.due is (policy != "delete")

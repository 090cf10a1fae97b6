"""A work unit that a task is handed is compared with what the table's metadata plan, on a real table."""

from __future__ import annotations

import json

import pytest

from cleantail.errors import HeldError
from cleantail.lake.evaluate import evaluate_topic, parsed_unit, planned_unit, require_clock_after
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.log.work_units import WORK_UNIT_JSON, PartitionWork, WorkUnit
from cleantail.rounds.commit_summaries import Commit

HOUR = 3_600_000
WORK = WORK_UNIT_JSON.plain(WorkUnit("r", 0, 0, 1, "b", (PartitionWork(0, 0, 2, 0, 3),)))["partitions"][0]
NOW = 1_700_000_000_000
YAML = "topic: orders\nconfig:\n  segment.ms: 3600000\n"


@pytest.fixture
def orders(project):
    """Offsets 0 and 1 can be cleaned, 2 is in the active segment."""
    from tests.cleantail.orders_table import OrdersTable

    (project / "config" / "topics" / "orders.yaml").write_text(YAML)
    (project / "config" / "defaults.yaml").write_text("platform: {allow_clock: true}")
    table = OrdersTable(project)
    table.append((0, 0, NOW - 3 * HOUR, b"a", b"x"), (0, 1, NOW - 3 * HOUR, b"a", b"y"))
    return table.append((0, 2, NOW - 1000, b"a", b"z"))


def told_of(orders, **asked):
    """The unit of a run's plan, as it comes out of an XCom."""
    plan = evaluate_topic(orders.topic, now_ms=NOW, **asked)
    return json.loads(WORK_UNIT_JSON.text(plan.units[0]))


def planned(orders, told, clock_ms, platform=None):
    return planned_unit(orders.topic.on(platform or orders.platform), parsed_unit(json.dumps(told)), clock_ms)


def test_the_unit_that_evaluate_has_planned_is_the_tables_own_also_after_an_append(orders):
    told = told_of(orders)
    orders.append((0, 3, NOW, b"a", b"w"), (1, 0, NOW, b"a", b"w"))
    unit = planned(orders, told, NOW)
    plain = WORK_UNIT_JSON.plain(unit)
    assert plain == told | {"partitions": plain["partitions"]}
    [work] = unit.partitions
    assert (work.first_dirty_offset, work.end_offset, work.log_end_offset) == (0, 2, 3)


def test_values_of_a_unit_other_than_its_bounds_are_computed_from_the_table(orders):
    told = told_of(orders)
    told["partitions"][0] |= {"bytes": 1 << 60, "hold_offset": 0, "dirty_records": -1}
    [work] = planned(orders, told, NOW).partitions
    assert (work.bytes < 1 << 20, work.hold_offset, work.dirty_records) == (True, None, 2)


def test_a_log_in_quarantine_is_compacted_by_a_run_with_force_and_no_other_bound_is_open(orders):
    held = PartitionState(quarantine=Quarantine(NOW, "compact", "check failed: x", 1, NOW + HOUR))
    orders.set_properties(**{"cleantail.partition.0": held.as_json()})
    assert evaluate_topic(orders.topic, now_ms=NOW).units == ()
    told = told_of(orders, force=True)
    assert planned(orders, told, NOW).partitions[0].end_offset == 2


@pytest.mark.parametrize(
    ("work", "unit", "why"),
    [
        pytest.param(
            {"end_offset": 3}, {}, "should have .*end_offset 2.*but has .*end_offset 3", id="into the active segment"
        ),
        pytest.param({"end_offset": 1}, {}, "end_offset 2", id="an end within the log"),
        pytest.param({"first_dirty_offset": 1}, {}, "should have first_dirty_offset 0", id="past dirty records"),
        pytest.param({"log_start_offset": 2}, {}, "log_start_offset 0", id="retention that is not due"),
        pytest.param({"log_end_offset": 99}, {}, "log_end_offset 3", id="a log end that never was"),
        pytest.param({"partition": 7}, {}, "nothing to do in partition 7", id="no such log"),
        pytest.param({}, {"branch": "main"}, "main is not a branch of its round", id="another branch"),
        pytest.param({}, {"round": "mine"}, "its round is mine", id="another round"),
        pytest.param({}, {"now_ms": NOW - 1}, "its round is", id="another clock"),
        pytest.param({}, {"base_snapshot_id": 1}, "snapshot 1 is not in the history", id="another snapshot"),
        pytest.param({}, {"partitions": []}, "it has no partition", id="nothing"),
        pytest.param({}, {"partitions": [WORK, WORK]}, "or the same partition twice", id="a log twice"),
        pytest.param({}, {"partitions": "0"}, "the work unit cannot be read: partitions", id="no unit"),
    ],
)
def test_a_unit_is_refused(orders, work, unit, why):
    told = told_of(orders)
    forged = told | {"partitions": [told["partitions"][0] | work]} | unit
    with pytest.raises(HeldError, match=f"nothing was compacted: .*{why}.*or a user has changed the XCom"):
        planned(orders, forged, NOW)


def test_a_unit_of_a_table_that_was_dropped_is_refused(orders):
    told = told_of(orders)
    orders.catalog.drop_table("cleantail.orders")
    with pytest.raises(HeldError, match="is not in the history of cleantail.orders"):
        planned(orders, told, NOW)


def test_a_snapshot_that_only_a_branch_has_is_refused(orders):
    told = told_of(orders)
    table = orders.table.refresh()
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_branch(first, "aside").commit()
    table.append(table.scan().to_arrow(), branch="aside")
    aside = table.refresh().metadata.refs["aside"].snapshot_id
    with pytest.raises(HeldError, match=f"snapshot {aside} is not in the history"):
        planned(orders, told | {"base_snapshot_id": aside}, NOW)


def test_a_clock_before_the_snapshot_that_was_read_is_refused_unless_the_platform_allows_it(orders):
    """Tombstones of the round would have their horizon then: the next expiry would take them from every reader."""
    told, [base, *_] = told_of(orders), orders.table.refresh().metadata.snapshots[::-1]
    real = orders.platform.model_copy(update={"allow_clock": False})
    with pytest.raises(HeldError, match=rf"its now_ms {NOW} is .* ms before snapshot {base.snapshot_id} was made"):
        planned(orders, told, base.timestamp_ms, real)
    assert planned(orders, told, base.timestamp_ms).now_ms == NOW


@pytest.mark.parametrize(
    ("now_ms", "made_ms", "clock_ms", "refused"),
    [
        pytest.param(NOW, NOW, NOW, False, id="as the snapshot was made"),
        pytest.param(NOW - HOUR, NOW, NOW, False, id="by a machine whose clock is an hour behind"),
        pytest.param(NOW - HOUR - 1, NOW, NOW, True, id="longer before"),
        pytest.param(NOW - HOUR - 1, NOW, NOW - 1, False, id="a snapshot ahead of the clock"),
    ],
)
def test_a_round_is_planned_by_a_clock_of_at_most_an_hour_before_its_snapshot(now_ms, made_ms, clock_ms, refused):
    made = Commit(7, None, made_ms, "append", {})
    if not refused:
        require_clock_after(made, now_ms, clock_ms)
        return
    with pytest.raises(HeldError, match=f"its now_ms {now_ms} is 3600001 ms before snapshot 7 was made"):
        require_clock_after(made, now_ms, clock_ms)


def test_a_snapshot_of_a_clock_that_is_ahead_says_nothing_of_when_a_round_was_planned(orders):
    base_ms = orders.table.refresh().metadata.snapshots[-1].timestamp_ms
    real = orders.platform.model_copy(update={"allow_clock": False})
    assert planned(orders, told_of(orders), base_ms - 1, real).now_ms == NOW

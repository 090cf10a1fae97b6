"""Which snapshots of a source table a read takes next, in plain numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.codec import FORMAT
from cleantail.errors import SourceError, TableError
from cleantail.log.snapshot_plan import (
    MOST_ONE_BY_ONE,
    SnapshotLag,
    SourceSnapshot,
    SourceTable,
    lost_of,
    plan_snapshots,
    snapshot_lag,
)
from cleantail.log.source_position import (
    GAPS_KEPT,
    PROPERTY_SNAPSHOT_POSITION,
    SnapshotGap,
    SnapshotPosition,
    parse_snapshot_position,
    read_position_of,
    with_source_ends,
)

POSITION = SnapshotPosition("lake", "ns.t", "u", "main", 1, 1_000, {0: 5, 2: 7}, "r", 2_000, version=FORMAT)


def snapshot(number, operation="append", removes=False, parent=None, size=10):
    return SourceSnapshot(number, parent or number - 1, number * 1_000, operation, removes, True, size)


def table(*newest_first, uuid="u", kept=()):
    """`kept`: ids with their parents', or of snapshots that follow each other."""
    parents = kept if isinstance(kept, dict) else {number: number - 1 for number in kept}
    return SourceTable("lake", "ns.t", uuid, "main", tuple(newest_first), parents)


def plan(source, position=POSITION, on_change="fail", most_bytes=1_000):
    return plan_snapshots(position, source, on_change, 9, most_bytes)


@pytest.mark.parametrize(
    ("operation", "summary", "removes", "adds"),
    [
        ("append", {"added-data-files": "1"}, False, True),
        ("append", {}, False, True),
        ("append", {"total-records": "4"}, False, False),
        ("append", {"added-data-files": "1", "added-delete-files": "1"}, True, True),
        ("replace", {"deleted-data-files": "3", "added-data-files": "1"}, False, True),
        ("overwrite", {"added-data-files": "1"}, False, True),
        ("overwrite", {"added-data-files": "1", "deleted-data-files": "1"}, True, True),
        ("overwrite", {"added-position-deletes": "1"}, True, False),
        ("overwrite", {"added-equality-deletes": "1", "added-records": "2"}, True, True),
        ("overwrite", {"added-dvs": "1"}, True, False),
        ("overwrite", {"removed-delete-files": "1", "total-records": "4"}, True, False),
        ("overwrite", {}, True, True),
        ("delete", {"total-records": "4"}, False, False),
        ("delete", {"deleted-records": "2"}, True, False),
        ("", {}, True, True),
        ("append", {"added-files-size": "many"}, False, True),
    ],
)
def test_what_a_snapshot_has_done_is_in_its_summary(operation, summary, removes, adds):
    found = SourceSnapshot.of_summary(2, 1, 0, operation, summary)
    assert (found.removes, found.adds) == (removes, adds)


def test_how_large_files_are_is_what_the_writer_says():
    summary = {"added-files-size": "3", "total-files-size": "70"}
    found = SourceSnapshot.of_summary(2, 1, 0, "append", summary)
    assert (found.added_bytes, found.total_bytes) == (3, 70)


def test_a_first_read_takes_the_newest_snapshot_whole_whatever_came_before_it():
    source = table(replace(snapshot(3, "overwrite", removes=True), total_bytes=70), snapshot(2))
    found = plan(source, position=None)
    assert (found.start_id, found.end.snapshot_id, found.from_offsets, found.is_last) == (None, 3, None, True)
    assert found.bytes == 70


def test_a_table_without_a_snapshot_has_nothing_new_unless_it_had_one():
    assert plan(table(), position=None) is None
    with pytest.raises(SourceError, match="branch main has no snapshot, but was read up to 1; nothing was appended"):
        plan(table())


def test_nothing_is_new_at_the_snapshot_that_was_read_last():
    assert plan(table(snapshot(1, parent=8), snapshot(8))) is None


def test_appends_are_read_together_and_rewrites_passed_over():
    found = plan(table(snapshot(4), snapshot(3, "replace"), snapshot(2), snapshot(1)))
    assert (found.start_id, found.end.snapshot_id, found.appends, found.one_by_one) == (1, 4, True, ())
    found = plan(table(snapshot(2, "replace"), snapshot(1)))
    assert (found.end.snapshot_id, found.appends, found.one_by_one, found.gaps) == (2, False, (), ())


def test_an_overwrite_that_has_only_added_files_is_read_by_itself():
    found = plan(table(snapshot(3), snapshot(2, "overwrite"), snapshot(1)))
    assert (found.appends, found.one_by_one, found.gaps) == (True, (2,), ())


def test_the_last_snapshot_need_not_be_kept_where_the_next_one_names_it():
    assert plan(table(snapshot(2))).end.snapshot_id == 2


def test_a_change_anywhere_is_an_error_before_the_first_portion():
    source = table(
        snapshot(4, "delete", removes=True), snapshot(3, "overwrite", removes=True), snapshot(2), snapshot(1)
    )
    says = r"lake\.ns\.t: snapshot 3 of 1970-01-01 00:00:03.* UTC \(overwrite\) \(and 1 more snapshot\)"
    with pytest.raises(SourceError, match=says):
        plan(source, most_bytes=1)


def test_with_continue_a_change_is_read_for_what_it_has_added_and_noted():
    changed = replace(snapshot(3, "delete", removes=True), adds=False)
    found = plan(table(snapshot(4, "overwrite", removes=True), changed, snapshot(2), snapshot(1)), on_change="continue")
    assert found.one_by_one == (4,)
    assert [(g.kind, g.snapshot_id, g.operation, g.at_ms) for g in found.gaps] == [
        ("change", 3, "delete", 9),
        ("change", 4, "overwrite", 9),
    ]


@pytest.mark.parametrize(("kept", "why"), [((1,), "it was rolled back"), ((), "snapshots were expired before")])
def test_a_history_that_does_not_lead_back_is_an_error_that_says_why(kept, why):
    with pytest.raises(SourceError, match=why):
        plan(table(snapshot(5), snapshot(4), kept=kept))


def test_with_continue_what_lies_beyond_the_offsets_is_read_of_the_newest_snapshot():
    found = plan(table(snapshot(5), snapshot(4)), on_change="continue")
    assert (found.start_id, found.end.snapshot_id, found.from_offsets) == (None, 5, {0: 5, 2: 7})
    assert [(g.kind, g.snapshot_id) for g in found.gaps] == [("history", 1)]


@pytest.mark.parametrize("on_change", ["fail", "continue"])
def test_a_recreated_table_is_never_read_further(on_change):
    with pytest.raises(SourceError, match=r"table lake\.ns\.t was recreated: its uuid is w, .* read from u"):
        plan(table(snapshot(2), uuid="w"), on_change=on_change)
    with pytest.raises(SourceError, match=r"lake\.ns\.t is not the table that the topic was read from, lake\.ns\.old"):
        plan(table(snapshot(2), uuid="w"), position=replace(POSITION, table="ns.old"))


def test_a_portion_ends_before_the_snapshot_that_would_be_too_much():
    source = table(*(snapshot(n, size=400) for n in (5, 4, 3, 2)), snapshot(1))
    found = plan(source)
    assert (found.end.snapshot_id, found.is_last, found.bytes) == (3, False, 800)
    assert plan(source, most_bytes=1).end.snapshot_id == 2
    assert plan(source, replace(POSITION, snapshot_id=3)).is_last


def test_a_commit_has_few_scans_of_single_snapshots():
    source = table(*(snapshot(n, "overwrite", size=0) for n in range(120, 1, -1)), snapshot(1))
    found = plan(source)
    assert (len(found.one_by_one), found.end.snapshot_id, found.is_last) == (
        MOST_ONE_BY_ONE,
        MOST_ONE_BY_ONE + 1,
        False,
    )


def root(number, at_ms):
    return replace(snapshot(number), parent_id=None, at_ms=at_ms)


@pytest.mark.parametrize("on_change", ["fail", "continue"])
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({1: 7, 7: None, 8: None, 9: 8}, id="both histories are kept"),
        pytest.param({1: 7, 8: None, 9: 8}, id="of the one before only its end"),
        pytest.param({8: None, 9: 8}, id="nothing of the one before"),
    ],
)
def test_a_table_that_was_replaced_is_never_read_on(kept, on_change):
    with pytest.raises(SourceError, match=r"was recreated, as CREATE OR REPLACE TABLE does: .* snapshot 8 of"):
        plan(table(snapshot(9), root(8, at_ms=1_001), kept=kept), on_change=on_change)


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        pytest.param((snapshot(9, parent=8), root(8, 999)), {1: 7, 7: 8, 8: None, 9: 8}, id="a common beginning"),
        pytest.param((snapshot(9, parent=8), root(8, 999)), {1: 7, 8: None, 9: 8}, id="of which the way is lost"),
        pytest.param((snapshot(9, parent=8), root(8, 999)), {8: None, 9: 8}, id="and the position"),
        pytest.param((snapshot(9, parent=8), replace(snapshot(8), at_ms=2_000)), {9: 8, 8: 7}, id="no beginning"),
    ],
)
def test_a_table_that_was_rolled_back_or_has_lost_snapshots_is_none_that_was_replaced(source, kept):
    assert plan(table(*source, kept=kept), on_change="continue").from_offsets == {0: 5, 2: 7}


def test_a_snapshot_of_a_plan_that_has_expired_since_is_named():
    source = table(snapshot(4), snapshot(3, "overwrite", removes=True), snapshot(2), snapshot(1), kept=(1, 2, 3, 4))
    found = plan(source, on_change="continue")
    kept = {number: number - 1 for number in (1, 2, 3, 4)}
    for number in kept:
        assert lost_of(found, source, replace(source, kept={k: v for k, v in kept.items() if k != number})) == number
    assert lost_of(found, source, source) is None
    assert lost_of(plan(source, position=None), source, replace(source, kept={4: 3})) is None


def test_rewrites_alone_bring_nothing_to_read():
    assert not plan(table(snapshot(2, "replace"), snapshot(1))).brings_records
    assert plan(table(snapshot(2), snapshot(1))).brings_records
    assert plan(table(snapshot(2, "overwrite"), snapshot(1))).brings_records
    assert plan(table(snapshot(2, "replace")), position=None).brings_records


def test_a_position_is_read_as_it_was_written_and_keeps_the_newest_gaps():
    gaps = tuple(SnapshotGap("change", "lake.ns.t", n, "delete", 1, 2) for n in range(GAPS_KEPT + 5))
    text = replace(POSITION, gaps=gaps).as_json()
    assert parse_snapshot_position(text, "t") == replace(POSITION, gaps=gaps[5:])
    with pytest.raises(
        TableError, match=r"^t: property cleantail\.source\.table cannot be read: version: 2 is not allowed"
    ):
        parse_snapshot_position(text.replace('"version": 1', '"version": 2').replace('"version":1', '"version":2'), "t")
    with pytest.raises(TableError, match="version: Field required"):
        parse_snapshot_position(text.replace(',"version":1', ""), "t")


def test_log_ends_are_those_of_the_position_and_kafkas_where_both_are_there():
    properties = {PROPERTY_SNAPSHOT_POSITION: POSITION.as_json()}
    found = read_position_of(properties, "t")
    assert {p: s.log_end_offset for p, s in with_source_ends({}, found).items()} == {0: 5, 2: 7}
    kafka = '{"cluster_id":"c","isolation":"x","next_offsets":{"0":9},"read_at_ms":1,"read_id":"r","topic":"t","topic_id":"i","version":1}'
    assert read_position_of(properties | {"cleantail.source.kafka": kafka}, "t").next_offsets == {0: 9}


def test_a_gap_is_reported_only_for_its_lowest_partition():
    gap = SnapshotGap("history", "lake.ns.t", 1, "", 1, 2)
    position = replace(POSITION, gaps=(gap,))
    assert (position.gaps_of(0), position.gaps_of(2)) == ((gap,), ())


@pytest.mark.parametrize(
    ("position", "history", "lag"),
    [
        pytest.param(POSITION, [snapshot(1)], SnapshotLag(0), id="nothing new"),
        pytest.param(POSITION, [snapshot(3), snapshot(2), snapshot(1)], SnapshotLag(2, 2_000), id="two appends"),
        pytest.param(
            POSITION, [snapshot(3), snapshot(2, "replace")], SnapshotLag(1, 3_000), id="a rewrite brings none"
        ),
        pytest.param(
            POSITION, [replace(snapshot(2, "delete"), adds=False), snapshot(1)], SnapshotLag(0), id="nothing added"
        ),
        pytest.param(None, [snapshot(2), snapshot(1)], SnapshotLag(2, 1_000), id="before the first read"),
        pytest.param(None, [], SnapshotLag(0), id="no snapshot"),
    ],
)
def test_the_lag_is_the_snapshots_that_a_read_would_bring_and_the_age_of_the_oldest(position, history, lag):
    assert snapshot_lag(position, table(*history), "fail", 9) == lag


def test_a_lag_says_why_the_next_read_would_stop_and_that_is_no_append():
    lag = snapshot_lag(POSITION, table(snapshot(2, "overwrite", removes=True), snapshot(1)), "fail", 9)
    assert (lag.behind, lag.text) == (1, "1 snapshot")
    assert "removed or changed records" in lag.problem and "nothing was appended" not in lag.problem
    gone = snapshot_lag(POSITION, table(snapshot(9), snapshot(8)), "fail", 9)
    assert gone.behind == 0 and gone.problem

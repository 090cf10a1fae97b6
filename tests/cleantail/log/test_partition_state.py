"""The state of a log in a table property, and the ledger of horizons (semantics.md 1.5, 3.2, 3.3)."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleantail.config.unholdable import ERASED
from cleantail.errors import TableError
from cleantail.log.partition_state import (
    PROPERTY_FORGOTTEN,
    PROPERTY_INGESTED,
    UNTIMED,
    Horizon,
    LeftOut,
    PartitionState,
    Quarantine,
    Reconciled,
    Rewritten,
    aged_marks,
    ingested_files,
    left_out_of,
    parse_partition_state,
    replay_warnings,
    spans_with_tombstones,
    states_of_properties,
    with_late_tombstones,
    with_left_out,
    with_round,
    without_swept,
)
from tests.cleantail.kernel_builders import horizon_of

FULL = PartitionState(
    checkpoint=10,
    log_start_offset=2,
    log_end_offset=30,
    horizons=(Horizon(5, 100, 3), Horizon(10, 200)),
    known_sequence_number=7,
    head_tombstones=4,
    last_round_ms=99,
    earlier_rounds=((20, 6), (30, 5)),
    guards=3,
    quarantine=Quarantine(1, "compact", "check failed: a", 2, 16_001),
)


# ---- as text


@pytest.mark.parametrize("state", [PartitionState(), FULL], ids=["before the first round", "full"])
def test_a_state_survives_its_text(state):
    assert parse_partition_state(state.as_json(), "t") == state


def test_the_ledger_ends_where_its_last_entry_does():
    assert PartitionState(horizons=(Horizon(10, 500), Horizon(20, 700))).ledger_end_offset == 20
    assert PartitionState().ledger_end_offset == 0


def test_the_text_is_one_line_with_sorted_keys():
    assert PartitionState(checkpoint=5, horizons=(Horizon(5, 9),)).as_json() == (
        '{"checkpoint":5,"earlier_rounds":[],"guards":0,"head_tombstones":0,"horizons":[{"end_offset":5,"horizon_ms":9,"swept_to":0,"tombstones":0}],'
        '"known_sequence_number":0,"last_round_ms":null,"log_end_offset":null,"log_start_offset":null,'
        '"proven_ms":null,"quarantine":null,"retained_from":null,"version":1}'
    )


@pytest.mark.parametrize(
    ("below", "spans"),
    [
        pytest.param(100, [(0, 10), (20, 30)], id="entries that had tombstones"),
        pytest.param(25, [(0, 10), (20, 25)], id="as far as they lie below"),
        pytest.param(20, [(0, 10)], id="none from there on"),
    ],
)
def test_tombstones_are_sought_where_the_ledger_counted_some(below, spans):
    ledger = (Horizon(10, 5, 2), Horizon(20, 6, 0), Horizon(30, 7, 1))
    assert spans_with_tombstones(ledger, below) == spans


def _changed(**changes):
    return json.dumps(json.loads(FULL.as_json()) | changes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("{", "Invalid JSON", id="not JSON"),
        pytest.param("[]", "", id="a list"),
        pytest.param("1", "", id="a number"),
        pytest.param("{}", "version: Field required", id="empty object"),
        pytest.param(
            _changed(version=2),
            "version: 2 is not allowed: this version of Cleantail reads format 1; nothing was changed. Install",
            id="a later version",
        ),
        pytest.param(_changed(version=True), "version: true is not allowed", id="true as the version"),
        pytest.param(_changed(version=1.0), "version: 1.0 is not allowed", id="a float as the version"),
        pytest.param(_changed(sheep=1), "sheep", id="unknown field"),
        pytest.param('{"version":1,"quarantine":null}', "horizons", id="no horizons"),
        pytest.param('{"version":1,"horizons":[]}', "quarantine", id="no quarantine"),
        pytest.param(_changed(horizons=[{"end_offset": 1}]), "horizon_ms", id="horizon without a time"),
        pytest.param(
            _changed(horizons=[{"end_offset": 1, "horizon_ms": "2"}]), "horizon_ms", id="horizon time as text"
        ),
        pytest.param(_changed(horizons=[1]), "horizons.0: Input should be", id="horizon is a number"),
        pytest.param(
            _changed(quarantine={"since_ms": 1, "kind": None}),
            "quarantine.kind: Input should be a valid string",
            id="kind is null",
        ),
        pytest.param(_changed(quarantine={"since_ms": 1}), "reason", id="half a quarantine"),
        pytest.param(_changed(checkpoint="10"), "checkpoint: Input should be a valid integer", id="checkpoint as text"),
        pytest.param(_changed(checkpoint=1.5), "checkpoint: Input should be a valid integer", id="checkpoint as float"),
        pytest.param(
            _changed(head_tombstones=True), "head_tombstones: Input should be a valid integer", id="count as bool"
        ),
        pytest.param(
            _changed(quarantine={"since_ms": 1, "kind": "expire", "reason": 2, "attempts": 1, "retry_at_ms": 1}),
            "quarantine.reason: Input should be a valid string",
            id="reason is a number",
        ),
    ],
)
def test_an_invalid_partition_state_is_refused_with_its_table_and_property(text, why):
    with pytest.raises(TableError, match=rf"^t: property p is not a partition state of version 1: .*{re.escape(why)}"):
        parse_partition_state(text, "t: property p")


def test_nothing_of_a_refused_text_is_repeated():
    with pytest.raises(TableError, match=r"^t is not a partition state of version 1") as error:
        parse_partition_state(_changed(checkpoint="secret"), "t")
    assert "secret" not in str(error.value)


STORED = (
    '{"checkpoint":10,"earlier_rounds":[[20,6],[30,5]],"guards":3,"head_tombstones":4,"horizons":[{"end_offset":5,'
    '"horizon_ms":100,"swept_to":0,"tombstones":3},{"end_offset":10,"horizon_ms":200,"swept_to":0,"tombstones":0}],'
    '"known_sequence_number":7,"last_round_ms":99,"log_end_offset":30,"log_start_offset":2,"proven_ms":null,'
    '"quarantine":{"attempts":2,"branch":"","kind":"compact","reason":"check failed: a","retry_at_ms":16001,'
    '"since_ms":1},"retained_from":null,"version":1}'
)


def test_the_text_of_a_stored_state_does_not_change():
    assert parse_partition_state(STORED, "t") == FULL
    assert FULL.as_json() == STORED


def test_a_stored_state_without_newer_fields_has_their_defaults():
    text = (
        '{"checkpoint":5,"head_tombstones":0,"horizons":[{"end_offset":5,"horizon_ms":9,"tombstones":1}],'
        '"known_sequence_number":3,"last_round_ms":1,"log_end_offset":6,"log_start_offset":0,"quarantine":'
        '{"attempts":1,"kind":"compact","reason":"check failed: a","retry_at_ms":2,"since_ms":1},"version":1}'
    )
    held = Quarantine(1, "compact", "check failed: a", 1, 2)
    ledger = (Horizon(5, 9, 1),)
    assert parse_partition_state(text, "t") == PartitionState(5, 0, 6, ledger, 3, 0, 1, quarantine=held)


def test_the_states_of_a_table_are_those_properties_that_carry_the_prefix():
    properties = {
        "cleantail.topic": "orders",
        "cleantail.partition.0": PartitionState(checkpoint=1).as_json(),
        "cleantail.partition.12": PartitionState(checkpoint=2).as_json(),
        "write.format": "parquet",
    }
    assert {p: s.checkpoint for p, s in states_of_properties(properties, "t").items()} == {0: 1, 12: 2}


def test_a_broken_state_is_named_by_table_and_property():
    with pytest.raises(TableError, match=r"^a\.b: property cleantail\.partition\.3 is not"):
        states_of_properties({"cleantail.partition.3": "x"}, "a.b")


def test_the_largest_partition_number_of_kafka_is_one():
    assert set(states_of_properties({"cleantail.partition.2147483647": PartitionState().as_json()}, "t")) == {
        2147483647
    }


@pytest.mark.parametrize("number", ["", "x", "-1", "1.0", " 1", "²", "12345678901"])
def test_a_property_without_a_partition_number_is_refused(number):
    with pytest.raises(
        TableError, match=r"^a\.b: property cleantail\.partition\..* does not end in a partition number"
    ):
        states_of_properties({f"cleantail.partition.{number}": PartitionState().as_json()}, "a.b")


# ---- the ledger

LEDGER = (Horizon(10, 100, 1), Horizon(20, 200, 2))


@pytest.mark.parametrize(
    ("end_offset", "added"),
    [
        pytest.param(19, (), id="below the last round"),
        pytest.param(20, (), id="where the last round ended"),
        pytest.param(21, (Horizon(21, 300),), id="beyond the last round"),
    ],
)
def test_a_round_adds_a_horizon_and_moves_none(end_offset, added):
    assert with_round(LEDGER, end_offset, 300) == (*LEDGER, *added)


def test_the_first_round_starts_the_ledger():
    assert with_round((), 5, 300) == (Horizon(5, 300),)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(0, (Horizon(1, 999), *LEDGER), id="first offset of the log"),
        pytest.param(1, (Horizon(1, 100, 1), Horizon(2, 999), *LEDGER), id="second offset of the log"),
        pytest.param(9, (Horizon(9, 100, 1), Horizon(10, 999), LEDGER[1]), id="last offset of a round"),
        pytest.param(10, (LEDGER[0], Horizon(11, 999), LEDGER[1]), id="first offset of a round"),
        pytest.param(15, (LEDGER[0], Horizon(15, 200, 2), Horizon(16, 999), LEDGER[1]), id="inside a round"),
        pytest.param(19, (LEDGER[0], Horizon(19, 200, 2), Horizon(20, 999)), id="last offset of the ledger"),
        pytest.param(20, LEDGER, id="above the ledger"),
    ],
)
def test_a_late_tombstone_gets_a_horizon_of_its_own(offset, expected):
    assert with_late_tombstones(LEDGER, [offset], 999) == expected


def test_neighbouring_late_tombstones_share_an_entry():
    assert with_late_tombstones(LEDGER, [6, 4, 5], 999) == (Horizon(4, 100, 1), Horizon(7, 999), *LEDGER)


def test_late_tombstones_with_a_gap_do_not_share_an_entry():
    ledger = with_late_tombstones(LEDGER, [4, 6], 999)
    assert ledger == (Horizon(4, 100, 1), Horizon(5, 999), Horizon(6, 100, 1), Horizon(7, 999), *LEDGER)


def test_an_entry_is_shared_only_where_the_horizon_is_the_same():
    """The tombstone at 10 is the first of its round, and the round before it has another horizon."""
    assert with_late_tombstones((Horizon(10, 999), Horizon(20, 200)), [10], 999) == (Horizon(11, 999), Horizon(20, 200))
    assert with_late_tombstones((Horizon(10, 998), Horizon(20, 200)), [10], 999) == (
        Horizon(10, 998),
        Horizon(11, 999),
        Horizon(20, 200),
    )


def test_a_late_tombstone_that_was_already_given_this_horizon_changes_nothing():
    once = with_late_tombstones(LEDGER, [5], 999)
    assert with_late_tombstones(once, [5], 999) == once


ledgers = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5)), max_size=5).map(
    lambda steps: tuple(Horizon(sum(s for s, _ in steps[: i + 1]), ms) for i, (_, ms) in enumerate(steps))
)


@given(ledgers, st.lists(st.integers(0, 45), max_size=8), st.integers(0, 6))
def test_late_tombstones_move_their_own_horizons_and_no_other(ledger, offsets, horizon_ms):
    after = with_late_tombstones(ledger, offsets, horizon_ms)
    ends = [h.end_offset for h in after]
    assert ends == sorted(set(ends))
    assert all(end > 0 for end in ends)
    for offset in range(45):
        before = horizon_of(ledger, offset)
        found = horizon_of(after, offset)
        expected = horizon_ms if before and offset in offsets else before and before.horizon_ms
        assert (found and found.horizon_ms) == expected


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        pytest.param((), (), id="empty"),
        pytest.param((0,), (0,), id="the last stays"),
        pytest.param((0, 0), (1,), id="only the last stays"),
        pytest.param((1, 0), (0, 1), id="one with a tombstone stays"),
        pytest.param((0, 1, 0, 2), (1, 3), id="each by its own count"),
    ],
)
def test_entries_without_a_live_tombstone_go_all_but_the_last(counts, kept):
    ledger = tuple(Horizon(10 * (n + 1), n, count) for n, count in enumerate(counts))
    assert without_swept(ledger) == tuple(ledger[n] for n in kept)


def test_a_late_tombstone_with_the_horizon_of_its_entry_changes_nothing():
    ledger = (Horizon(10, 5, 2),)
    assert with_late_tombstones(ledger, [3], 5) == ledger


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(3, (Horizon(3, 5, 0, 6), Horizon(4, 5), Horizon(10, 5, 0, 6)), id="swept: a sweep comes again"),
        pytest.param(5, (Horizon(5, 5, 0, 6), Horizon(6, 5), Horizon(10, 5, 0, 6)), id="the last swept offset"),
        pytest.param(6, (Horizon(10, 5, 0, 6),), id="the first that is not swept"),
    ],
)
def test_a_late_tombstone_where_a_sweep_has_been_needs_an_entry_though_the_horizon_is_the_same(offset, expected):
    assert with_late_tombstones((Horizon(10, 5, 0, 6),), [offset], 5) == expected


def test_a_late_tombstone_at_the_last_but_one_offset_leaves_the_last_its_horizon():
    assert with_late_tombstones((Horizon(10, 5),), [8], 9) == (Horizon(8, 5), Horizon(9, 9), Horizon(10, 5))


# ---- what else a table remembers of a log


@pytest.mark.parametrize(
    ("end_offset", "at_ms", "expected"),
    [(20, 500, True), (19, 499, True), (21, 500, False), (20, 501, False)],
    ids=["exactly", "less and earlier", "beyond its end", "after it"],
)
def test_a_reconciliation_counts_up_to_its_end_and_its_time(end_offset, at_ms, expected):
    assert PartitionState(reconciled=Reconciled(20, 500)).is_reconciled(end_offset, at_ms) is expected
    assert not PartitionState().is_reconciled(0, 0)


@pytest.mark.parametrize(
    ("reason", "failed", "unanswered"),
    [
        ("check failed: a", True, False),
        ("not approved in time", False, True),
        ("rejected by anna: not approved in time", False, False),
    ],
)
def test_a_quarantine_is_of_a_failed_check_or_of_an_answer_or_of_none(reason, failed, unanswered):
    held = Quarantine(1, "compact", reason, 1, 2)
    assert (held.check_failed, held.unanswered) == (failed, unanswered)


@pytest.mark.parametrize(("at_ms", "counts"), [(None, True), (1, True), (0, False)])
def test_a_rewritten_history_is_reported_for_a_day_after_a_run_noted_it(at_ms, counts):
    assert Rewritten(7, at_ms).counts_at(86_400_000) is counts


@pytest.mark.parametrize(("snapshot_id", "what"), [(7, "snapshot 7"), (0, "the last round"), (-1, "snapshot -1")])
def test_a_rewritten_history_names_the_snapshot_that_is_gone(snapshot_id, what):
    assert f"another program took {what} out of main" in Rewritten(snapshot_id).text


# ---- records that the table cannot hold

LEFT = LeftOut(2, 5, 5, 1, "not decoded", "drop", 9)
WHY = "kcat could not decode key or value, or read Avro's null"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (LEFT, f"1 record that the table cannot hold (offset 5: {WHY}), dropped"),
        (
            replace(LEFT, last_offset=6, records=2, policy="quarantine"),
            f"2 records that the table cannot hold (offsets 5 to 6: {WHY}), moved to the side table",
        ),
        (replace(LEFT, reason=ERASED), "1 record of erased keys left out (offset 5)"),
    ],
)
def test_records_that_were_left_out_are_reported_with_offsets_reason_and_policy(entry, text):
    assert entry.text == f"partition 2: {text}"


def test_records_of_erased_keys_are_counted_apart():
    assert [replace(LEFT, reason=reason).counted_as for reason in ("not decoded", ERASED)] == ["unholdable", ERASED]


def test_records_that_are_left_out_again_are_listed_once():
    others = [replace(LEFT, **change) for change in ({"partition": 3}, {"first_offset": 4}, {"reason": "timestamp"})]
    before = with_left_out({}, "t", [LEFT, *others])
    again, longer = replace(LEFT, at_ms=10), replace(LEFT, last_offset=6)
    assert left_out_of(with_left_out(before, "t", iter([again, longer])), "t") == (*others, again, longer)
    assert (with_left_out(before, "t", ()), left_out_of({}, "t")) == ({}, ())


def test_the_property_keeps_the_newest_two_hundred_entries():
    entries = tuple(replace(LEFT, first_offset=n, last_offset=n) for n in range(201))
    assert left_out_of(with_left_out(with_left_out({}, "t", entries[:2]), "t", entries[2:]), "t") == entries[1:]


def test_a_log_has_the_records_that_were_left_out_of_it_also_without_a_state():
    entries = [LEFT, replace(LEFT, first_offset=7, last_offset=7), replace(LEFT, partition=0)]
    known = {"cleantail.partition.2": PartitionState(checkpoint=1).as_json()}
    assert states_of_properties(known | with_left_out({}, "t", entries), "t") == {
        2: PartitionState(checkpoint=1, left_out=(entries[0], entries[1])),
        0: PartitionState(left_out=(entries[2],)),
    }


# ---- marks of source files


def marks_of(**values):
    return {f"{PROPERTY_INGESTED}{name}": value for name, value in values.items()}


def test_the_marks_of_a_table_are_the_digests_of_its_files():
    assert ingested_files(marks_of(a="5", b=UNTIMED) | {"other": "7"}) == {"a", "b"}


def test_a_mark_goes_after_its_retention_unless_its_file_is_still_there():
    properties = marks_of(old="899", edge="900", present="10", older="5") | {"other": "7"}
    changed, gone = aged_marks(properties, {"present"}, now_ms=1000, retention_ms=100)
    assert gone == [f"{PROPERTY_INGESTED}{name}" for name in ("old", "older")]
    assert changed == {PROPERTY_FORGOTTEN: "899"}
    assert aged_marks(properties | {PROPERTY_FORGOTTEN: "950"}, {"present"}, 1000, 100)[0] == {
        PROPERTY_FORGOTTEN: "950"
    }


def test_a_mark_of_an_earlier_version_gets_the_time_of_the_first_ingestion_that_sees_it():
    properties = marks_of(early=UNTIMED, strange="x", young="999")
    changed, gone = aged_marks(properties, (), now_ms=1000, retention_ms=100)
    assert (changed, gone) == (marks_of(early="1000", strange="1000"), [])


def test_a_replay_is_reported_once_marks_were_removed():
    shared = {3: (10, 20)}
    assert replay_warnings({}, shared) == ()
    (warning,) = replay_warnings({PROPERTY_FORGOTTEN: "0"}, shared)
    assert warning.startswith("partition 3: the table already has records between offsets 10 and 19. ")
    assert "up to 1970-01-01 00:00:00 is not recognized" in warning
    assert replay_warnings({PROPERTY_FORGOTTEN: "0"}, {}) == ()

"""Which commits a rollback undoes and which it keeps, and what the states become: from histories as tables."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import pytest

from cleantail.errors import CleantailError, TableError
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.rounds.commit_summaries import Commit, packed, unpacked, writer_entries
from cleantail.rounds.rollback_plan import answer_to, plan_rollback, published_rounds, restored, rollbacks

S0 = PartitionState(checkpoint=4, log_end_offset=9, horizons=(Horizon(4, 100, 2, 1),), known_sequence_number=3)
S1 = PartitionState(checkpoint=8, log_end_offset=9, known_sequence_number=5)


def commit(snapshot_id, iceberg, /, **summary):
    entries = {f"cleantail.{name}": value for name, value in summary.items()}
    return Commit(snapshot_id, snapshot_id - 1 or None, 1000 * snapshot_id, iceberg, entries)


def ingest(snapshot_id):
    return commit(snapshot_id, "append", operation="ingest")


def a_round(snapshot_id, states, after=MappingProxyType({}), kind="compact", iceberg="delete"):
    return commit(snapshot_id, iceberg, operation=kind, round=f"r{snapshot_id}", before=packed(states, after))


def newest_first(*commits):
    return list(reversed(commits))


HISTORY = newest_first(
    ingest(1), a_round(2, {0: None}), ingest(3), a_round(4, {0: S0, 1: None}, kind="expire"),
    commit(5, "replace", operation="reclaim"), commit(6, "append"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("to", "target", "undone", "appends", "rewrites", "states"),
    [
        pytest.param(None, 3, [4], (6,), 1, {0: S0, 1: None}, id="before the last round"),
        pytest.param(3, 3, [4], (6,), 1, {0: S0, 1: None}, id="the same by its id"),
        pytest.param(2, 2, [4], (3, 6), 1, {0: S0, 1: None}, id="to a round is after it"),
        pytest.param(1, 1, [4, 2], (3, 6), 1, {0: None, 1: None}, id="the earliest round knows the state"),
    ],
)
def test_rounds_and_rewrites_after_the_target_go_and_appends_stay(to, target, undone, appends, rewrites, states):
    plan = plan_rollback(HISTORY, to, "c.orders", {})
    assert (plan.to_snapshot_id, plan.to_at_ms) == (target, 1000 * target)
    assert [u.snapshot_id for u in plan.undone] == undone
    assert (plan.appends, plan.rewrites, plan.states) == (appends, rewrites, states)


def test_what_undone_reclaims_had_freed_is_taken_again():
    sizes = {"removed-files-size": "900", "added-files-size": "200"}
    kept, undone = (
        replace(commit(n, "replace", operation="reclaim"), summary={"cleantail.operation": "reclaim"} | sizes)
        for n in (3, 5)
    )
    foreign = replace(commit(6, "replace"), summary=sizes)
    history = newest_first(ingest(1), a_round(2, {}), kept, a_round(4, {}), undone, foreign)
    assert plan_rollback(history, None, "c.orders", {}).freed_bytes == 700
    assert plan_rollback(history, 1, "c.orders", {}).freed_bytes == 1400


def test_what_else_could_be_undone_is_named_with_where_that_goes():
    assert [(u.round, u.before_snapshot_id) for u in published_rounds(HISTORY)] == [("r4", 3), ("r2", 1)]
    assert [u.round for u in plan_rollback(HISTORY, None, "c.orders", {}).earlier] == ["r2"]
    assert published_rounds(HISTORY[:-1]) == published_rounds(HISTORY)[:1]  # before r2 has expired


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(commit(5, "delete"), id="somebody else's delete"),
        pytest.param(commit(5, "overwrite"), id="somebody else's overwrite"),
        pytest.param(commit(5, "delete", operation="compact", round="r5"), id="a round without a list of partitions"),
    ],
)
def test_no_round_is_promised_that_a_rollback_refuses(between):
    history = newest_first(ingest(1), a_round(2, {0: None}), ingest(3), a_round(4, {0: S0}), between, a_round(6, {}))
    assert [u.round for u in published_rounds(history)] == ["r6"]
    for found in published_rounds(history):
        assert plan_rollback(history, found.before_snapshot_id, "c.orders", {}).undone[-1] == found
    with pytest.raises(TableError, match="snapshot 5"):
        plan_rollback(history, 3, "c.orders", {})


def test_the_names_of_what_rollbacks_have_undone_are_in_their_summaries():
    record = Commit(7, 3, 7000, "append", {"cleantail.operation": "rollback", "cleantail.undone": "r4,r2"})
    assert rollbacks([record, *HISTORY]) == ((7000, ("r4", "r2")),)


def test_a_second_rollback_goes_a_round_further_and_forgets_the_record_of_the_first():
    record = Commit(7, 3, 7000, "append", {"cleantail.operation": "rollback"})
    again = [Commit(8, 7, 8000, "append", {}), record, *HISTORY[3:]]
    plan = plan_rollback(again, None, "c.orders", {})
    assert ([u.round for u in plan.undone], plan.to_snapshot_id, plan.appends) == (["r2"], 1, (3, 8))


@pytest.mark.parametrize(
    ("history", "to", "error", "message"),
    [
        ([], None, CleantailError, "no published round is in the kept history"),
        (newest_first(ingest(1)), None, CleantailError, "nothing to undo"),
        (HISTORY, 6, CleantailError, "no round was published after snapshot 6"),
        (HISTORY, 99, TableError, "snapshot 99 is not in the table's history"),
        (HISTORY[:-1], 1, TableError, "snapshot 1 is not in the table's history"),
        (newest_first(a_round(2, {})), None, TableError, "snapshot before round r2 has expired"),
        (newest_first(ingest(1), a_round(2, {}), commit(3, "delete")), None, TableError, "3 of .* is not Cleantail's"),
        (newest_first(ingest(1), a_round(2, {}), commit(3, "overwrite")), 1, TableError, "is not Cleantail's"),
        (
            newest_first(ingest(1), commit(2, "delete", operation="compact", round="r2")),
            None,
            TableError,
            "lacks summary entry cleantail.before",
        ),
        (
            newest_first(ingest(1), commit(2, "delete", operation="compact", round="r2", before="?")),
            None,
            TableError,
            "cleantail.before of snapshot 2 cannot be read",
        ),
    ],
    ids=range(10),
)
def test_what_cannot_be_undone_is_refused_with_its_reason(history, to, error, message):
    with pytest.raises(error, match=message):
        plan_rollback(history, to, "c.orders", {})


def test_a_round_without_deletes_counts_as_one_whatever_iceberg_calls_it():
    history = newest_first(ingest(1), a_round(2, {0: None}, iceberg="overwrite"))
    assert [u.round for u in plan_rollback(history, None, "c.orders", {}).undone] == ["r2"]


@pytest.mark.parametrize("states", [{}, {0: None, 7: S0}, dict.fromkeys(range(300), S1)], ids=["none", "two", "many"])
def test_states_come_back_as_they_were_packed(states):
    text = packed(states, {})
    assert unpacked(text, {}, "here") == states
    assert len(text) < 60 + 12 * len(states) + 400 * (len(states) < 10)


PACKED_BEFORE = (
    "eNqNkt1uwjAMhV9lynUv0nYwwatQFIXWhYjWKYkL2lDffU4biZVVY5f+TmIf/9yFFFtxL0R5gvLcWYNUiG0qk0KAdo0Bp5ztsfJM"
    "d7tMJut9sstlstrv+cmx126Ucg5OoCtFtj14sgiBvgdqnfmyOP7nMoCVsnXtIZRZPXTV+rFuKOxv0BFnYhDCWcp8SJ6zjGZnabKX"
    "aeQQ7J/R3lB5uPSAJSjs2wM4Vj9Ya7SnqfUp52YToD2qWe1cRupJO3rwjHHn7BWiI+ybhtGF56WRDAIz7kMTQduRjz8OLJYnDgpR"
    "iODPYDVGpW07XdIIHWhvccJhZ2+1Ng1U2zcdZXKfSlMc6FrKNMzChAYnNEyvNLuoVO1s+/B3BefNmDwdRCKyKIh08UgWb2R2FnLx"
    "LOTTWfy1Crmwimj21zJ+8Kd1ROXVRiL7z3CGb4CjHJM="
)


def test_states_that_the_version_before_packed_are_read():
    held = Quarantine(1, "compact", "check failed: a", 2, 16_001)
    full = PartitionState(
        10, 2, 30, (Horizon(5, 100, 3), Horizon(10, 200)), 7, 4, 99, None, None, held, ((20, 6), (30, 5)), 3
    )
    assert unpacked(PACKED_BEFORE, {}, "here") == {0: full, 2: None, 10: PartitionState(checkpoint=1)}


def ledger(ends, dropped=(), fewer=()):
    """A ledger with a tombstone or more in each run of a day."""
    entries = [Horizon(61 * end, 86_400_000 + 900_317 * end, 9 - (end in fewer)) for end in ends if end not in dropped]
    return PartitionState(61 * max(ends), 0, 61 * max(ends) + 5, tuple(entries), max(ends), 3, 900_317 * max(ends))


AGED = [
    ledger(range(97)),
    ledger(range(98), fewer=(4, 96)),  # a compaction
    ledger(range(98), dropped=(0, 1), fewer=(4, 96)),  # an expiry
    ledger(range(99), dropped=(0, 1, 4, 96)),
]


def test_a_long_ledger_comes_back_from_the_states_after_the_rounds():
    rounds = [a_round(n + 2, {0: before, 1: S0}, {0: after}) for n, (before, after) in enumerate(pairwise(AGED))]
    history = newest_first(ingest(1), *rounds)
    for to, before in enumerate(AGED[:-1], start=1):
        assert plan_rollback(history, to, "c.orders", {0: AGED[-1], 1: S1}).states == {0: before, 1: S0}
    assert all(len(commit.summary["cleantail.before"]) < 700 for commit in rounds)


def test_a_rollback_by_the_ledger_of_others_is_refused():
    history = newest_first(ingest(1), a_round(2, {0: AGED[0]}, {0: AGED[1]}))
    for now in ({0: AGED[2]}, {0: PartitionState()}, {}):
        with pytest.raises(TableError, match="snapshot 2, partition 0: after this round another program changed"):
            plan_rollback(history, None, "c.orders", now)


def test_a_state_is_put_back_but_for_log_end_and_quarantine():
    held = Quarantine(1, "compact", "check failed", 2, 9)
    now = PartitionState(checkpoint=20, log_end_offset=20, quarantine=held, proven_ms=5)
    back = restored(S0, now)
    assert (back.checkpoint, back.horizons, back.known_sequence_number) == (4, S0.horizons, 3)
    assert (back.log_end_offset, back.quarantine, back.proven_ms) == (20, held, None)
    assert restored(None, now) == PartitionState(log_end_offset=20, quarantine=held)
    assert restored(None, PartitionState()) == PartitionState()


def test_a_request_is_answered_once():
    record = Commit(7, 3, 7000, "append", {"cleantail.operation": "rollback", "cleantail.request": "run-1"})
    assert answer_to([record, *HISTORY[3:]], "run-1") == record
    assert answer_to([record, *HISTORY[3:]], "run-2") is None
    assert answer_to([replace(record, summary={"cleantail.operation": "rollback"})], "") is None


def test_a_rollback_keeps_summary_entries_of_writers_and_drops_icebergs():
    summary = {
        "kafka.connect.offsets.t": "{}",
        "cleantail.operation": "ingest",
        "added-records": "4",
        "engine-name": "x",
    }
    assert writer_entries(summary) == {"kafka.connect.offsets.t": "{}", "cleantail.operation": "ingest"}


def test_a_round_that_registered_files_once_is_undone_with_its_parts():
    once = [commit(n, "replace", operation="registered once") for n in (3, 4)]
    history = newest_first(ingest(1), a_round(2, {0: None}), *once, a_round(5, {0: S0}), commit(6, "append"))
    plan = plan_rollback(history, None, "c.orders", {})
    assert (plan.to_snapshot_id, plan.rewrites, plan.appends) == (2, 0, (6,))
    assert [u.before_snapshot_id for u in published_rounds(history)] == [2, 1]
    with pytest.raises(TableError, match="snapshot 4 is not in the table's history"):
        plan_rollback(history, 4, "c.orders", {})


def test_no_rollback_makes_a_table_unreadable_again():
    history = newest_first(ingest(1), a_round(2, {0: None}), commit(3, "delete", operation="mend"))
    with pytest.raises(TableError, match="snapshot 3 of .* repaired deletion vectors"):
        plan_rollback(history, None, "c.orders", {})


def test_no_rollback_brings_deletes_back_that_no_round_can_read():
    history = newest_first(ingest(1), a_round(2, {0: None}), commit(3, "delete", operation="convert deletes"))
    with pytest.raises(
        TableError, match="snapshot 3 of .* converted equality deletes, with which no round can read the table"
    ):
        plan_rollback(history, None, "c.orders", {})

"""Which ingestion is meant, whether it may be taken back and why not, and what that does: from histories as tables."""

from __future__ import annotations

import pytest

from cleantail.errors import CleantailError, TableError
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.rounds.commit_summaries import Commit, packed
from cleantail.rounds.past_ingestions import (
    IngestionChoice,
    KafkaRead,
    SourceFile,
    Sources,
    ingestions,
    lowered,
    plan_undo,
    undone_before,
    without_ingestion,
)

LAST = IngestionChoice("last")


def commit(snapshot_id, iceberg="append", /, parent=..., **summary):
    entries = {f"cleantail.{name}": value for name, value in summary.items()} | {"added-records": "3"}
    parent_id = (snapshot_id - 1 or None) if parent is ... else parent
    return Commit(snapshot_id, parent_id, 1000 * snapshot_id, iceberg, entries)


def sources(*names):
    return Sources(tuple(SourceFile(f"sha of {name}", name) for name in names), {0: None, 1: 7}).packed()


def ingest(snapshot_id, *names, **more):
    return commit(snapshot_id, operation="ingest", sources=sources(*names), **more)


def a_round(snapshot_id, iceberg="delete"):
    return commit(snapshot_id, iceberg, operation="compact", round=f"r{snapshot_id}", before=packed({0: None}, {}))


def undone(snapshot_id, ingestion, *names):
    record = {"operation": "rollback", "undone": f"ingestion {ingestion}", "by": "anna", "sources": sources(*names)}
    return commit(snapshot_id, **record)


def named(text):
    return IngestionChoice(text, name=text)


def by_id(snapshot_id):
    return IngestionChoice(str(snapshot_id), snapshot_id=snapshot_id)


def newest_first(*commits):
    return list(reversed(commits))


HISTORY = newest_first(ingest(1, "a"), a_round(2), ingest(3, "b"), commit(4), commit(5, "replace"), ingest(6, "c", "d"))


@pytest.mark.parametrize(
    ("wanted", "taken", "target", "appends", "rewrites"),
    [
        pytest.param(LAST, 6, 5, (), 0, id="the newest"),
        pytest.param(by_id(6), 6, 5, (), 0, id="several files, by the commit"),
        pytest.param(by_id(3), 3, 2, (4, 6), 1, id="appends since stay, a rewrite goes"),
        pytest.param(named("b"), 3, 2, (4, 6), 1, id="a file by its name"),
        pytest.param(IngestionChoice("x/b", sha256="sha of b", name="b"), 3, 2, (4, 6), 1, id="a file by its content"),
    ],
)
def test_the_table_goes_back_to_before_it_and_appends_since_stay(wanted, taken, target, appends, rewrites):
    plan = plan_undo(HISTORY, wanted, "orders")
    assert plan.ingestion.snapshot_id == taken
    assert (plan.to_snapshot_id, plan.appends, plan.rewrites) == (target, appends, rewrites)
    assert {plan.ingestion.snapshot_id, *(other.snapshot_id for other in plan.others)} == {1, 3, 6}


def test_before_the_first_commit_the_table_was_empty():
    plan = plan_undo(newest_first(ingest(1, "a"), ingest(2, "b")), by_id(1), "orders")
    assert (plan.to_snapshot_id, plan.appends) == (None, (2,))


def test_the_known_ingestions_are_listed_newest_first_with_what_stands_against_each():
    found = ingestions(HISTORY, "orders")
    assert [(one.snapshot_id, one.at_ms, one.records, one.names) for one in found] == [
        (6, 6000, 3, "c, d"), (3, 3000, 3, "b"), (1, 1000, 3, "a"),
    ]  # fmt: skip
    assert [bool(one.refusal) for one in found] == [False, False, True]


@pytest.mark.parametrize(
    ("history", "wanted", "message"),
    [
        pytest.param(
            HISTORY,
            by_id(1),
            r"round r2 of 1970-01-01 00:00:02 UTC was published .*First run `cleantail rollback orders --to 1`",
            id="a round after it",
        ),
        pytest.param(
            newest_first(ingest(1, "a"), commit(2), a_round(3, "overwrite"), a_round(4)),
            LAST,
            r"round r3 of .* UTC and 1 more since was published after it.*rollback orders --to 2`",
            id="rounds after it, the first of which is to go with all since",
        ),
        pytest.param(
            newest_first(ingest(1, "a"), commit(2, "delete")), LAST, r"snapshot 2 of .*\(delete\).*not Cleantail's",
            id="somebody else's delete",
        ),
        pytest.param(
            newest_first(ingest(1, "a"), commit(2, "overwrite")), LAST, r"\(overwrite\)", id="somebody else's overwrite"
        ),
        pytest.param([ingest(5, "a")], LAST, "the snapshot before it has expired", id="expired"),
        pytest.param(
            [commit(1, operation="ingest")], LAST, "lacks entry cleantail.sources", id="no note of its files"
        ),
        pytest.param(
            [commit(1, operation="ingest", sources="?")], LAST, "cleantail.sources of snapshot 1 cannot be read",
            id="a note that is none",
        ),
    ],
)  # fmt: skip
def test_what_something_was_built_on_is_refused_with_its_reason(history, wanted, message):
    with pytest.raises(TableError, match=message):
        plan_undo(history, wanted, "orders")


@pytest.mark.parametrize(
    ("history", "wanted", "message"),
    [
        pytest.param([], LAST, "no ingestion is in the table's kept history", id="none"),
        pytest.param([commit(1)], LAST, "no ingestion is in the table's kept history", id="only a sink's"),
        pytest.param(
            HISTORY, by_id(4), r"snapshot 4 is not an ingestion of Cleantail's \(append of another", id="a sink's"
        ),
        pytest.param(HISTORY, by_id(2), r"snapshot 2 is not an ingestion of Cleantail's \(compact\)", id="a round"),
        pytest.param(HISTORY, by_id(99), "in the table's kept history is 99: it never existed", id="unknown snapshot"),
        pytest.param(HISTORY, named("e"), "in the table's kept history is e: it never existed", id="unknown file"),
        pytest.param(
            HISTORY, named("c"), r"only be undone with them \(c, d\): --ingestion 6 undoes all of them", id="one of two"
        ),
        pytest.param(
            newest_first(ingest(1, "a"), ingest(2, "a")), named("a"), "ingested 2 times: .* one of 2, 1", id="ambiguous"
        ),
        pytest.param(
            HISTORY,
            IngestionChoice("b", sha256="?", name="b"),
            "came with other content, as snapshot 3",
            id="changed since",
        ),
    ],
)
def test_what_is_not_one_ingestion_is_refused(history, wanted, message):
    with pytest.raises(CleantailError, match=message):
        plan_undo(history, wanted, "orders")


def test_what_was_taken_back_before_is_known_by_all_its_names_and_not_when_it_came_again():
    history = newest_first(ingest(1, "a"), undone(2, 99, "b"), ingest(3, "c"))
    for wanted in (by_id(99), named("b"), IngestionChoice("b", sha256="sha of b", name="b")):
        found = undone_before(history, wanted, "orders")
        assert (found.snapshot_id, found.at_ms, found.by, found.ingestion.names) == (2, 2000, "anna", "b")
        assert found.ingestion.snapshot_id == 99
    assert [undone_before(history, wanted, "orders") for wanted in (LAST, by_id(1), named("e"))] == [None] * 3
    assert undone_before([ingest(4, "b"), *history], named("b"), "orders") is None


def test_an_earlier_undoing_has_no_files_and_is_not_appended_again():
    history = newest_first(ingest(1, "a"), undone(2, 99, "b"), ingest(3, "c"))
    assert plan_undo(history, by_id(1), "orders").appends == (3,)


@pytest.mark.parametrize(
    ("state", "before", "after"),
    [
        pytest.param(PartitionState(), None, PartitionState(), id="no end was known"),
        pytest.param(PartitionState(log_end_offset=9), None, PartitionState(), id="an undone round's end goes"),
        pytest.param(
            PartitionState(log_end_offset=9), 5, PartitionState(log_end_offset=5), id="back to the one before"
        ),
        pytest.param(PartitionState(log_end_offset=9), 12, PartitionState(log_end_offset=9), id="never on"),
        pytest.param(
            PartitionState(checkpoint=7, log_end_offset=9),
            5,
            PartitionState(checkpoint=7, log_end_offset=7),
            id="never below what is clean",
        ),
    ],
)
def test_a_log_end_goes_back_to_what_it_was(state, before, after):
    assert lowered(state, before) == after


@pytest.mark.parametrize(("since_ms", "stays"), [(999, True), (1000, False), (1001, False)])
def test_a_quarantine_that_began_after_the_ingestion_goes_with_it(since_ms, stays):
    held = Quarantine(since_ms, "compact", "check failed: duplicate_keys", 1, since_ms + 60_000)
    state = PartitionState(checkpoint=3, log_end_offset=9, quarantine=held)
    after = without_ingestion(state, 5, 1000)
    assert after == PartitionState(checkpoint=3, log_end_offset=5, quarantine=held if stays else None)


def read_of_kafka(snapshot_id):
    note = Sources((), {0: None}, KafkaRead({0: (snapshot_id, snapshot_id + 1)}, None)).packed()
    return commit(snapshot_id, operation="ingest", sources=note)


def test_of_reads_of_kafka_the_newest_goes_first_and_files_in_between_stay():
    history = newest_first(read_of_kafka(1), read_of_kafka(2), ingest(3, "a"))
    assert plan_undo(history, by_id(2), "orders").appends == (3,)
    with pytest.raises(TableError, match="read further from Kafka after it, as snapshot 2, .* Undo that one first"):
        plan_undo(history, by_id(1), "orders")
    assert plan_undo(history, by_id(3), "orders").to_snapshot_id == 2

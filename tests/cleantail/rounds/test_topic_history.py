"""A topic's history for people: commits of `main` and rounds of the evidence as one list, newest first."""

from __future__ import annotations

from cleantail.rounds.commit_summaries import packed
from cleantail.rounds.past_rounds import rounds_of
from cleantail.rounds.topic_history import events_of
from tests.cleantail.rounds.test_ingestion_undo import a_round, commit, ingest, newest_first, undone
from tests.cleantail.rounds.test_past_rounds import answer, row


def summary(events):
    return [(e.at_ms, e.kind, e.what, e.snapshot_id, e.undo) for e in events]


def test_commits_are_listed_newest_first_with_what_undoes_them():
    history = newest_first(ingest(1, "a"), a_round(2), ingest(3, "b"), commit(4), commit(5, "replace"))
    assert summary(events_of(history, [], "orders")) == [
        (5000, "replace", "3 records added, 0 removed", 5, ()),
        (4000, "append", "3 records added, 0 removed", 4, ()),
        (3000, "ingest", "3 records: b", 3, ("--ingestion", "3")),
        (2000, "compact", "round r2: removed 0 records", 2, ("--to", "1")),
        (1000, "ingest", "3 records: a", 1, ()),  # a round may be built on it
    ]


def test_a_round_says_what_its_evidence_says():
    history = newest_first(ingest(1, "a"), a_round(2), ingest(3, "b"))
    rows = [
        row(0, "r2", checked_at_ms=1900, superseded=4),
        row(1, "r2", checked_at_ms=1900, passed=False, superseded=7),
        answer("published", 0, "approved by ann", round_name="r2", checked_at_ms=2001, superseded=4),
    ]
    (event,) = [e for e in events_of(history, rounds_of(rows), "orders") if e.kind == "compact"]
    assert (event.at_ms, event.snapshot_id) == (2000, 2)
    assert event.what == "round r2: removed 4 superseded; a check failed in partition 1; approved by ann"


def test_rounds_that_are_not_on_main_have_no_snapshot():
    rows = [
        row(0, "r1", checked_at_ms=1500, superseded=4),
        answer("rejected", 0, "rejected by ann", round_name="r1", checked_at_ms=1600, superseded=4),
        row(0, "r2", checked_at_ms=2500, passed=False, superseded=4),
        row(0, "r0", checked_at_ms=500, superseded=4),
        answer("published", 0, round_name="r0", checked_at_ms=501, superseded=4),
        row(0, "r3", checked_at_ms=4000, superseded=4),
    ]
    events = events_of(newest_first(ingest(1, "a"), ingest(3, "b")), rounds_of(rows), "orders")
    assert [(e.what, e.snapshot_id, e.outcome) for e in events if e.kind == "compact"] == [
        ("round r3: not published yet", None, "checked"),
        ("round r2: a check failed", None, "held_back"),
        ("round r1: rejected; rejected by ann", None, "rejected"),
        ("round r0: removed 4 superseded", None, "published"),  # its snapshot has expired
    ]


def test_a_round_on_main_whose_outcome_nobody_noted_yet_is_one_event():
    events = events_of(newest_first(ingest(1, "a"), a_round(2)), rounds_of([row(0, "r2", superseded=4)]), "orders")
    assert [(e.kind, e.snapshot_id) for e in events] == [("compact", 2), ("ingest", 1)]


def test_of_two_rounds_of_a_name_the_newest_is_the_one_on_main():
    rows = []
    for at_ms, count in ((1500, 1), (1900, 2)):
        rows += [row(0, "r2", checked_at_ms=at_ms, superseded=count)]
        rows += [answer("published", 0, round_name="r2", checked_at_ms=at_ms + 1, superseded=count)]
    (first, *_) = events_of(newest_first(ingest(1, "a"), a_round(2)), rounds_of(rows), "orders")
    assert first.what == "round r2: removed 2 superseded"


def test_a_rollback_names_what_it_undid_and_who_did_it():
    history = newest_first(ingest(1, "a"), undone(2, 9, "b"))
    assert summary(events_of(history, [], "orders"))[0] == (2000, "rollback", "undid ingestion 9, by anna", 2, ())
    of_rounds = commit(2, operation="rollback", undone="r1,r2", by="ann", before=packed({0: None}, {}))
    rows = [
        row(0, "r1", checked_at_ms=1500, superseded=4),
        answer("published", 0, round_name="r1", checked_at_ms=1501, superseded=4),
        row(0, "undid r1, r2", "rollback", checked_at_ms=2001) | {"outcome": "published", "checks": "[]"},
    ]
    events = events_of(newest_first(ingest(1, "a"), of_rounds), rounds_of(rows), "orders")
    assert [(e.kind, e.what, e.snapshot_id) for e in events] == [
        ("rollback", "undid r1, r2, by ann", 2),
        ("compact", "round r1: undone; it had removed 4 superseded", None),
        ("ingest", "3 records: a", 1),
    ]

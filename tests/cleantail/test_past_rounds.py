"""Rows of the evidence table as rounds."""

import json

import pytest

from cleantail.past_rounds import rounds_of


def row(partition=0, round_name="r1", kind="compact", checked_at_ms=1000, passed=True, **deleted):
    finding = {"partition": partition, "expectation": "e", "rule": "r", "severity": "critical"}
    return {
        "partition": partition,
        "round": round_name,
        "kind": kind,
        "now_ms": 5,
        "checked_at_ms": checked_at_ms,
        "first_dirty_offset": 0,
        "end_offset": 9,
        "records_in": 9,
        "records_out": 3,
        "deleted": json.dumps(deleted),
        "passed": passed,
        "checks": json.dumps([finding | {"passed": passed, "observed": "0 violations", "error": False}]),
        "outcome": "checked" if passed else "held_back",
        "note": "",
    }


def answer(outcome, partition=0, note="", checked_at_ms=1001, **more):
    return row(partition, checked_at_ms=checked_at_ms, **more) | {"outcome": outcome, "note": note, "checks": "[]"}


def test_the_logs_of_a_round_are_together_and_the_newest_round_is_first():
    rounds = rounds_of([row(1), row(0, checked_at_ms=1001), row(0, "r2", checked_at_ms=9000), row(0, kind="expire")])
    assert [(r.name, r.kind, [log.partition for log in r.logs]) for r in rounds] == [
        ("r2", "compact", [0]),
        ("r1", "compact", [0, 1]),
        ("r1", "expire", [0]),
    ]


def test_a_round_that_started_over_was_checked_twice():
    rounds = rounds_of([row(0, checked_at_ms=9000), row(0, checked_at_ms=1000)])
    assert [r.checked_at_ms for r in rounds] == [9000, 1000]


def test_what_a_red_log_would_have_dropped_was_not_dropped():
    rows = [row(0, superseded=4, expired=1), row(1, passed=False, superseded=7), answer("published", superseded=4)]
    (found,) = rounds_of(rows)
    assert found.deleted == {"superseded": 4, "expired": 1}
    assert (found.dropped, found.passed, found.held_back) == (5, False, (1,))
    assert [check.partition for check in found.failures] == [1]
    assert (len(found.checks), found.outcome) == (2, "held_back")


@pytest.mark.parametrize("outcome", ["rejected", "withdrawn"])
def test_what_was_not_published_dropped_nothing(outcome):
    (found,) = rounds_of([row(superseded=4), answer(outcome, note="rejected by anna", superseded=4)])
    assert (found.outcome, found.dropped, found.passed, found.note) == (outcome, 0, True, "rejected by anna")
    assert found.logs[0].deleted == {"superseded": 4}


def test_until_it_is_published_a_round_dropped_nothing():
    assert [(r.outcome, r.dropped) for r in rounds_of([row(superseded=4)])] == [("checked", 0)]
    (found,) = rounds_of([row(superseded=4), answer("published")])
    assert (found.outcome, found.dropped, len(found.checks)) == ("published", 4, 1)


def test_rows_of_an_earlier_version_say_no_outcome():
    old = [{k: v for k, v in row(p, passed=ok, superseded=4).items() if k not in ("outcome", "note")}
           for p, ok in ((0, True), (1, False))]  # fmt: skip
    (found,) = rounds_of(old)
    assert ([log.outcome for log in found.logs], found.dropped) == (["published", "held_back"], 4)


def test_the_answer_is_for_the_last_check_and_of_a_rollback_there_is_no_check():
    rows = [row(checked_at_ms=1), row(checked_at_ms=2), answer("published", checked_at_ms=3)]
    undone = answer("published", round_name="undid r1", kind="rollback", checked_at_ms=4)
    freed = answer("published", kind="reclaim", checked_at_ms=5)
    assert [(r.kind, r.outcome, r.checked_at_ms) for r in rounds_of([*rows, undone, freed])] == [
        ("rollback", "published", 4),
        ("compact", "published", 2),
        ("compact", "checked", 1),
    ]

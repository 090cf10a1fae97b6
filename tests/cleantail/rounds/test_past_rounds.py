"""Rows of the evidence table as rounds."""

import json

import pytest

from cleantail.rounds.past_rounds import DAY_MS, day_rows, rounds_of, undone_or_open, with_undone
from cleantail.watch.log_metrics import totals_of


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
    undone = answer("published", round_name="undid other", kind="rollback", checked_at_ms=4)
    freed = answer("published", kind="reclaim", checked_at_ms=5)
    gap = answer("published", round_name="", kind="gap", checked_at_ms=6)
    assert [(r.kind, r.outcome, r.checked_at_ms) for r in rounds_of([*rows, undone, freed, gap])] == [
        ("rollback", "published", 4),
        ("compact", "published", 2),
        ("compact", "checked", 1),
    ]


def rollback(names, checked_at_ms):
    return answer("published", round_name=f"undid {names}", kind="rollback", checked_at_ms=checked_at_ms)


def outcomes(rounds):
    return [(r.name, r.checked_at_ms, r.outcome, r.dropped) for r in rounds if r.kind != "rollback"]


def published(name, at_ms, **deleted):
    return [
        row(round_name=name, checked_at_ms=at_ms, **deleted),
        answer("published", round_name=name, checked_at_ms=at_ms + 1, **deleted),
    ]


def test_what_a_rollback_has_undone_dropped_nothing_and_only_what_was_before_it():
    rows = [*published("r1", 10, superseded=4), *published("r2", 20, superseded=5), *published("r3", 30, superseded=6)]
    undone = rollback("r3, r2", 40)
    again = published("r2", 50, superseded=5)  # a round of the same name as one that was undone
    assert outcomes(rounds_of([*rows, undone, *again])) == [
        ("r2", 50, "published", 5),
        ("r3", 30, "undone", 0),
        ("r2", 20, "undone", 0),
        ("r1", 10, "published", 4),
    ]
    found = rounds_of([*rows, undone])
    assert [(r.undone, r.put_back) for r in found[1:]] == [
        (True, {"superseded": 6}), (True, {"superseded": 5}), (False, {"superseded": 0}),
    ]  # fmt: skip


def test_a_round_of_the_same_name_that_was_never_published_was_not_undone():
    rows = [
        row(checked_at_ms=1), answer("withdrawn", checked_at_ms=2), row(checked_at_ms=3),
        answer("published", checked_at_ms=4), rollback("r1", 5),
    ]  # fmt: skip
    found = [r for r in rounds_of(rows) if r.kind != "rollback"]
    assert [(r.undone, r.outcome) for r in found] == [(True, "undone"), (False, "withdrawn")]


def test_a_round_with_a_red_log_stays_red_when_it_is_undone():
    rows = [row(0), row(1, passed=False), answer("published"), rollback("r1", 5000)]
    found = rounds_of(rows)[1]
    assert (found.outcome, found.undone) == ("held_back", True)
    assert [log.outcome for log in found.logs] == ["undone", "held_back"]


def test_a_rollback_missing_in_the_evidence_is_known_from_the_table():
    rounds = rounds_of([*published("r1", 10, superseded=4), *published("r2", 20, superseded=5)])
    known = with_undone(rounds, [(15, ("r2",)), (30, ("r1", "r0"))])
    assert outcomes(known) == [("r2", 20, "published", 5), ("r1", 10, "undone", 0)]
    assert with_undone(known, [(30, ("r1",))]) == known


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        pytest.param(("published", "withdrawn"), "published", id="published in part"),
        pytest.param(("withdrawn", "rejected"), "rejected", id="nothing published"),
        pytest.param(("published", None), "checked", id="one not known yet"),
        pytest.param(("of a later version", "published"), "published", id="a word that is not known"),
    ],
)
def test_of_mixed_outcomes_the_most_pressing_counts_whatever_their_order(told, outcome):
    for order in (told, told[::-1]):
        answers = [answer(word, p) for p, word in enumerate(order) if word]
        assert [r.outcome for r in rounds_of([row(0), row(1), *answers])] == [outcome]


# ---- days


def full(of_row, now_ms=5, **more):
    """A row with all columns that a day has sums of."""
    measured = {"topic": "t", "now_ms": now_ms, "tombstones_in": 2, "tombstones_out": 1, "freed_bytes": 0}
    return of_row | measured | {"saved_bytes": 7, "dag_id": "d"} | more


TWO_DAYS = [
    full(row(superseded=4)),
    full(answer("published", superseded=4)),
    full(row(round_name="r2", checked_at_ms=2000, superseded=1)),
    full(
        answer("published", round_name="r2", checked_at_ms=2001, superseded=1, note="approved by anna"), end_offset=12
    ),
    full(row(round_name="r3", checked_at_ms=3000, passed=False, superseded=9)),
    full(row(1, round_name="r4", checked_at_ms=4000), now_ms=DAY_MS),
    full(answer("withdrawn", 1, round_name="r4", checked_at_ms=4001), now_ms=DAY_MS),
    full(row(None, "", "reclaim", 5000), freed_bytes=30, outcome="published", checks="[]"),
    full(row(None, "", "reclaim", 5001), freed_bytes=12, outcome="published", checks="[]"),
]


def test_the_rows_of_a_day_become_one_for_each_log_kind_and_outcome():
    days = {(day["round"], day["kind"], day["partition"]): day for day in day_rows(TWO_DAYS)}
    assert list(days) == [
        ("day 1970-01-01 published", "compact", 0),
        ("day 1970-01-01 held_back", "compact", 0),
        ("day 1970-01-02 withdrawn", "compact", 1),
        ("day 1970-01-01 published", "reclaim", None),
    ]
    published = days["day 1970-01-01 published", "compact", 0]
    assert (published["records_in"], published["records_out"], json.loads(published["deleted"])) == (
        *(15, 3),
        {"superseded": 5},
    )
    assert (published["note"], published["rounds"], published["saved_bytes"], published["end_offset"]) == (
        *("2 rounds; approved by anna", 2, 14, 12),
    )
    assert days["day 1970-01-01 published", "reclaim", None]["freed_bytes"] == 42
    assert json.loads(days["day 1970-01-01 held_back", "compact", 0]["checks"])[0]["passed"] is False


def test_counters_stay_as_they_were_and_a_day_is_a_round():
    once = day_rows(TWO_DAYS[:2])
    later = [full(row(round_name="late", superseded=2)), full(answer("published", round_name="late", superseded=2))]
    for before in (TWO_DAYS, [*once, *TWO_DAYS[2:]]):
        assert totals_of(day_rows(before)) == totals_of(TWO_DAYS)
    rounds = rounds_of([*day_rows(TWO_DAYS), *day_rows(later)])  # a row of that day came late
    assert sum(r.dropped for r in rounds) == 7
    assert [r.outcome for r in rounds] == ["withdrawn", "held_back", "published", "published"]


def test_rounds_that_were_undone_or_have_no_outcome_keep_their_rows():
    undo = full(row(round_name="undid r2, r0", kind="rollback", checked_at_ms=9000), outcome="published")
    assert undone_or_open([*TWO_DAYS, undo]) == {"r2", "r0"}
    assert undone_or_open([full(row(round_name="waits"))]) == {"waits"}

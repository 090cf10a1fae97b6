"""Rounds that wait for a person, on real tables: held, approved exactly as checked, rejected, released."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager

import pytest

from cleantail.errors import HeldError
from cleantail.lake.evaluate import evaluate_topic
from cleantail.rounds.approval import Rejection
from cleantail.rounds.check_results import RemovedRecord
from cleantail.rounds.past_rounds import rounds_of
from cleantail.watch.log_metrics import totals_of
from cleantail.watch.metrics import ROUNDS
from spark_jobs.round import approvals, evidence, publish
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import check_round
from spark_jobs.round.check_and_publish import publish_or_start_over
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_approved
from spark_jobs.round.run import Run
from tests.jobs.round.test_rounds import NOW, offsets, record

SHORT = {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 3}}
ONE_KEY = {"expectation": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 1}}
"""A log fails it that keeps records of two keys: where any failure will do, since one number is judged soonest."""


def ingest(workshop, topic, name, *records):
    workshop.ok("ingest", topic, "--file", workshop.file(name, [record(*r) for r in records]))


def log_of(workshop, topic, now=NOW):
    [log] = workshop.json("status", topic, "--now", now)["topics"][topic]
    return log


def branches(table):
    return [name for name in table.load().refs().keySet() if name != "main"]


def summary_of(table):
    return dict(table.load().currentSnapshot().summary())


def die(*_):
    raise KeyboardInterrupt


@contextmanager
def dying_before_its_evidence(monkeypatch):
    """A publish is killed after its commit."""
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(publish, "append_answer", die)
        yield


def checked_round(workshop, table, now=NOW):
    plan = evaluate_topic(table.topic, now_ms=now, force=True)
    done = [compact_unit(table, unit) for unit in plan.units]
    return check_round(table, plan.round, done)


def test_a_round_above_the_limit_is_published_only_with_an_approval(workshop, table_of):
    topic = workshop.topic("limit", {"cleantail.max.drop.ratio": 0.5})
    records = (0, "a", "old <b>\n"), (1, "b", "y"), (2, "a", "z"), (3, "b", "w"), (4, "b", None)
    ingest(workshop, topic, "limit.jsonl", *records)
    code, out, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 5
    assert "3 of 5 records would be removed, above cleantail.max.drop.ratio 0.5" in err
    assert "partition 0, offset 0 dropped; offset 2 of its key stays" in err and "--approve" in err
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3, 4]
    log = log_of(workshop, topic)
    assert (log["checkpoint"], log["state"]["quarantine"]) == (None, None)
    assert branches(table_of(topic)) == []
    workshop.ok("compact", topic, "--now", NOW + 1, "--approve")
    assert offsets(workshop.read(topic)) == [2, 4]
    approver = summary_of(table_of(topic))["cleantail.approved-by"]
    rows = workshop.evidence(topic)
    assert (rows[-1]["outcome"], rows[-1]["note"]) == ("published", f"approved by {approver}")
    assert {r["note"] for r in rows if r["outcome"] == "checked"} == {""}


@pytest.mark.parametrize(
    ("publish", "kept"), [("auto", []), ("approve", [2, 7])], ids=["nobody-is-asked", "people-have-a-week"]
)
def test_a_branch_of_a_killed_run_is_deleted_a_day_after_the_last_possible_approval(workshop, table_of, publish, kept):
    name = f"stale-branches-{publish}"
    topic = workshop.topic(name, {"cleantail.approval.timeout.ms": "7d"}, publish=publish)
    ingest(workshop, topic, f"{name}.jsonl", (0, "a", "x"))
    table, now_s = table_of(topic), int(time.time())
    old = {days: f"ct_round_u0_{(now_s - days * 86_400) * 10**9}" for days in (2, 7, 9)}
    for branch in (*old.values(), f"ct_round_u0_{(now_s - 3600) * 10**9}", "audit_2020"):
        table.create_branch(branch, None)
    table.drop_stale_branches()
    left = {f"ct_round_u0_{(now_s - 3600) * 10**9}", "audit_2020", *(old[days] for days in kept)}
    assert set(branches(table)) == left


def test_an_approved_round_is_published_and_keeps_records_appended_meanwhile(workshop, table_of):
    topic = workshop.topic("approve", publish="approve")
    ingest(workshop, topic, "approve.jsonl", (0, "a", "x"), (1, "a", "y"), (2, "b", None))
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    assert [hold.reason for hold in checked.holds] == ["all rounds of this topic wait (publish: approve)"]
    assert checked.sample == (RemovedRecord(0, 0, 1),)
    with pytest.raises(HeldError, match="waits for approval"):
        publish.publish_round(table, checked)
    ingest(workshop, topic, "approve-1.jsonl", (3, "a", "z"))
    for _ in range(2):  # a second try of the task whose first died after its commit
        assert publish_approved(table, checked, "anna").published == (0,)
    assert offsets(workshop.read(topic)) == [1, 2, 3]
    assert (log_of(workshop, topic)["checkpoint"], branches(table)) == (3, [])
    assert summary_of(table)["cleantail.approved-by"] == "anna"


def test_a_sample_begins_with_the_first_logs(workshop, table_of, monkeypatch):
    """Of a log it has the lowest offsets, with the offset of what stays in their place."""
    topic = workshop.topic("sampled", publish="approve")
    keys = "aabba"
    lines = [record(o, k, None if k == "b" else "v", partition=p) for p in (0, 1) for o, k in enumerate(keys)]
    workshop.ok("ingest", topic, "--file", workshop.file("sampled.jsonl", lines))
    table = table_of(topic)
    checked = checked_round(workshop, table)
    every = [RemovedRecord(p, o, kept) for p in (0, 1) for o, kept in ((0, 4), (1, 4), (2, 3))]
    assert checked.sample == tuple(every)
    monkeypatch.setattr(approvals, "SAMPLE_RECORDS", 4)
    assert approvals.with_sample(table, checked).sample == tuple(every[:4])


# test_an_answer_is_void_once_its_round_was_made_again in test_forged_xcoms.py holds the rule; here another was
# published
@pytest.mark.deep
def test_an_approval_is_void_once_another_round_is_published(workshop, table_of):
    topic = workshop.topic("void", publish="approve")
    ingest(workshop, topic, "void.jsonl", (0, "a", "x"), (1, "a", "y"))
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    ingest(workshop, topic, "void-1.jsonl", (2, "a", "z"))
    workshop.topic("void")  # this round needs no approval
    workshop.ok("compact", topic, "--now", NOW + 1)
    with pytest.raises(HeldError, match="what anna approved cannot be published as it was shown"):
        publish_approved(table, checked, "anna")
    assert (offsets(workshop.read(topic)), branches(table)) == ([2], [])
    assert log_of(workshop, topic)["checkpoint"] == 3


def test_a_rejected_round_drops_its_branch_blocks_its_log_and_reports_each_rejection(workshop, table_of):
    topic = workshop.topic("reject", {"cleantail.approval.pause.ms": 60_000}, publish="approve")
    ingest(workshop, topic, "reject.jsonl", (0, "a", "x"), (1, "a", "y"))
    table, _platform = table_of(topic), workshop.platform()
    for said_ms in (NOW, NOW + 1):  # a rejection makes no snapshot: the second round has the name of the first
        result = set_aside(table, checked_round(workshop, table), Rejection("anna", said_ms))
        assert (result.ok, result.published, result.rejected) == (True, (), (0,))
        assert (offsets(workshop.read(topic)), branches(table)) == ([0, 1], [])
        held = log_of(workshop, topic)["state"]["quarantine"]
        assert (held["reason"], held["retry_at_ms"]) == ("rejected by anna", said_ms + 60_000)
        assert not evaluate_topic(table.topic, now_ms=said_ms + 59_999).units
        assert evaluate_topic(table.topic, now_ms=said_ms + 60_000).units
        workshop.ok("release", topic, "0")
        assert evaluate_topic(table.topic, now_ms=said_ms + 1).units
    rows = workshop.evidence(topic)
    rejected = [("checked", ""), ("rejected", "rejected by anna")]
    assert [(r["outcome"], r["note"]) for r in rows] == [*rejected, *rejected]
    assert [(r.outcome, r.dropped) for r in rounds_of(rows)] == [("rejected", 0), ("rejected", 0)]
    counted = {labels[2:]: n for (metric, labels), n in totals_of(rows).items() if metric is ROUNDS}
    assert counted == {("compact", "rejected"): 2}


# test_a_rejection_replaces_the_quarantine_of_a_check_that_was_made_again_and_no_other in
# tests/cleantail/rounds/test_approval.py holds the rule
@pytest.mark.deep
def test_a_rejection_of_a_log_that_failed_before_and_now_passes_starts_a_new_pause(workshop, table_of):
    topic = workshop.topic("red-then-no", checks=[ONE_KEY])
    ingest(workshop, topic, "red-then-no.jsonl", (0, "a", "x"), (1, "a", "y"), (2, "b", "z"))
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    workshop.topic("red-then-no", {"cleantail.approval.pause.ms": 60_000}, publish="approve")
    table, _platform, later = table_of(topic), workshop.platform(), NOW + 3_600_000
    set_aside(table, checked_round(workshop, table, later), Rejection("anna", later))
    held = log_of(workshop, topic, later)["state"]["quarantine"]
    assert (held["reason"], held["attempts"], held["since_ms"]) == ("rejected by anna", 1, later)
    assert not evaluate_topic(table.topic, now_ms=later + 59_999).units


def test_the_branch_of_a_failed_log_is_kept_when_its_round_is_rejected(workshop, table_of):
    topic = workshop.topic("reject-red", {"cleantail.approval.pause.ms": 60_000}, checks=[ONE_KEY], publish="approve")
    lines = [record(o, k, "x", partition=p) for p, keys in enumerate(("aa", "bbc")) for o, k in enumerate(keys)]
    workshop.ok("ingest", topic, "--file", workshop.file("reject-red.jsonl", lines))
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    for _ in range(2):  # a second try of the task, whose first died at its very end
        result = set_aside(table, checked, Rejection("anna", NOW))
        assert (result.rejected, result.held_back) == ((0,), (1,))
    logs = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    said, failed = (log["state"]["quarantine"] for log in logs)
    assert (said["reason"], said["branch"]) == ("rejected by anna", "")
    assert failed["reason"] == f"check failed: {ONE_KEY['expectation']}"
    assert branches(table) == [failed["branch"]]
    assert [(r["partition"], r["outcome"]) for r in workshop.evidence(topic)] == [
        (0, "checked"),
        (1, "held_back"),
        (0, "rejected"),
    ]


def test_retention_of_a_failed_log_above_the_limit_waits_and_the_other_log_is_published(workshop, table_of):
    """Of two logs one is red; what retention would take of it is above the limit."""
    hour = 3_600_000
    config = {"cleanup.policy": "compact,delete", "retention.ms": 10 * hour, "segment.ms": hour, "segment.bytes": 14}
    topic = workshop.topic("red-retention", config | {"cleantail.max.drop.ratio": 0.6}, checks=[SHORT])
    for n, age in enumerate((20, 20, 3)):
        lines = [record(n, "too long" if p else f"{n}", "v", partition=p, ts=NOW - age * hour) for p in range(2)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    code, out, _ = workshop.run("compact", topic, "--now", NOW, "--approve", "--json")
    assert code == 1
    assert json.loads(out)["compacted"]["published"] == [0]
    found = [(r["partition"], r["outcome"]) for r in workshop.evidence(topic)]
    assert found[:3] == [(0, "checked"), (1, "held_back"), (0, "published")]
    assert (0, "withdrawn") not in found
    state = workshop.json("status", topic, "--now", NOW)["topics"][topic][1]["state"]
    assert (state["quarantine"]["attempts"], bool(state["quarantine"]["branch"])) == (1, True)
    assert branches(table_of(topic)) == [state["quarantine"]["branch"]]


# test_a_round_whose_answer_row_was_lost_is_called_published_... in test_evidence.py holds the rule; here of an expiry
@pytest.mark.deep
def test_the_next_check_records_an_expiry_that_died_before_its_evidence(workshop, table_of, monkeypatch):
    topic = workshop.topic("untold-expiry")
    ingest(workshop, topic, "untold-expiry.jsonl", (0, "a", "x"), (1, "a", None))
    workshop.ok("compact", topic, "--now", NOW)
    with monkeypatch.context() as dying:
        dying.setattr(publish, "append_answer", die)
        assert workshop.run("compact", topic, "--now", NOW + 2000)[0] == 130
    monkeypatch.setattr(evidence, "DEAD_AFTER_MS", 0)
    assert offsets(workshop.read(topic)) == []
    ingest(workshop, topic, "untold-expiry-1.jsonl", (2, "b", "x"))
    workshop.ok("compact", topic, "--now", NOW + 3000, "--force")
    assert [(r["kind"], r["outcome"]) for r in workshop.evidence(topic)][2:] == [
        ("expire", "checked"),
        ("expire", "published"),
        ("compact", "checked"),
        ("compact", "published"),
    ]


def test_a_round_that_was_given_up_is_withdrawn_and_the_one_after_it_published(workshop, table_of):
    topic = workshop.topic("given-up")
    ingest(workshop, topic, "given-up.jsonl", (0, "a", "x"), (1, "a", "y"))
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    table.drop_branches([checked.units[0].branch])
    assert publish_or_start_over(Run(table), checked).published == (0,)
    assert [r["outcome"] for r in workshop.evidence(topic)] == ["checked", "withdrawn", "checked", "published"]
    assert [r.outcome for r in rounds_of(workshop.evidence(topic))] == ["published", "withdrawn"]


# test_a_round_that_two_drivers_publish_is_published_once in test_zombies.py has a round that removes nothing
@pytest.mark.parametrize(
    "logs",
    [
        pytest.param(("aa", "bbc"), id="a record goes"),
        pytest.param(("a", "bc"), id="no record goes", marks=pytest.mark.deep),
    ],
)
def test_a_second_try_of_a_publish_records_the_approver_and_counts_no_failure_twice(
    workshop, table_of, monkeypatch, logs
):
    """The first try dies after its commit, before its evidence."""
    topic = workshop.topic(f"second-try-{len(logs[0])}", checks=[ONE_KEY], publish="approve")
    lines = [record(o, k, "x", partition=p) for p, keys in enumerate(logs) for o, k in enumerate(keys)]
    workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}.jsonl", lines))
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    with dying_before_its_evidence(monkeypatch):
        publish.publish_round(table, checked, "Anna")
    first = table.load().currentSnapshot().snapshotId()
    assert [r["outcome"] for r in workshop.evidence(topic)] == ["checked", "held_back"]
    for _ in range(2):
        done = publish.publish_round(table, checked, "Anna")
        assert (done.published, done.held_back, done.snapshot_id) == ((0,), (1,), first)
    failed = workshop.json("status", topic, "--now", NOW)["topics"][topic][1]["state"]["quarantine"]
    assert failed["attempts"] == 1
    assert branches(table) == [failed["branch"]]
    told = [(r["outcome"], r["note"]) for r in workshop.evidence(topic)]
    assert [outcome for outcome, _ in told] == ["checked", "held_back", "published"]
    assert told[-1][1] == "approved by Anna"

"""Releases together with real rounds: what a user has released, and what a round puts into quarantine again."""

from __future__ import annotations

import pytest

from cleantail.lake.catalogs import open_catalog
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.releases import current_releases, release
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import check_round
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_approved, publish_round
from tests.jobs.round.test_held_rounds import ONE_KEY
from tests.jobs.round.test_rounds import NOW, offsets, record


def quarantine_of(workshop, topic, partition=0):
    logs = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    return logs[partition]["state"]["quarantine"]


def words(workshop, topic):
    return sorted(current_releases(open_catalog(workshop.platform()), workshop.find(topic)))


def red_topic(workshop, name, **more):
    """Partition 0 passes its check, partition 1 does not."""
    topic = workshop.topic(name, checks=[ONE_KEY], **more)
    lines = [record(o, k, "x", partition=p) for p, keys in enumerate(("aa", "bbc")) for o, k in enumerate(keys)]
    workshop.ok("ingest", topic, "--file", workshop.file(f"{name}.jsonl", lines))
    return topic


def checked_round(workshop, table, now_ms=NOW):
    plan = evaluate_topic(table.topic, now_ms=now_ms)
    done = [compact_unit(table, unit) for unit in plan.units]
    return check_round(table, plan.round, done)


def test_a_released_log_that_fails_again_starts_a_new_quarantine_with_attempt_1(workshop):
    topic = red_topic(workshop, "red-again")
    assert workshop.run("compact", topic, "--now", NOW + 1)[0] == 1
    first = quarantine_of(workshop, topic, 1)
    workshop.ok("release", topic, "1")
    assert quarantine_of(workshop, topic, 1) is None
    assert words(workshop, topic) == [1]
    assert workshop.run("compact", topic, "--now", NOW + 5)[0] == 1
    again = quarantine_of(workshop, topic, 1)
    assert [(held["attempts"], held["since_ms"]) for held in (first, again)] == [(1, NOW + 1), (1, NOW + 5)]
    assert words(workshop, topic) == []  # the round has written the log's state again
    assert offsets(r for r in workshop.read(topic) if r["partition"] == 0) == [1]


# test_a_released_log_that_fails_again_starts_a_new_quarantine_with_attempt_1 holds the rule; here at the clock of the
# first round
@pytest.mark.deep
def test_a_task_that_is_cleared_after_a_release_puts_the_log_into_quarantine_again_at_the_same_clock(
    workshop, table_of
):
    topic = red_topic(workshop, "cleared")
    table, _platform = table_of(topic), workshop.platform()
    for _ in range(2):
        publish_round(table, checked_round(workshop, table))
        held = quarantine_of(workshop, topic, 1)
        assert (held["since_ms"], held["attempts"]) == (NOW, 1)
        workshop.ok("release", topic, "1")
        assert quarantine_of(workshop, topic, 1) is None


def test_a_quarantine_begins_when_the_check_has_failed_and_the_pause_with_it(workshop):
    """Not with the clock of the run, which was read before Spark had started."""
    topic = red_topic(workshop, "since-it-failed")
    assert workshop.run("compact", topic)[0] == 1
    held = quarantine_of(workshop, topic, 1)
    [row] = [row for row in workshop.evidence(topic) if row["outcome"] == "held_back"]
    assert row["now_ms"] < row["began_ms"] <= held["since_ms"] <= row["checked_at_ms"]
    pause_ms = workshop.find(topic).platform.cleaner.log_cleaner_backoff_ms
    assert held["retry_at_ms"] == held["since_ms"] + pause_ms


def test_a_release_while_a_round_runs_or_waits_is_for_the_quarantine_before_it(workshop, table_of):
    topic = red_topic(workshop, "waited")
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    workshop.topic("waited", checks=[ONE_KEY], publish="approve")
    lines = [record(o, "a", "x", partition=0) for o in (2, 3)]
    workshop.ok("ingest", topic, "--file", workshop.file("more.jsonl", lines))
    table, _platform, later = table_of(topic), workshop.platform(), NOW + 3_600_000
    checked = checked_round(workshop, table, later)
    assert checked.holds and not checked.ok
    workshop.ok("release", topic, "1")
    publish_approved(table, checked, "ann")
    held = quarantine_of(workshop, topic, 1)
    assert (held["since_ms"], held["attempts"]) == (later, 1)
    assert offsets(r for r in workshop.read(topic) if r["partition"] == 0) == [3]
    assert words(workshop, topic) == []


# test_a_release_while_a_round_runs_or_waits_... is of `make test` and holds the rule. Here nobody answers the approval
@pytest.mark.deep
def test_a_round_that_is_set_aside_leaves_its_red_logs_in_quarantine_whatever_was_released_before(workshop, table_of):
    topic = red_topic(workshop, "aside", publish="approve")
    table, _platform = table_of(topic), workshop.platform()
    for released in (False, True):
        if released:  # and its log has gone on since
            lines = [record(10, "b", "x", partition=1)]
            workshop.ok("ingest", topic, "--file", workshop.file("more.jsonl", lines))
        checked = checked_round(workshop, table)
        set_aside(table, checked, None, "nobody could be asked")
        held = quarantine_of(workshop, topic, 1)
        assert (held["since_ms"], held["attempts"]) == (NOW, 1)
        release(table.topic, 1, "ann", NOW)
        assert quarantine_of(workshop, topic, 1) is None


def test_a_rollback_does_not_restore_a_released_quarantine(workshop):
    topic = red_topic(workshop, "undone")
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    workshop.ok("release", topic, "1")
    workshop.topic("undone")  # the check is corrected
    workshop.ok("compact", topic, "--now", NOW + 1)
    workshop.ok("rollback", topic)
    assert quarantine_of(workshop, topic, 1) is None
    assert offsets(r for r in workshop.read(topic) if r["partition"] == 1) == [0, 1, 2]

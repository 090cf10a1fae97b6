"""The application of check_quality, called as its task calls it, on real tables. It publishes passed logs right after
its check, unless a person has to approve. An application of `publish` does the rest."""

from __future__ import annotations

import json

import pytest

from cleantail.errors import ConflictError
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.recorded_rounds import recorded_publication
from cleantail.log.work_units import WORK_UNIT_JSON
from cleantail.rounds.checked_round import ROUND_RESULT_JSON
from spark_jobs.round import check_and_publish
from spark_jobs.round import publish as publishing
from spark_jobs.round import run as round_loop
from tests.jobs.round.stations.test_forged_xcoms import call, told_by, unit_of  # noqa: F401
from tests.jobs.round.test_held_rounds import ONE_KEY, branches, summary_of
from tests.jobs.round.test_rounds import HOUR, NOW, offsets, record


@pytest.fixture
def staged(workshop, table_of, call):  # noqa: F811
    """Ingest records of a new topic and let compact stage them. Returns (topic, table, arguments of check_quality)."""

    def make(name, lines, config=None, **more):
        topic = workshop.topic(name, config or {}, **more)
        workshop.ok("ingest", topic, "--file", workshop.file(f"{name}.jsonl", lines))
        table = table_of(topic)
        code, done = call("compact", topic, "--unit", json.dumps(unit_of(workshop, table)))
        assert code == 0
        return topic, table, json.dumps({"round": done["round"], "branches": [done["branch"]]})

    return make


def overtaken(*_):
    raise ConflictError("another writer was faster each time")


def two_logs():
    """Log 0 passes. Log 1 has one key too many for the topic's own check."""
    return [record(o, k, "x", partition=p) for p, keys in enumerate(("aa", "bbc")) for o, k in enumerate(keys)]


@pytest.fixture
def told(workshop, monkeypatch):
    """Set the Airflow task of the jobs. Returns a function that reads its run's publication of a round, as `publish` does."""
    for name, value in (("DAG_ID", "a-dag"), ("DAG_RUN_ID", "manual__1"), ("TASK_ID", "check_quality")):
        monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)

    def ask(table, checked=None, run_id="manual__1"):
        heads = [unit["head_snapshot_id"] for unit in checked["units"]] if checked else ()
        return recorded_publication(table.topic, "a-dag", run_id, heads)

    return ask


def test_the_application_of_the_check_publishes_passed_logs_and_quarantines_failed_ones(
    workshop,
    staged,
    call,  # noqa: F811
    told,
):
    """Without the argument it only checks. A try after a dead one finds its commit, and changes nothing."""
    topic, table, asked = staged("checked-and-published", two_logs(), checks=[ONE_KEY])
    assert call("check_quality", topic, "--round", asked)[0] == 1
    assert (offsets(workshop.read(topic)), len(branches(table))) == ([0, 1, 0, 1, 2], 1)
    code, result = call("check_quality", topic, "--round", asked, "--publish")
    assert (code, result["ok"]) == (1, False)
    assert offsets(workshop.read(topic)) == [1, 0, 1, 2]
    states = {log["partition"]: log for log in workshop.json("status", topic, "--now", NOW)["topics"][topic]}
    assert (states[0]["checkpoint"], states[1]["checkpoint"]) == (2, None)
    assert [name for name in branches(table) if not name.startswith("failed_")] == []
    assert [row["outcome"] for row in workshop.evidence(topic) if row["partition"] == 0][-1] == "published"
    # `publish` reports the same as its own application would
    published = told(table, result)
    assert (published.ok, published.published, published.held_back) == (False, (0,), (1,))
    assert (published.snapshot_id, published.checkpoints) == (table.load().currentSnapshot().snapshotId(), {0: 2})
    assert published.red_before == (1,)
    assert told(table).red_before == ()  # not reported yet, because the check did not end
    before = summary_of(table)
    code, again = call("check_quality", topic, "--round", asked, "--publish")
    assert (code, again["ok"], [v["partition"] for v in again["verdicts"] if not v["passed"]]) == (1, False, [1])
    assert (summary_of(table), told(table, again), offsets(workshop.read(topic))) == (before, published, [1, 0, 1, 2])
    # without a check of the round, or of other branches, it is an error
    for changed in ({"round": "20200101T000000_000_1"}, {"branches": ["ct_by_hand_1"]}):
        code, wrong = call("check_quality", topic, "--round", json.dumps(json.loads(asked) | changed), "--publish")
        assert (code, "is gone" in wrong["error"]) == (3, True)
    own = call("publish", topic, "--round", json.dumps(told_by(result)))[1]
    shown = ROUND_RESULT_JSON.plain(published)
    assert own == shown


def test_a_failed_round_is_done_once_all_its_logs_are_in_quarantine(workshop, staged, call, told, monkeypatch):  # noqa: F811
    def attempts():
        [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
        return log["state"]["quarantine"]["attempts"]

    topic, table, asked = staged("nothing-passed", two_logs()[2:], checks=[ONE_KEY])
    with monkeypatch.context() as patch:
        patch.setattr(check_and_publish, "publish_unasked", overtaken)
        checked = call("check_quality", topic, "--round", asked, "--publish")[1]
    assert told(table) is None
    for _ in range(2):  # the application of publish does it, and then a second try
        code, result = call("publish", topic, "--round", json.dumps(told_by(checked)))
        assert (code, result["held_back"], attempts()) == (1, [1], 1)
    found = told(table)
    assert (found.published, found.held_back, found.snapshot_id) == ((), (1,), None)
    # a try of the check does the same
    assert (call("check_quality", topic, "--round", asked, "--publish")[0], attempts()) == (1, 1)


# test_a_publication_is_known_to_its_own_run_until_it_is_undone holds the rule; here of a round that started over
@pytest.mark.deep
def test_a_run_finds_the_round_that_it_had_to_make_again(workshop, staged, call, told, monkeypatch):  # noqa: F811
    """Another writer changes the table between the check and the publication. Its records fail the check."""
    topic, table, asked = staged("made-anew-here", two_logs()[:2], checks=[ONE_KEY])
    own = publishing.publish_round
    rounds = []

    def overtaken_once(table, checked, *more):
        rounds.append(checked.round)
        if len(rounds) == 1:
            lines = [record(2, "b", "x"), record(0, "b", "y", partition=1)]
            workshop.ok("ingest", topic, "--file", workshop.file("made-anew-more.jsonl", lines))
            raise ConflictError("another writer was faster")
        return own(table, checked, *more)

    with monkeypatch.context() as patch:
        patch.setattr(round_loop, "publish_round", overtaken_once)
        code, checked = call("check_quality", topic, "--round", asked, "--publish")
    found = told(table, checked)
    assert (code, len(rounds), checked["round"], found.round) == (0, 2, rounds[0], rounds[1])
    assert (found.published, found.held_back, found.red_before) == ((), (0,), ())


def test_a_round_that_waits_for_a_person_is_not_published(
    workshop,
    staged,
    call,  # noqa: F811
):
    topic, _, asked = staged("no-is-no", two_logs()[:2], publish="approve", approvers=["anna"])
    code, result = call("check_quality", topic, "--round", asked, "--publish")
    assert (code, offsets(workshop.read(topic))) == (0, [0, 1])
    assert call("publish", topic, "--round", json.dumps(told_by(result)))[0] == 5
    assert offsets(workshop.read(topic)) == [0, 1]


def test_a_publication_that_fails_in_the_check_is_left_to_the_task_publish(workshop, staged, call, monkeypatch, caplog):  # noqa: F811
    """As after a conflict in test_a_failed_round_is_done_once_all_its_logs_are_in_quarantine."""

    defect = RuntimeError("a defect that names a-key")

    def fails(*_):
        raise defect

    topic, _, asked = staged("left-to-publish", two_logs()[:2])
    with monkeypatch.context() as patch:
        patch.setattr(check_and_publish, "publish_unasked", fails)
        code, result = call("check_quality", topic, "--round", asked, "--publish")
    assert (code, offsets(workshop.read(topic))) == (0, [0, 1])
    assert "is left to the task publish" in caplog.text and "a-key" not in caplog.text
    code, published = call("publish", topic, "--round", json.dumps(told_by(result)))
    assert (code, published["published"], offsets(workshop.read(topic))) == (0, [0], [1])


def red_log_with_old_segments(workshop, table_of, call, name):  # noqa: F811
    """Compact a log whose check will fail, and whose first two records are past retention. Returns topic and round."""
    config = {"cleanup.policy": "compact,delete", "retention.ms": 10 * HOUR, "segment.ms": HOUR, "segment.bytes": 14}
    topic = workshop.topic(name, config, checks=[ONE_KEY])
    for first, keys, age in ((0, ("a", "b"), 20), (2, ("too long", "c"), 3)):
        lines = [record(first + n, key, "v", ts=NOW - age * HOUR) for n, key in enumerate(keys)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{name}-{first}.jsonl", lines))
    plan = evaluate_topic(table_of(topic).topic, now_ms=NOW, force=True)
    done = call("compact", topic, "--unit", json.dumps(WORK_UNIT_JSON.plain(plan.units[0])), "--now", NOW)[1]
    return topic, json.dumps({"round": done["round"], "branches": [done["branch"]]})


def test_retention_continues_in_a_log_that_the_check_blocks(workshop, table_of, call, told):  # noqa: F811
    topic, asked = red_log_with_old_segments(workshop, table_of, call, "held-and-retained")
    code, result = call("check_quality", topic, "--round", asked, "--publish", "--now", NOW)
    assert (code, offsets(workshop.read(topic))) == (1, [2, 3])
    # another check reports the same, and so does the application of publish
    assert call("check_quality", topic, "--round", asked, "--publish", "--now", NOW)[0] == 1
    found = told(table_of(topic))
    assert (found.published, found.held_back, found.retained, found.snapshot_id) == ((), (0,), (0,), None)
    code, own = call("publish", topic, "--round", json.dumps(told_by(result)), "--now", NOW)
    assert (code, own["published"], own["held_back"], own["red_before"]) == (1, [], [0], [0])


def test_a_publication_is_known_to_its_own_run_until_it_is_undone(workshop, staged, call, told):  # noqa: F811
    topic, table, asked = staged("of-its-run", two_logs()[:2])
    call("check_quality", topic, "--round", asked, "--publish")
    assert told(table).published == (0,)
    assert told(table, run_id="manual__2") is None
    workshop.ok("rollback", topic)
    assert told(table) is None
    without_table = workshop.find(workshop.topic("no-table-yet"))
    assert recorded_publication(without_table, "a-dag", "manual__1") is None


# test_only_an_approvers_answer_to_the_same_round_publishes_a_waiting_round in test_forged_xcoms.py has one that was
# rolled back; here it has expired
@pytest.mark.deep
def test_publish_fails_if_the_published_commit_has_expired(workshop, staged, call, told, spark):  # noqa: F811
    topic, table, asked = staged("expired-meanwhile", two_logs()[:2])
    checked = call("check_quality", topic, "--round", asked, "--publish")[1]
    workshop.ok("ingest", topic, "--file", workshop.file("expired-meanwhile-more.jsonl", [record(2, "b", "x")]))
    table.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    assert told(table, checked) is None
    code, result = call("publish", topic, "--round", json.dumps(told_by(checked)))
    assert (code, "is not on main any more" in result["error"], offsets(workshop.read(topic))) == (5, True, [1, 2])


# test_retention_continues_in_a_log_that_the_check_blocks holds the rule; here an application dies before it
@pytest.mark.deep
def test_the_next_run_does_the_retention_that_a_dead_application_left_undone(
    workshop,
    table_of,
    call,  # noqa: F811
    monkeypatch,
):
    def dies(*_):
        raise KeyboardInterrupt

    topic, asked = red_log_with_old_segments(workshop, table_of, call, "died-before-retention")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(round_loop, "retain_held_back", dies)
        call("check_quality", topic, "--round", asked, "--publish", "--now", NOW)
    assert call("check_quality", topic, "--round", asked, "--publish", "--now", NOW)[0] == 1
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3]
    workshop.run("compact", topic, "--now", NOW)
    assert offsets(workshop.read(topic)) == [2, 3]

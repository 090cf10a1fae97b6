"""The application of check_quality, called as its task calls it, on real tables: it publishes what passed right after
its check, unless somebody has to be asked; what it leaves, an application of `publish` does."""

from __future__ import annotations

import json

import pytest

from cleantail.errors import ConflictError
from cleantail.lake.recorded_rounds import is_on_main
from cleantail.lake.runs.evaluate import evaluate_topic
from cleantail.log.work_units import WORK_UNIT_JSON
from cleantail.rounds.checked.round_results import PUBLICATION
from spark_jobs import check_quality, compact, publish
from spark_jobs.round.stations import check_station
from tests.jobs.test_forged_xcoms import call, told_by, unit_of  # noqa: F401
from tests.jobs.test_held_rounds import SHORT, branches, summary_of
from tests.jobs.test_rounds import HOUR, NOW, offsets, record


@pytest.fixture
def staged(workshop, table_of, call):  # noqa: F811
    """Lands records of a new topic and has compact stage them: gives (topic, table, what check_quality is asked)."""

    def make(name, lines, config=None, **more):
        topic = workshop.topic(name, config or {}, **more)
        workshop.ok("ingest", topic, "--file", workshop.file(f"{name}.jsonl", lines))
        table = table_of(topic)
        code, done = call(compact, topic, "--unit", json.dumps(unit_of(workshop, table)))
        assert code == 0
        return topic, table, json.dumps({"round": done["round"], "branches": [done["branch"]]})

    return make


def two_logs():
    """Log 0 is good; the keys of log 1 break the topic's own check."""
    return [record(o, k, "x", partition=p) for p, k in ((0, "a"), (1, "far too long")) for o in range(2)]


def test_what_passed_is_published_and_what_failed_is_quarantined_by_the_application_of_the_check(
    workshop,
    staged,
    call,  # noqa: F811
):
    topic, table, asked = staged("checked-and-published", two_logs(), checks=[SHORT])
    code, result = call(check_quality, topic, "--round", asked, "--publish")
    published = result[PUBLICATION]
    assert (code, result["ok"], published["ok"]) == (1, False, False)
    assert (published["published"], published["held_back"], published["red_before"]) == ([0], [1], [1])
    assert offsets(workshop.read(topic)) == [1, 0, 1]
    states = {log["partition"]: log for log in workshop.json("status", topic, "--now", NOW)["topics"][topic]}
    assert (states[0]["checkpoint"], states[1]["checkpoint"]) == (2, None)
    assert [name for name in branches(table) if not name.startswith("failed_")] == []
    assert [row["outcome"] for row in workshop.evidence(topic) if row["partition"] == 0][-1] == "published"


def test_without_the_argument_it_checks_and_no_more(workshop, staged, call):  # noqa: F811
    topic, table, asked = staged("only-checked", two_logs(), checks=[SHORT])
    code, result = call(check_quality, topic, "--round", asked)
    assert (code, PUBLICATION in result, offsets(workshop.read(topic))) == (1, False, [0, 1, 0, 1])
    assert len(branches(table)) == 1


def test_a_round_that_waits_for_a_person_is_not_published(workshop, staged, call):  # noqa: F811
    lines = [record(0, "a", "x"), record(1, "a", "y"), record(2, "b", "z")]
    topic, _, asked = staged("waits", lines, publish="approve", approvers=["anna"])
    code, result = call(check_quality, topic, "--round", asked, "--publish")
    assert (code, PUBLICATION in result, offsets(workshop.read(topic))) == (0, False, [0, 1, 2])
    code, result = call(publish, topic, "--round", json.dumps(told_by(result)))
    assert (code, offsets(workshop.read(topic))) == (5, [0, 1, 2])


def test_a_try_after_one_that_died_past_its_commit_tells_what_that_had_done(workshop, staged, call):  # noqa: F811
    topic, table, asked = staged("died-past-its-commit", two_logs(), checks=[SHORT])
    first = call(check_quality, topic, "--round", asked, "--publish")[1]
    head = summary_of(table)
    code, again = call(check_quality, topic, "--round", asked, "--publish")
    assert (code, again["ok"], [v["partition"] for v in again["verdicts"] if not v["passed"]]) == (1, False, [1])
    for name in ("round", "published", "held_back", "snapshot_id"):
        assert again[PUBLICATION][name] == first[PUBLICATION][name]
    assert (summary_of(table), offsets(workshop.read(topic))) == (head, [1, 0, 1])
    # without a check of the round it is an error
    other = json.dumps(json.loads(asked) | {"round": "20200101T000000_000_1"})
    code, result = call(check_quality, topic, "--round", other, "--publish")
    assert (code, "is gone" in result["error"]) == (3, True)


def test_what_cannot_be_published_is_left_to_the_task_publish(workshop, staged, call, monkeypatch):  # noqa: F811
    def overtaken(*_):
        raise ConflictError("another writer was faster each time")

    topic, _, asked = staged("left-to-publish", two_logs()[:2])
    with monkeypatch.context() as patch:
        patch.setattr(check_station, "publish_unasked", overtaken)
        code, result = call(check_quality, topic, "--round", asked, "--publish")
    assert (code, PUBLICATION in result, offsets(workshop.read(topic))) == (0, False, [0, 1])
    code, published = call(publish, topic, "--round", json.dumps(told_by(result)))
    assert (code, published["published"], offsets(workshop.read(topic))) == (0, [0], [1])


def test_retention_goes_on_in_a_log_that_the_check_holds_back(workshop, table_of, call):  # noqa: F811
    config = {"cleanup.policy": "compact,delete", "retention.ms": 10 * HOUR, "segment.ms": HOUR, "segment.bytes": 14}
    topic = workshop.topic("held-and-retained", config, checks=[SHORT])
    for n, (key, age) in enumerate((("a", 20), ("b", 20), ("too long", 3), ("c", 3))):
        landed = workshop.file(f"held-and-retained-{n}.jsonl", [record(n, key, "v", ts=NOW - age * HOUR)])
        workshop.ok("ingest", topic, "--file", landed)
    plan = evaluate_topic(table_of(topic).topic, workshop.platform(), now_ms=NOW, force=True)
    done = call(compact, topic, "--unit", json.dumps(WORK_UNIT_JSON.plain(plan.units[0])), "--now", NOW)[1]
    asked = json.dumps({"round": done["round"], "branches": [done["branch"]]})
    code, result = call(check_quality, topic, "--round", asked, "--publish", "--now", NOW)
    assert (code, result[PUBLICATION]["held_back"], result[PUBLICATION]["retained"]) == (1, [0], [0])
    assert offsets(workshop.read(topic)) == [2, 3]


def test_a_commit_is_on_main_by_its_snapshot_and_its_round_until_it_is_undone(workshop, staged, call):  # noqa: F811
    topic, table, asked = staged("on-main", two_logs()[:2])
    done = call(check_quality, topic, "--round", asked, "--publish")[1][PUBLICATION]
    platform = workshop.platform()
    assert is_on_main(table.topic, platform, done["round"], done["snapshot_id"])
    assert not is_on_main(table.topic, platform, "20200101T000000_000_1", done["snapshot_id"])
    assert not is_on_main(table.topic, platform, done["round"], 4711)
    workshop.ok("rollback", topic)
    assert not is_on_main(table.topic, platform, done["round"], done["snapshot_id"])
    assert not is_on_main(workshop.find(workshop.topic("no-table-yet")), platform, done["round"], 1)

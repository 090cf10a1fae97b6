"""A pack of topics in one application: a topic's failure is its own, and what was published stays published."""

from __future__ import annotations

import json

import pytest
from py4j.protocol import Py4JNetworkError

from spark_jobs import run_pack as job
from spark_jobs.packs import pack_run
from tests.jobs.test_rounds import record

LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}
DIGITS = [record(i, "1", f"v{i}") for i in range(3)]
TWICE = [record(i, "k", f"v{i}") for i in range(3)]


@pytest.fixture
def made(workshop):
    """Makes a topic with these records, and returns its name."""

    def make(name, records=TWICE, **more):
        topic = workshop.topic(name, **more)
        workshop.ok("ingest", topic, "--file", workshop.file(f"{name}.jsonl", records))
        return topic

    return make


@pytest.fixture
def run(workshop):
    """Runs the job over topics, in this process; gives its exit code and, by topic, its result."""

    def run_topics(*topics):
        result = workshop.config / "result.json"
        named = [argument for topic in topics for argument in ("--topic", topic)]
        code = job.main(["--config", str(workshop.config), "--result", str(result), *named])
        document = json.loads(result.read_text())
        return code, document["reason"], {outcome["topic"]: outcome for outcome in document["topics"]}

    return run_topics


def offsets(workshop, topic):
    return [found["offset"] for found in workshop.read(topic)]


def test_a_pack_cleans_each_topic_and_a_second_run_finds_nothing_due(workshop, made, run):
    topics = [made("pack-one"), made("pack-two", [*TWICE, record(3, "a", "x")])]
    code, reason, outcomes = run(*topics)
    assert (code, reason) == (0, "0 topics of 2 failed")
    assert [outcomes[topic]["published"] for topic in topics] == [[0], [0]]
    assert [offsets(workshop, topic) for topic in topics] == [[2], [2, 3]]
    assert len([row for row in workshop.evidence(topics[0]) if row["outcome"] == "published"]) == 1
    code, _, outcomes = run(*topics)
    assert (code, {o["reason"] for o in outcomes.values()}) == (0, {"nothing is due"})
    assert len(workshop.evidence(topics[0])) == 2


def test_what_is_wrong_with_one_topic_holds_back_no_other(workshop, made, run):
    """A red check, a broken YAML, a topic that is not there: all before the one that is well."""
    red, well = made("pack-red", DIGITS, checks=[LETTERS]), made("pack-well")
    broken = workshop.topic("pack-broken", {"segment.ms": -1})
    code, reason, outcomes = run(red, broken, "pack-nowhere", well)
    assert code == 1
    assert reason == "3 topics of 4 failed: pack-red, pack-broken, pack-nowhere"
    assert (outcomes[red]["held_back"], outcomes[red]["published"], outcomes[red]["error"]) == ([0], [], "")
    assert "segment.ms" in outcomes[broken]["error"] and "no topic" in outcomes["pack-nowhere"]["error"]
    assert outcomes[well]["ok"] and outcomes[well]["published"] == [0]
    assert (offsets(workshop, red), offsets(workshop, well)) == ([0, 1, 2], [2])


def test_a_log_in_quarantine_rests_though_its_topic_is_in_the_next_pack(workshop, made, run):
    red = made("pack-resting", DIGITS, checks=[LETTERS])
    assert run(red)[0] == 1
    code, _, outcomes = run(red)
    assert (code, outcomes[red]["reason"]) == (0, "nothing is due")


def test_a_topic_that_may_wait_for_a_person_is_passed_over(workshop, made, run):
    asked = made("pack-asked", publish="approve")
    code, _, outcomes = run(asked)
    assert (code, outcomes[asked]["reason"][:30]) == (0, "its rounds may wait for a pers")
    assert offsets(workshop, asked) == [0, 1, 2]


def test_a_pack_goes_on_after_a_defect_and_ends_where_the_application_is_gone(workshop, made, run, monkeypatch):
    first, second = made("pack-defect"), made("pack-after")
    real = pack_run.compact_round

    def failing(error):
        def compact(running, plan):
            if plan.topic == first:
                raise error
            return real(running, plan)

        return compact

    monkeypatch.setattr(pack_run, "compact_round", failing(Py4JNetworkError("gone")))
    assert job.main(["--config", str(workshop.config), "--topic", first, "--topic", second]) != 0
    assert offsets(workshop, second) == [0, 1, 2]
    monkeypatch.setattr(pack_run, "compact_round", failing(ValueError("a value of a record")))
    code, _, outcomes = run(first, second)
    assert (code, outcomes[first]["error"]) == (1, "a defect of Cleantail: ValueError")
    assert offsets(workshop, second) == [2]
    monkeypatch.undo()
    code, _, outcomes = run(first, second)
    assert (code, outcomes[first]["published"], outcomes[second]["reason"]) == (0, [0], "nothing is due")

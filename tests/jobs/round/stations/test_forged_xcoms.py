"""What came through Airflow's database publishes nothing by itself: the jobs, called as its tasks call them, on real
tables. The tables, the evidence and the answers beside the tables are what they go by."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from cleantail.errors import HeldError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.own_namespace import read_answer, write_answer
from cleantail.log.work_units import WORK_UNIT_JSON
from cleantail.rounds.approval import answered, question
from cleantail.rounds.check_results import RemovedRecord
from cleantail.rounds.checked_round import CHECKED_ROUND_JSON
from cleantail.rounds.evidence_row import CHECKED_ROUND
from cleantail.rounds.recorded_checks import REFERENCE_JSON, recorded
from demo.sabotage import delete_where
from spark_jobs import run_station
from spark_jobs.round import undo
from spark_jobs.round.evidence import evidence_table
from tests import round_builders
from tests.jobs.round.test_held_rounds import ONE_KEY, branches, checked_round, ingest, log_of, summary_of
from tests.jobs.round.test_rounds import NOW, offsets, record
from tests.round_builders import reference_of

TASK = ("orders", "manual__1", "approve")
ANNA = {"id": "anna", "name": "Anna"}
EVE = {"id": "eve", "name": "Anna"}


@pytest.fixture
def call(workshop):
    """Runs a job's main as spark-submit does; gives its exit code and result. The tests' clock is ahead."""
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"allow_clock": True}}))

    def run(job, topic, *argv):
        result = workshop.config / "result.json"
        common = ["--config", str(workshop.config), "--topic", topic, "--result", str(result)]
        code = run_station.main([job, *common, *map(str, argv)])
        return code, json.loads(result.read_text())

    return run


def catalog_of(workshop):

    return open_catalog(workshop.platform())


def answer(workshop, table, checked, user, approved=True, at_ms=NOW):
    """As the task does that asks."""
    catalog = catalog_of(workshop)
    write_answer(catalog, table.topic, question(checked, TASK, at_ms))
    asked = read_answer(catalog, table.topic, checked.kind)
    write_answer(catalog, table.topic, answered(asked, TASK, approved, user, at_ms))


def told_by(checked):
    """What a task hands on of a round, or of the XCom of its check."""
    round_ = CHECKED_ROUND_JSON.of_plain(checked, "XCom") if isinstance(checked, dict) else checked
    return REFERENCE_JSON.plain(reference_of(round_))


def held(workshop, table_of, name, **more):
    """A checked round of a topic that only anna may approve, with its table and what its task hands on."""
    topic = workshop.topic(name, publish="approve", approvers=["anna"], **more)
    ingest(workshop, topic, f"{name}.jsonl", (0, "a", "x"), (1, "a", "y"), (2, "b", "z"))
    table = table_of(topic)
    checked = checked_round(workshop, table)
    return topic, table, checked, json.dumps(told_by(checked))


def unit_of(workshop, table):
    plan = evaluate_topic(table.topic, now_ms=NOW, force=True)
    return WORK_UNIT_JSON.plain(plan.units[0])


def test_a_forged_verdict_publishes_nothing(workshop, table_of, call):
    topic = workshop.topic("forged-verdict", checks=[ONE_KEY])
    lines = [record(o, k, "x", partition=p) for p, keys in enumerate(("aa", "bbc")) for o, k in enumerate(keys)]
    workshop.ok("ingest", topic, "--file", workshop.file("forged-verdict.jsonl", lines))
    checked = checked_round(workshop, table_of(topic))
    told = told_by(checked)
    assert told["passed"] == [0]
    code, result = call("publish", topic, "--round", json.dumps(told | {"passed": [0, 1]}))
    assert (code, "has partitions [0, 1] as passed, but the evidence has [0]" in result["error"]) == (5, True)
    code, result = call("publish", topic, "--round", json.dumps(told | {"heads": [4711]}))
    assert (code, "names snapshots that no check of it has read" in result["error"]) == (5, True)
    code, result = call("publish", topic, "--round", json.dumps(told | {"round": "20200101T000000_000_1"}))
    assert (code, "has no check of a round 20200101T000000_000_1" in result["error"]) == (5, True)
    assert offsets(workshop.read(topic)) == [0, 1, 0, 1, 2]
    code, result = call("publish", topic, "--round", json.dumps(told))
    assert (code, result["published"], result["held_back"], result["red_before"]) == (1, [0], [1], [1])
    assert offsets(workshop.read(topic)) == [1, 0, 1, 2]


def test_only_an_approvers_answer_to_the_same_round_publishes_a_waiting_round(workshop, table_of, call):
    topic, table, checked, told = held(workshop, table_of, "forged-answer")
    code, result = call("publish", topic, "--round", told)
    assert (code, "no user was asked about it, regardless of XComs" in result["error"]) == (5, True)
    write_answer(catalog_of(workshop), table.topic, question(checked, TASK, NOW))
    code, result = call("publish", topic, "--round", told)
    assert (code, "no user has answered" in result["error"]) == (5, True)
    answer(workshop, table, checked, EVE)
    code, result = call("publish", topic, "--round", told)
    assert (code, "Anna approved it, but is not among the topic's approvers" in result["error"]) == (5, True)
    answer(workshop, table, replace(checked, round="20200101T000000_000_1"), ANNA)
    assert call("publish", topic, "--round", told)[0] == 5
    answer(workshop, table, replace(checked, kind="expire"), ANNA)
    assert call("publish", topic, "--round", told)[0] == 5
    assert (offsets(workshop.read(topic)), log_of(workshop, topic)["checkpoint"]) == ([0, 1, 2], None)
    answer(workshop, table, checked, ANNA)
    for _ in range(2):  # a second try of the task
        code, result = call("publish", topic, "--round", told)
        assert (code, result["published"]) == (0, [0])
    assert (offsets(workshop.read(topic)), branches(table)) == ([1, 2], [])
    assert summary_of(table)["cleantail.approved-by"] == "Anna"
    workshop.ok("rollback", topic)
    code, result = call("publish", topic, "--round", told)
    assert (code, "was published before and is not on main any more" in result["error"]) == (5, True)
    assert offsets(workshop.read(topic)) == [0, 1, 2]


def test_an_answer_is_void_once_its_round_was_made_again(workshop, table_of, call):
    topic, table, checked, told = held(workshop, table_of, "answered-and-made-anew")
    answer(workshop, table, checked, ANNA)
    again = checked_round(workshop, table)
    assert (again.round, told_by(again) == json.loads(told)) == (checked.round, False)
    code, result = call("publish", topic, "--round", json.dumps(told_by(again)))
    assert (code, "it was made or checked again after the question" in result["error"]) == (5, True)
    assert offsets(workshop.read(topic)) == [0, 1, 2]
    # what waits since an earlier version has no round in the evidence: the error says what to do
    rows = [row | {CHECKED_ROUND: None} for row in workshop.evidence(topic)]
    with pytest.raises(HeldError, match=r"lacks column checked_round.*clear compact and all tasks after it"):
        recorded(table.topic, checked.round, "compact", rows)
    assert CHECKED_ROUND in evidence_table(workshop.platform()).schema().column_names


def test_a_rejection_drops_the_round_even_if_the_yaml_no_longer_requires_approval(workshop, table_of, call):
    topic, table, checked, told = held(workshop, table_of, "said-no")
    answer(workshop, table, checked, ANNA, approved=False)
    workshop.topic(topic)
    code, result = call("publish", topic, "--round", told)
    assert (code, result["published"], result["rejected"], result["reason"]) == (0, [], [0], "rejected by Anna")
    assert (offsets(workshop.read(topic)), branches(table)) == ([0, 1, 2], [])


def test_an_expiry_is_approved_as_any_other_round(workshop, table_of, call):
    topic = workshop.topic("forged-expiry", publish="approve", approvers=["anna"])
    ingest(workshop, topic, "forged-expiry.jsonl", (0, "a", "x"), (1, "b", None))
    workshop.ok("compact", topic, "--now", NOW, "--approve")
    due = {"round": "any", "now_ms": NOW + 2000, "partitions": [0]}
    code, left = call("expire_tombstones", topic, "--round", json.dumps(due))
    assert (code, left["published"]) == (0, [])
    checked, told = CHECKED_ROUND_JSON.of_plain(left["checked"], "XCom"), json.dumps(told_by(left["checked"]))
    assert checked.sample == (RemovedRecord(0, 1, None),)  # in its place nothing stays
    code, result = call("publish", topic, "--kind", "expire", "--round", told)
    assert (code, "no user was asked about it" in result["error"]) == (5, True)
    assert offsets(workshop.read(topic)) == [0, 1]
    answer(workshop, table_of(topic), checked, ANNA)
    assert call("publish", topic, "--kind", "expire", "--round", told)[0] == 0
    assert offsets(workshop.read(topic)) == [0]


def test_a_work_unit_with_forged_bounds_compacts_nothing(workshop, table_of, call):
    topic = workshop.topic("bounds", {"segment.ms": 3_600_000})
    rows = [record(0, "a", "x", ts=NOW - 9_000_000), record(1, "a", "y", ts=NOW - 8_999_000)]
    workshop.ok("ingest", topic, "--file", workshop.file("old.jsonl", rows))
    workshop.ok("ingest", topic, "--file", workshop.file("new.jsonl", [record(2, "a", "z", ts=NOW - 1000)]))
    table = table_of(topic)
    honest = unit_of(workshop, table)
    forged = honest | {"partitions": [honest["partitions"][0] | {"end_offset": 3}]}
    code, result = call("compact", topic, "--unit", json.dumps(forged))
    assert (code, "a user has changed the XCom" in result["error"]) == (5, True)
    assert branches(table) == []


@pytest.mark.parametrize("began_ms", [None, "now"], ids=["by-hand", "in-a-run"])
def test_a_clock_from_before_the_run_compacts_and_expires_nothing(workshop, table_of, call, began_ms):
    """Also where the snapshot that was read is older: the horizons would have passed when they are written."""
    topic = workshop.topic(f"old-clock-{began_ms}".lower())
    ingest(workshop, topic, f"{topic}.jsonl", (0, "a", "x"), (1, "a", "y"), (2, "b", None))
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"allow_clock": False}}))
    clock_ms = int(time.time() * 1000)
    began, old_ms = ([], clock_ms - 3_700_000) if began_ms is None else (["--began", clock_ms], clock_ms - 100_000)
    unit = evaluate_topic(table_of(topic).topic, now_ms=old_ms, force=True).units
    forged = WORK_UNIT_JSON.plain(unit[0])
    code, result = call("compact", topic, "--unit", json.dumps(forged), *began)
    assert (code, "before the run began" in result["error"]) == (5, True)
    due = {"round": "any", "now_ms": old_ms, "partitions": [0]}
    code, result = call("expire_tombstones", topic, "--round", json.dumps(due), *began)
    assert (code, "before the run began" in result["error"]) == (5, True)
    assert offsets(workshop.read(topic)) == [0, 1, 2] and branches(table_of(topic)) == []


def test_the_check_reads_the_units_of_compact_from_the_heads_of_its_branches(workshop, table_of, call):
    topic = workshop.topic("branch-units")
    ingest(workshop, topic, "branch-units.jsonl", (0, "a", "x"), (1, "a", "y"))
    table = table_of(topic)
    honest = unit_of(workshop, table)
    code, done = call("compact", topic, "--unit", json.dumps(honest))
    assert (code, done["counts"]["deleted"]) == (0, {"superseded": {"0": 1}})
    ours, other = (json.dumps({"round": name, "branches": [done["branch"]]}) for name in (done["round"], "other"))
    code, result = call("check_quality", topic, "--round", other)
    assert (code, f"belong to round {done['round']}, but the run's is other" in result["error"]) == (5, True)
    table.create_branch("ct_by_hand_1", None)
    by_hand = json.dumps({"round": done["round"], "branches": ["ct_by_hand_1"]})
    code, result = call("check_quality", topic, "--round", by_hand)
    assert (code, "does not name its work unit" in result["error"]) == (5, True)
    twice = json.dumps({"round": done["round"], "branches": [done["branch"]] * 2})
    assert call("check_quality", topic, "--round", twice)[0] == 5
    assert "in more than one unit" in call("check_quality", topic, "--round", twice)[1]["error"]
    code, checked = call("check_quality", topic, "--round", ours)
    assert (code, checked["measures"][0]["deleted"]) == (0, {"superseded": 1})
    code, result = call("publish", topic, "--round", json.dumps(told_by(checked)))
    assert (code, result["published"], offsets(workshop.read(topic))) == (0, [0], [1])


def test_a_unit_that_removes_nothing_is_staged_and_published_too(workshop, table_of, call):
    topic = workshop.topic("nothing-goes")
    ingest(workshop, topic, "nothing-goes.jsonl", (0, "a", "x"), (1, "b", "y"))
    done = call("compact", topic, "--unit", json.dumps(unit_of(workshop, table_of(topic))))[1]
    round_ = json.dumps({"round": done["round"], "branches": [done["branch"]]})
    checked = call("check_quality", topic, "--round", round_)[1]
    assert call("publish", topic, "--round", json.dumps(told_by(checked)))[0] == 0
    assert log_of(workshop, topic)["checkpoint"] == 2


# test_damage_on_the_branch_turns_the_check_red_and_main_stays_as_it_was in test_rounds.py holds the rule
@pytest.mark.deep
def test_a_branch_that_the_demo_has_corrupted_is_red_by_the_rule_that_it_breaks(workshop, table_of, call):
    topic = workshop.topic("sabotaged")
    ingest(workshop, topic, "sabotaged.jsonl", (0, "a", "x"), (1, "b", "y"), (2, "b", "z"))
    done = call("compact", topic, "--unit", json.dumps(unit_of(workshop, table_of(topic))))[1]
    delete_where(table_of(topic), done["branch"], "t.`offset` = 2")
    code, checked = call(
        "check_quality", topic, "--round", json.dumps({"round": done["round"], "branches": [done["branch"]]})
    )
    [verdict] = checked["verdicts"]
    assert (code, "missing_winners" in [failure["expectation"] for failure in verdict["failures"]]) == (1, True)


def test_a_rollback_undoes_no_round_that_was_published_after_it_was_asked_for(workshop, table_of, call, monkeypatch):
    topic = workshop.topic("asked-before")
    ingest(workshop, topic, "asked-before.jsonl", (0, "a", "x"), (1, "a", "y"))
    workshop.ok("compact", topic, "--now", NOW)
    published_ms = int(table_of(topic).load().currentSnapshot().timestampMillis())
    argv = ["--to", "last", "--by=anna", "--request=manual__1", "--asked-ms"]
    code, result = call("rollback", topic, *argv, published_ms - 1)
    assert (code, "was published after the rollback was requested" in result["error"]) == (5, True)
    assert offsets(workshop.read(topic)) == [1]
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    code, result = call("rollback", topic, *argv, published_ms)
    assert (code, offsets(workshop.read(topic))) == (0, [0, 1])
    monkeypatch.setattr(undo, "done_already", lambda *_: None)  # its snapshot has expired
    workshop.ok("compact", topic, "--now", NOW + 1, "--force")
    code, result = call("rollback", topic, *argv, published_ms + 3_600_000)
    assert (code, "run manual__1 has already rolled back" in result["error"]) == (5, True)
    assert offsets(workshop.read(topic)) == [1]


def test_an_answer_to_an_earlier_question_is_refused():
    asked = question(round_builders.checked_round(), TASK, NOW)
    for wrong in (None, asked, replace(asked, task="")):
        with pytest.raises(HeldError, match="belongs to an earlier question about the topic"):
            answered(wrong, ("orders", "manual__2", "approve"), True, ANNA, NOW)

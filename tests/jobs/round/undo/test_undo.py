"""Rollback on real tables: state and records as before the round, with everything appended since."""

from __future__ import annotations

import json

import pytest

from cleantail.errors import ConflictError, TableError
from cleantail.lake.evaluate import evaluate_topic, read_facts
from cleantail.lake.rollbacks import preview
from cleantail.rounds import commit_summaries
from demo.sabotage import delete_where
from spark_jobs import run_station
from spark_jobs.iceberg import commits
from spark_jobs.round import undo as job
from spark_jobs.round.check import check_round
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_round
from spark_jobs.round.undo import roll_back
from tests.jobs.round.test_rounds import NOW, offsets, record

LOG_STATE = ("log_start_offset", "checkpoint", "first_dirty_offset", "pending_tombstones", "horizons", "late_offset")


def state_of(workshop, topic, now=NOW):
    [log] = workshop.json("status", topic, "--now", now)["topics"][topic]
    return {name: log[name] for name in LOG_STATE}


def ingest(workshop, topic, name, *records):
    return workshop.json("ingest", topic, "--file", workshop.file(name, [record(*r) for r in records]))


FIRST = ((0, "a", "x"), (1, "a", None), (2, "b", "y"), (3, "b", "z"))


@pytest.fixture
def compacted(workshop):
    """A topic with a round, or two, and appends after each; gives its name and what it was before each round."""

    def make(name, rounds=1):
        topic = workshop.topic(name, {"delete.retention.ms": 5000})
        ingest(workshop, topic, f"{name}-0.jsonl", *FIRST)
        steps = [(workshop.read(topic), state_of(workshop, topic))]
        workshop.ok("compact", topic, "--now", NOW)
        ingest(workshop, topic, f"{name}-1.jsonl", (4, "b", "w"), (5, "c", "v"))
        if rounds == 2:
            steps.append((workshop.read(topic), state_of(workshop, topic)))
            workshop.ok("compact", topic, "--now", NOW + 1000, "--force")
            ingest(workshop, topic, f"{name}-2.jsonl", (6, "c", "u"))
        return topic, steps

    return make


def test_each_rollback_goes_a_round_further_and_keeps_what_was_appended(workshop, compacted, monkeypatch):
    monkeypatch.setattr(commit_summaries, "SHARED", 1)  # as in a long ledger, entries that a round kept are left out
    topic, ((raw, first), (once, second)) = compacted("undo", rounds=2)
    assert offsets(workshop.read(topic)) == [1, 4, 5, 6]
    plan = workshop.json("rollback", topic, "--dry-run")
    assert (len(plan["undone"]), plan["appends_kept"], plan["snapshot_id"]) == (1, 1, None)
    assert plan["partitions"] == [
        {"partition": 0, "checkpoint": 6, "checkpoint_after": 4, "records": 4, "records_after": 5}
    ]
    assert offsets(workshop.read(topic)) == [1, 4, 5, 6]

    done = workshop.json("rollback", topic)
    assert done["undone"] == plan["undone"]
    assert workshop.read(topic) == [*once, *workshop.read(topic, "--from-offset", 6)]
    assert state_of(workshop, topic) == second
    workshop.ok("rollback", topic)
    assert workshop.read(topic) == [*raw, *workshop.read(topic, "--from-offset", 4)]
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3, 4, 5, 6]
    assert state_of(workshop, topic) == first
    code, _, err = workshop.run("rollback", topic)
    assert code == 2 and "nothing to undo" in err


def test_rewrites_and_expiries_since_are_undone_too_and_the_next_round_does_it_all_again(workshop, compacted, table_of):
    """A file stays ingested once, and the horizon of the first round stands."""
    topic, _ = compacted("rewritten")
    start, before, state = table_of(topic).load().currentSnapshot(), workshop.read(topic), state_of(workshop, topic)
    workshop.topic("rewritten", {"delete.retention.ms": 5000, "cleantail.reclaim.min.merge.files": 2})
    workshop.ok("compact", topic, "--now", NOW + 7000, "--force")
    assert offsets(workshop.read(topic)) == [4, 5]
    assert workshop.json("reclaim", topic)["rewritten_files"] > 1
    workshop.ok("rollback", topic, "--to", start.snapshotId())
    freed = {
        kind: sum(r["freed_bytes"] for r in workshop.evidence(topic) if r["kind"] == kind)
        for kind in ("rollback", "reclaim")
    }
    assert freed["rollback"] == freed["reclaim"] > 0  # the files take again what the rewrite had freed
    assert (workshop.read(topic), state_of(workshop, topic)) == (before, state)
    [row] = [r for r in workshop.evidence(topic) if r["kind"] == "rollback"]
    assert (row["records_in"], row["records_out"], row["round"][:6], row["note"][:3]) == (2, 4, "undid ", "by ")
    again = ingest(workshop, topic, "rewritten-1.jsonl", (4, "b", "w"), (5, "c", "v"))
    assert (again["records"], again["files"][0]["skipped"]) == (0, True)
    workshop.ok("compact", topic, "--now", NOW + 5000, "--force")
    assert offsets(workshop.read(topic)) == [4, 5]
    workshop.ok("check", topic)


def planned(workshop, topic, to=None):
    return preview(workshop.find(topic), to)[0]


def test_an_append_between_plan_and_commit_is_kept(workshop, compacted, table_of, monkeypatch):
    topic, _ = compacted("raced")
    plan, real, calls = planned(workshop, topic), job.plan_rollback, []

    def slow(*arguments):
        calls.append(1)
        if len(calls) == 1:
            ingest(workshop, topic, "raced-2.jsonl", (6, "d", "t"))
        return real(*arguments)

    monkeypatch.setattr(job, "plan_rollback", slow)
    roll_back(table_of(topic), plan, "anna")
    assert len(calls) == 2
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3, 4, 5, 6]
    assert ingest(workshop, topic, "raced-2.jsonl", (6, "d", "t"))["records"] == 0


def test_a_rollback_is_refused_if_another_round_was_published_meanwhile(workshop, compacted, table_of):
    topic, _ = compacted("busy-undo")
    plan = planned(workshop, topic)
    workshop.ok("compact", topic, "--now", NOW + 2000, "--force")
    before = workshop.read(topic)
    with pytest.raises(ConflictError, match="another round was published meanwhile"):
        roll_back(table_of(topic), plan, "anna")
    assert workshop.read(topic) == before


def test_a_round_on_records_that_were_rolled_back_is_not_published(workshop, compacted, table_of):
    topic, [(_, state)] = compacted("late-publish")
    table, _platform = table_of(topic), workshop.platform()
    plan = evaluate_topic(table.topic, now_ms=NOW + 2000, force=True)
    checked = check_round(table, plan.round, [compact_unit(table, plan.units[0])])
    workshop.ok("rollback", topic)
    with pytest.raises(ConflictError, match="void"):
        publish_round(table, checked)
    assert state_of(workshop, topic) == state
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3, 4, 5]


def test_a_task_that_is_tried_again_does_not_go_a_round_further(workshop, compacted, spark, tmp_path):
    topic, _ = compacted("retried", rounds=2)
    results = []
    for n, request in enumerate(("run-1", "run-1")):
        file = tmp_path / f"{n}.json"
        arguments = ["--config", workshop.config, "--topic", topic, "--by=anna", f"--request={request}"]
        assert run_station.main(["rollback", *map(str, arguments), "--to", "last", "--result", str(file)]) == 0
        results.append(json.loads(file.read_text()))
    assert ["done_before" in result for result in results] == [False, True]
    assert state_of(workshop, topic)["checkpoint"] == 4


def test_a_crash_leaves_all_old_or_all_new(workshop, compacted, monkeypatch):
    """Before the commit, and after it."""
    topic, [(raw, state)] = compacted("crash")
    now = workshop.read(topic), state_of(workshop, topic)

    def die(*_):
        raise KeyboardInterrupt

    for where, expected in (((commits, "_set"), now), ((job, "append_rollback"), ([*raw, *now[0][-2:]], state))):
        with monkeypatch.context() as dying:
            dying.setattr(*where, die)
            assert workshop.run("rollback", topic)[0] == 130
        assert (workshop.read(topic), state_of(workshop, topic)) == expected


def test_a_rollback_never_undoes_a_delete_of_another_engine(workshop, compacted, table_of):
    topic, _ = compacted("foreign")
    delete_where(table_of(topic), "main", "t.`offset` = 5")
    code, out, err = workshop.run("rollback", topic, "--json")
    assert code == 2 and "is not Cleantail's" in err and json.loads(out)["ok"] is False
    assert offsets(workshop.read(topic)) == [1, 3, 4]
    with pytest.raises(TableError, match="snapshot 5 is not in the table's history"):
        planned(workshop, topic, 5)


# test_a_round_without_deletes_counts_as_one_... in tests/cleantail/rounds/test_rollback.py holds the rule
@pytest.mark.deep
def test_a_round_that_removed_nothing_is_undone_by_itself(workshop):
    topic = workshop.topic("unique")
    ingest(workshop, topic, "unique-0.jsonl", (0, "a", "x"), (1, "a", "y"))
    workshop.ok("compact", topic, "--now", NOW)
    ingest(workshop, topic, "unique-1.jsonl", (2, "b", "z"))
    state = state_of(workshop, topic)
    workshop.ok("compact", topic, "--now", NOW + 1, "--force")
    assert state_of(workshop, topic)["checkpoint"] == 3
    workshop.ok("rollback", topic)
    assert (state_of(workshop, topic), offsets(workshop.read(topic))) == (state, [1, 2])


# test_a_round_that_was_undone_counts_no_more in tests/cleantail/whatif/test_policy_comparison.py holds the rule
@pytest.mark.deep
def test_what_if_counts_a_round_that_was_undone_and_done_again_once(workshop):
    """Ten keys, ten versions each: 90 of 100 records have a successor, also where they were dropped and put back before."""
    topic = workshop.topic("often-undone")
    ingest(workshop, topic, "often.jsonl", *((offset, f"k{offset % 10}", "v") for offset in range(100)))
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("rollback", topic)
    workshop.ok("compact", topic, "--now", NOW)
    found = workshop.json("plan", topic, "--set", "min.cleanable.dirty.ratio=0.2")
    size = sum(file.size_bytes for file in read_facts(workshop.find(topic)).files)
    for side in ("before", "after"):
        outcome = found[side]["outcome"]
        assert (outcome["superseded"], outcome["basis"]) == (90, "measured")
        assert 0 < outcome["bytes_freed"] <= size
    assert found["observed_rounds"] == 1

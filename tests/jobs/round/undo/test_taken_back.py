"""An ingestion taken back on real tables: records, marks and log end as if it had never been, or a refusal."""

from __future__ import annotations

import json
import os
import random

import pytest

from cleantail.errors import ConflictError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.evaluate import evaluate_topic, read_facts
from cleantail.lake.table_metadata import history_of
from spark_jobs.iceberg import commits
from spark_jobs.round import undo as job
from spark_jobs.round.check import check_round
from spark_jobs.round.check_and_publish import publish_or_start_over
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_round
from spark_jobs.round.run import Run
from tests.jobs.round.test_held_rounds import ONE_KEY
from tests.jobs.round.test_other_processes import kill_at
from tests.jobs.round.test_rounds import NOW, offsets, record
from tests.jobs.round.undo.test_undo import ingest, state_of


def seen(workshop, topic):
    """Everything that a reader and a scheduler know of the table, but for snapshots."""
    facts = read_facts(workshop.find(topic))
    logs = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    ends = {log["partition"]: (log["log_start_offset"], log["log_end_offset"]) for log in logs}
    return workshop.read(topic), workshop.ok("latest", topic), dict(facts.states), facts.ingested, ends


def checkpoints(states):
    """The first dirty offsets; a rollback of a log's first round leaves a state without one."""
    return {p: state.checkpoint for p, state in states.items() if state.checkpoint is not None}


def main_of(workshop, topic):
    """(Iceberg's table, main's snapshots newest first)."""
    table = open_catalog(workshop.platform()).load_table(workshop.find(topic).table)
    return table, list(history_of(table))


def test_a_file_is_taken_back_with_its_mark_and_its_log_end_and_can_come_again(workshop):
    topic = workshop.topic("taken-back")
    ingest(workshop, topic, "day-1.jsonl", (0, "a", "x"), (1, "b", "y"))
    workshop.ok("compact", topic, "--now", NOW)
    before = seen(workshop, topic)
    ingest(workshop, topic, "wrong.jsonl", (2, "a", "wrong"), (3, "c", "wrong"))
    wrong = seen(workshop, topic)
    file = workshop.config / "wrong.jsonl"
    plan = workshop.json("rollback", topic, "--ingestion", file, "--dry-run")
    assert (plan["ingestion"]["records"], plan["snapshot_id"], plan["appends_kept"]) == (2, None, 0)
    assert [f["name"] for f in plan["ingestion"]["files"]] == ["wrong.jsonl"]
    assert [(o["files"][0]["name"], "was published after it" in o["refusal"]) for o in plan["others"]] == [
        ("day-1.jsonl", True)
    ]
    assert plan["partitions"] == [
        {
            "partition": 0,
            "records": 4,
            "records_after": 2,
            "log_end": 4,
            "log_end_after": 2,
            "readers": [],
            "lifts_quarantine": False,
        }
    ]
    assert seen(workshop, topic) == wrong

    done = workshop.json("rollback", topic, "--ingestion", file)
    assert seen(workshop, topic) == before
    again = workshop.json("rollback", topic, "--ingestion", file)
    assert (again["done_before"], again["snapshot_id"]) == (True, done["snapshot_id"])
    assert "was already undone on" in workshop.ok("rollback", topic, "--ingestion", plan["ingestion"]["snapshot_id"])
    _, history = main_of(workshop, topic)
    assert history[0].summary["cleantail.undone"] == f"ingestion {plan['ingestion']['snapshot_id']}"
    assert history[0].summary["cleantail.by"]
    [row] = [r for r in workshop.evidence(topic) if r["kind"] == "rollback"]
    assert (row["records_in"], row["records_out"], row["note"].endswith(": wrong.jsonl")) == (4, 2, True)
    workshop.ok("ingest", topic, "--file", file)
    assert seen(workshop, topic) == wrong


def test_the_only_ingestion_leaves_an_empty_table_that_works_on(workshop):
    topic = workshop.topic("only-one")
    ingest(workshop, topic, "first.jsonl", (5, "a", "x"))
    workshop.ok("rollback", topic, "--ingestion", "last")
    assert (workshop.read(topic), workshop.json("status", topic)["topics"][topic]) == ([], [])
    ingest(workshop, topic, "second.jsonl", (0, "a", "x"), (1, "a", "y", 1))
    ingest(workshop, topic, "third.jsonl", (2, "a", "z"))
    workshop.ok("rollback", topic, "--ingestion", "second.jsonl")
    assert {p: end for p, (_, end) in seen(workshop, topic)[4].items()} == {0: 3}  # log 1 was of the second alone
    workshop.ok("compact", topic, "--now", NOW)
    assert offsets(workshop.read(topic)) == [2]
    code, _, err = workshop.run("rollback", topic, "--ingestion", "last")
    assert code == 2 and "was published after it" in err and "nothing was changed" in err


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(int(os.environ.get("CLEANTAIL_HISTORIES", "1"))))
def test_undoing_random_ingestions_leaves_the_table_as_if_they_had_never_been_made(workshop, seed):
    """Files of two logs, some over each other's offsets, with a round before them and one that is undone between.
    test_the_only_ingestion_leaves_an_empty_table_that_works_on and
    test_an_ingestion_cannot_be_undone_before_the_round_after_it_is_rolled_back hold the rule; here with any files in
    any order."""
    chance = random.Random(seed)
    places = iter(range(10_000))
    ours, other = workshop.topic(f"random-{seed}"), workshop.topic(f"never-{seed}")

    def bring(name, *topics):
        lines = [
            record(next(places), f"k{chance.randrange(4)}", chance.choice(["v", None]), chance.randrange(2))
            for _ in range(chance.randrange(1, 6))
        ]
        for topic in topics:
            workshop.ok("ingest", topic, "--file", workshop.file(name, lines))

    bring("base.jsonl", ours, other)
    for topic in (ours, other):
        workshop.ok("compact", topic, "--now", NOW)
    files = [f"f{n}.jsonl" for n in range(4)]
    gone = chance.sample(files, chance.randrange(2, 4))
    for name in files:
        bring(name, ours, *([] if name in gone else [other]))
        if name == files[1]:
            workshop.ok("compact", ours, "--now", NOW + 1, "--force")
            workshop.ok("rollback", ours)
    for name in gone:
        workshop.ok("rollback", ours, "--ingestion", name)
    found, expected = seen(workshop, ours), seen(workshop, other)
    assert json.loads(json.dumps(found[0]).replace(ours, other)) == expected[0]
    assert found[3:] == expected[3:]
    assert checkpoints(found[2]) == checkpoints(expected[2])
    for topic in (ours, other):
        workshop.ok("compact", topic, "--now", NOW + 2, "--force")
    assert json.loads(json.dumps(workshop.read(ours)).replace(ours, other)) == workshop.read(other)
    workshop.ok("check", ours)


def test_an_ingestion_cannot_be_undone_before_the_round_after_it_is_rolled_back(workshop):
    topic = workshop.topic("built-on")
    ingest(workshop, topic, "first.jsonl", (0, "a", "x"))
    before = seen(workshop, topic)
    ingest(workshop, topic, "wrong.jsonl", (1, "a", "y"))
    workshop.ok("compact", topic, "--now", NOW)
    built = seen(workshop, topic)
    code, out, err = workshop.run("rollback", topic, "--ingestion", "wrong.jsonl", "--json")
    assert (code, json.loads(out)["ok"]) == (2, False)
    assert seen(workshop, topic) == built
    [command] = [part for part in err.split("`") if part.startswith("cleantail rollback")]
    workshop.ok(*command.split()[1:])
    workshop.ok("rollback", topic, "--ingestion", "wrong.jsonl")
    found = seen(workshop, topic)
    assert (found[:2], found[3:]) == (before[:2], before[3:])


def test_rewrites_since_are_undone_with_it(workshop):
    topic = workshop.topic("rewritten-in", {"cleantail.reclaim.min.merge.files": 2})
    for n in range(2):
        ingest(workshop, topic, f"{n}.jsonl", (n, f"k{n}", "x"))
    workshop.ok("compact", topic, "--now", NOW)
    ingest(workshop, topic, "wrong.jsonl", (2, "k2", "x"))
    assert workshop.json("reclaim", topic)["rewritten_files"] == 2
    assert workshop.json("rollback", topic, "--ingestion", "wrong.jsonl")["rewrites_undone"] == 1
    assert offsets(workshop.read(topic)) == [0, 1]


def test_a_sinks_append_is_never_taken_back_and_stays_when_an_ingestion_before_it_goes(workshop, table_of):
    topic = workshop.topic("two-writers")
    ingest(workshop, topic, "wrong.jsonl", (0, "a", "x"))
    table = table_of(topic)
    table.current().selectExpr("partition", "offset + 7 AS offset", "timestamp", "timestamp_type", "key", "value",
                               "headers").writeTo(table.name).append()  # fmt: skip
    _, history = main_of(workshop, topic)
    code, _, err = workshop.run("rollback", topic, "--ingestion", history[0].snapshot_id)
    assert code == 2 and "is not an ingestion of Cleantail's" in err
    workshop.ok("rollback", topic, "--ingestion", "wrong.jsonl")
    assert offsets(workshop.read(topic)) == [7]


def test_files_of_one_commit_go_together_by_its_snapshot(workshop):
    topic = workshop.topic("together")
    files = [workshop.file(f"{n}.jsonl", [record(n, "a", "x")]) for n in range(2)]
    workshop.ok("ingest", topic, "--file", files[0], "--file", files[1])
    code, _, err = workshop.run("rollback", topic, "--ingestion", files[0])
    assert code == 2 and "undoes all of them" in err
    _, history = main_of(workshop, topic)
    workshop.ok("rollback", topic, "--ingestion", history[0].snapshot_id)
    assert workshop.read(topic) == []
    assert workshop.json("ingest", topic, "--file", files[1])["records"] == 1


# test_an_append_between_plan_and_commit_is_kept in test_undo.py holds the rule; here of an ingestion
@pytest.mark.deep
def test_an_append_between_plan_and_commit_is_kept(workshop, table_of, monkeypatch):
    topic = workshop.topic("raced-back")
    ingest(workshop, topic, "wrong.jsonl", (0, "a", "x"))
    [wrong] = main_of(workshop, topic)[1]
    real, calls = job.plan_undo, []

    def slow(*arguments):
        calls.append(1)
        if len(calls) == 1:
            ingest(workshop, topic, "right.jsonl", (1, "b", "y"))
        return real(*arguments)

    monkeypatch.setattr(job, "plan_undo", slow)
    job.undo_ingestion(table_of(topic), wrong.snapshot_id, "anna")
    assert (len(calls), offsets(workshop.read(topic))) == (2, [1])


# test_a_round_on_records_that_were_rolled_back_... in test_undo.py holds the rule; here they were taken back
@pytest.mark.deep
def test_a_round_that_was_checked_before_is_void_and_starts_over(workshop, table_of):
    """By the wrong file a's first record is superseded and the checkpoint is 3."""
    topic = workshop.topic("checked-before")
    ingest(workshop, topic, "right.jsonl", (0, "a", "x"), (1, "b", "y"))
    ingest(workshop, topic, "wrong.jsonl", (2, "a", "wrong"))
    table, _platform = table_of(topic), workshop.platform()
    plan = evaluate_topic(table.topic, now_ms=NOW, force=True)
    checked = check_round(table, plan.round, [compact_unit(table, plan.units[0])])
    workshop.ok("rollback", topic, "--ingestion", "wrong.jsonl")
    with pytest.raises(ConflictError, match="void"):
        publish_round(table, checked)
    assert (state_of(workshop, topic)["checkpoint"], offsets(workshop.read(topic))) == (None, [0, 1])
    assert publish_or_start_over(Run(table), checked).published == (0,)
    assert (state_of(workshop, topic)["checkpoint"], offsets(workshop.read(topic))) == (2, [0, 1])


# test_a_quarantine_that_began_after_... in tests/cleantail/rounds/test_ingestion_undo.py holds the rule
@pytest.mark.deep
def test_undoing_an_ingestion_ends_the_quarantine_that_it_caused(workshop):
    topic = workshop.topic("out-of-quarantine", checks=[ONE_KEY])
    ingest(workshop, topic, "right.jsonl", (0, "a", "x"))
    workshop.ok("compact", topic, "--now", NOW)
    before = seen(workshop, topic)
    ingest(workshop, topic, "wrong.jsonl", (1, "b", "x"))
    assert workshop.run("compact", topic, "--now", NOW + 1, "--force")[0] == 1
    assert "no longer blocked" in workshop.ok("rollback", topic, "--ingestion", "wrong.jsonl")
    assert seen(workshop, topic) == before


@pytest.mark.deep
def test_a_crash_leaves_all_old_or_all_new(workshop, monkeypatch):
    """Before the commit, and after it: the commit of a rollback, whose test (test_undo.py) holds the rule."""
    topic = workshop.topic("crashed-back")
    ingest(workshop, topic, "right.jsonl", (0, "a", "x"))
    old = seen(workshop, topic)
    ingest(workshop, topic, "wrong.jsonl", (1, "a", "wrong"))
    new = seen(workshop, topic)

    def die(*_):
        raise KeyboardInterrupt

    for where, expected in (((commits, "_set"), new), ((job, "append_undone_ingestion"), old)):
        with monkeypatch.context() as dying:
            dying.setattr(*where, die)
            assert workshop.run("rollback", topic, "--ingestion", "wrong.jsonl")[0] == 130
        assert seen(workshop, topic) == expected
    assert "done_before" in workshop.json("rollback", topic, "--ingestion", "wrong.jsonl")
    assert seen(workshop, topic) == old


@pytest.mark.deep
def test_a_killed_undo_of_an_ingestion_is_atomic_and_can_be_repeated(workshop):
    topic = workshop.topic("killed-back")
    ingest(workshop, topic, "right.jsonl", (0, "a", "x"))
    old = seen(workshop, topic)
    ingest(workshop, topic, "wrong.jsonl", (1, "a", "wrong"))
    new = seen(workshop, topic)
    kill_at("undoing the ingestion", ["rollback", topic, "--ingestion", "wrong.jsonl", "--config", workshop.config])
    assert seen(workshop, topic) in (old, new)
    workshop.ok("rollback", topic, "--ingestion", "wrong.jsonl")
    assert seen(workshop, topic) == old


def test_undoing_an_ingestion_names_readers_past_it_and_files_that_would_be_ingested_again(workshop):
    sources = {"platform": {"sources": [str(workshop.config / "landing")]}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(sources))
    topic = workshop.topic("warned", source={"path": str(workshop.config / "landing" / "*.jsonl")})
    ingest(workshop, topic, "right.jsonl", (0, "a", "x"))
    (workshop.config / "landing").mkdir()
    file = workshop.config / "landing" / "wrong.jsonl"
    file.write_text(json.dumps(record(1, "b", "y")) + "\n")
    workshop.ok("ingest", topic, "--file", file)
    workshop.ok("reader", "set", topic, "cache", "--partition", 0, "--offset", 2)
    workshop.ok("reader", "set", topic, "behind", "--partition", 0, "--offset", 1)
    out = workshop.ok("rollback", topic, "--ingestion", "last")
    assert "reader cache is at offset 2 of partition 0" in out and "behind" not in out
    assert f"{file} still matches source.path" in out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["rollback", "--to", "main"], "'main' is neither last nor the id of a snapshot"),
        (["rollback", "--to", "1", "--ingestion", "last"], "not allowed with argument"),
    ],
    ids=["a branch", "both"],
)
def test_an_invalid_snapshot_argument_is_refused(workshop, capsys, command, message):
    topic = workshop.topic("targets")
    with pytest.raises(SystemExit, match="2"):
        workshop.run(command[0], topic, *command[1:])
    assert message in capsys.readouterr().err


def test_latest_is_as_of_a_snapshot_a_branch_or_a_tag(workshop):
    topic = workshop.topic("as-of")
    ingest(workshop, topic, "a.jsonl", (0, "a", "x"))
    _, [first] = main_of(workshop, topic)
    ingest(workshop, topic, "b.jsonl", (1, "a", "y"))
    by_id = workshop.ok("latest", topic, "--as-of", first.snapshot_id)
    assert json.loads(by_id)["offset"] == 0
    assert workshop.ok("latest", topic, "--as-of", "main") == workshop.ok("latest", topic)
    code, _, err = workshop.run("latest", topic, "--as-of", "mian")
    assert code == 2 and "has no branch or tag mian; it has main" in err

"""What a round promises, on real tables: bounds, horizons, late records, copies, keyless records, red checks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cleantail.errors import ConflictError
from cleantail.lake.evaluate import evaluate_topic
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState, Quarantine, states_of_properties
from cleantail.log.quarantine import kept_branch, kept_until_ms
from cleantail.rounds.recorded_checks import REFERENCE_JSON
from demo.sabotage import delete_where
from spark_jobs import run_station
from spark_jobs.round import run as rounds
from spark_jobs.round import staged_rewrites
from spark_jobs.round.check import check_round
from spark_jobs.round.check_and_publish import publish_or_start_over
from spark_jobs.round.latest_view import view_name
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_round, side_table
from spark_jobs.round.run import Run
from tests.jobs.conftest import places
from tests.round_builders import reference_of

NOW = 1_800_000_000_000
HOUR = 3_600_000


def record(offset, key, payload, partition=0, ts=None, **more):
    ts = 1_700_000_000_000 + offset if ts is None else ts
    return {
        "partition": partition,
        "offset": offset,
        "tstype": "create",
        "ts": ts,
        "key": key,
        "payload": payload,
        **more,
    }


def branches(table):
    return sorted(set(table.load().refs().keySet()) - {"main"})


def offsets(records):
    return [r["offset"] for r in records]


def test_case_2_keys_keep_their_last_offset_and_their_order(workshop, table_of):
    topic = workshop.topic("case-2")
    lines = [record(i, k, f"v{i}") for i, k in enumerate(["1", "2", "3", "3", "1", "4", "1", "4"])]
    # of the same offset twice, in one file or in two, one copy survives
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [*lines[:4], *lines[1:2]]))
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", lines[3:]))
    table = table_of(topic)

    def snapshots():
        return {int(snapshot.snapshotId()) for snapshot in table.load().snapshots()}

    before = snapshots()
    workshop.ok("compact", topic, "--now", NOW)
    assert [(r["key"], r["offset"]) for r in workshop.read(topic)] == [("2", 1), ("3", 3), ("1", 6), ("4", 7)]
    assert snapshots() - before == {int(table.load().currentSnapshot().snapshotId())}  # a round leaves no other one


def test_a_tombstone_goes_at_its_horizon_and_not_a_millisecond_before_and_the_evidence_has_both_rounds(workshop):
    topic = workshop.topic("horizon", {"delete.retention.ms": 5000})
    lines = [record(0, "a", "x"), record(1, "a", None), record(2, "b", "y")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    workshop.topic("horizon", {"delete.retention.ms": 0})  # a later config change does not move a horizon
    workshop.ok("compact", topic, "--now", NOW + 4999)
    assert offsets(workshop.read(topic)) == [1, 2]
    workshop.ok("compact", topic, "--now", NOW + 5000)
    assert offsets(workshop.read(topic)) == [2]
    rows = workshop.evidence(topic)
    assert [(r["kind"], r["outcome"], r["records_in"], r["records_out"]) for r in rows] == [
        (kind, outcome, *counts)
        for kind, counts in (("compact", (3, 2)), ("expire", (2, 1)))
        for outcome in ("checked", "published")
    ]
    checks = {c["expectation"] for c in json.loads(rows[0]["checks"])}
    assert checks >= {"duplicate_keys", "missing_winners", "imbalance"}


def test_the_active_segment_and_young_records_are_not_touched_even_when_forced(workshop):
    topic = workshop.topic(
        "bounds-of-rounds", {"segment.ms": HOUR, "segment.bytes": 14, "min.compaction.lag.ms": 2 * HOUR}
    )
    for n, age in enumerate((5 * HOUR, HOUR, 1000)):
        lines = [record(2 * n + i, "a", f"v{n}{i}", ts=NOW - age) for i in (0, 1)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert offsets(workshop.read(topic)) == [1, 2, 3, 4, 5]
    [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert (log["checkpoint"], log["first_uncleanable_offset"], log["active_base_offset"]) == (2, 2, 4)


def test_late_records_move_the_checkpoint_back_and_late_tombstones_get_their_own_horizon(workshop):
    topic = workshop.topic("late", {"delete.retention.ms": 5000})
    first = [record(i, k, v) for i, k, v in ((2, "a", "x"), (5, "b", None), (9, "c", "z"))]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", first))
    workshop.ok("compact", topic, "--now", NOW)
    late = [record(3, "a", "newer"), record(4, "d", None), record(8, "e", "w")]
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", late))
    [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert (log["checkpoint"], log["first_dirty_offset"], log["late_offset"]) == (10, 3, 3)
    assert log["pending_tombstones"] == 2
    workshop.ok("compact", topic, "--now", NOW + 1000, "--force")
    assert offsets(workshop.read(topic)) == [3, 4, 5, 8, 9]
    [log] = workshop.json("status", topic, "--now", NOW + 1000)["topics"][topic]
    assert [(h["end_offset"], h["horizon_ms"], h["tombstones"]) for h in log["horizons"]] == [
        (5, NOW + 6000, 1),
        (10, NOW + 5000, 1),
    ]
    workshop.ok("compact", topic, "--now", NOW + 5000)
    assert offsets(workshop.read(topic)) == [3, 4, 8, 9]


def test_a_late_copy_does_not_beat_the_known_one_whose_file_was_rewritten_while_it_waited(workshop, spark, table_of):
    topic = workshop.topic("late-copies", {"cleantail.reclaim.min.merge.files": 2})
    for n in range(2):
        lines = [record(10 * n + i, f"k{n}{i}", "known") for i in range(3)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("ingest", topic, "--file", workshop.file("late.jsonl", [record(1, "k01", "known")]))
    assert workshop.json("reclaim", topic, "--now", NOW)["rewritten_files"] == 2
    before = places(spark, table_of(topic).name, "offset", "partition")
    [known] = before[0, 0]
    assert len(before[0, 1]) == 2 and known in before[0, 1]
    result = workshop.json("compact", topic, "--now", NOW, "--force")
    assert result["compacted"]["measures"][0]["deleted"]["copies"] == 1
    assert places(spark, table_of(topic).name, "offset", "partition") == before | {(0, 1): [known]}


# test_a_record_without_a_key_blocks_only_its_partition_until_a_policy_handles_it in test_keyless_rounds.py holds the
# rules of "fail" and "drop", test_small_files_of_a_side_table_... that of "quarantine"
@pytest.mark.deep
@pytest.mark.parametrize("policy", ["fail", "drop", "quarantine"])
def test_the_keyless_policy_decides_over_records_without_a_key(workshop, spark, table_of, policy):
    topic = workshop.topic(f"keyless-{policy}", {"cleantail.keyless.policy": policy})
    lines = [record(0, "a", "x"), record(1, None, "no key"), record(2, "", "empty key"), record(3, "a", "")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    if policy == "quarantine":  # the same record twice is one row of the side table
        workshop.ok("ingest", topic, "--file", workshop.file("again.jsonl", [record(1, None, "no key")]))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    if policy == "fail":
        assert code == 1 and "1 record without a key, the first at offset 1; cleantail.keyless.policy is fail" in err
        assert offsets(workshop.read(topic)) == [0, 1, 2, 3]
        return
    assert code == 0, err
    assert [(r["key"], r["payload"]) for r in workshop.read(topic)] == [("", "empty key"), ("a", "")]
    if policy == "quarantine":
        side = spark.table(side_table(table_of(topic))).collect()
        assert [(r["offset"], bytes(r["value"])) for r in side] == [(1, b"no key")]


def test_a_failed_check_blocks_its_partition_and_the_others_are_published(workshop, spark, table_of):
    checks = [
        {"expectation": "expect_column_values_to_not_match_regex", "kwargs": {"column": "value", "regex": "^bad"}}
    ]
    topic = workshop.topic("red", checks=checks)
    lines = [record(i, "k", v, partition=p) for p in (0, 1) for i, v in enumerate(["x", "bad" if p else "good"])]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 1
    assert "partition 1: expect_column_values_to_not_match_regex" in err and "bad" in err
    assert [(r["partition"], r["offset"]) for r in workshop.read(topic)] == [(0, 1), (1, 0), (1, 1)]
    log = workshop.json("status", topic, "--now", NOW)["topics"][topic][1]
    assert log["checkpoint"] is None and "not_match_regex" in log["state"]["quarantine"]["reason"]
    branch = log["state"]["quarantine"]["branch"]
    assert [r["offset"] for r in workshop.read(topic, "--partition", 1, "--as-of", branch)] == [1]
    held = states_of_properties(dict(table_of(topic).load().properties()), topic)[1]
    kept = kept_branch(held, 1, workshop.find(topic), workshop.platform().catalog.name, branches(table_of(topic)))
    assert [row["offset"] for row in spark.sql(kept.sql).collect()] == [1]
    assert workshop.run("compact", topic, "--now", NOW + 1000)[0] == 1
    [newer] = branches(table_of(topic))
    assert newer != branch
    workshop.topic("red")  # the check is corrected: a person's next run does not wait for the back-off
    workshop.ok("compact", topic, "--now", NOW + 1000)
    assert [(r["partition"], r["offset"]) for r in workshop.read(topic)] == [(0, 1), (1, 1)]
    end = kept_until_ms(newer, workshop.find(topic).config.cleantail_failed_branch_retention_ms)
    (workshop.config / "defaults.yaml").write_text("platform: {allow_clock: true}")
    workshop.ok("reclaim", topic, "--now", end)
    assert branches(table_of(topic)) == []


def test_damage_on_the_branch_turns_the_check_red_and_main_stays_as_it_was(workshop, table_of):
    topic = workshop.topic("damage", {"segment.ms": HOUR, "segment.bytes": 14})
    old = [record(0, "a", "x"), record(1, "b", "y"), record(2, "a", "z")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", old))
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(3, "a", "head", ts=NOW - 1000)]))
    table = table_of(topic)
    plan = evaluate_topic(table.topic, now_ms=NOW)
    done = compact_unit(table, plan.units[0])
    delete_where(table, done.branch, "t.`key` = CAST('b' AS BINARY) OR t.`offset` = 3")  # a winner, and the head
    checked = check_round(table, plan.round, [done])
    [verdict] = checked.verdicts
    assert not verdict.passed
    assert {f.expectation for f in verdict.failures} >= {"missing_winners", "head_changed"}
    result = publish_round(table, checked)
    assert (result.ok, result.held_back) == (False, (0,))
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3]


def test_a_duplicate_that_an_earlier_round_left_is_found_by_a_full_proof_and_not_by_a_check_of_what_was_touched(
    workshop, table_of
):
    topic = workshop.topic("proof", {"cleantail.full.proof.interval.ms": HOUR})
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(i, "a", "x") for i in range(2)]))
    table = table_of(topic)
    known = int(table.load().currentSnapshot().sequenceNumber())
    lie = PartitionState(checkpoint=2, log_end_offset=2, known_sequence_number=known, proven_ms=NOW)
    table.set_properties({f"{PROPERTY_PARTITION}0": lie.as_json()})
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(2, "b", "y")]))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert workshop.run("check", topic)[0] == 1  # on demand, whatever was proven
    workshop.topic("proof", {"cleantail.full.proof.interval.ms": 0})
    workshop.ok("ingest", topic, "--file", workshop.file("c.jsonl", [record(3, "c", "z")]))
    code, _, err = workshop.run("compact", topic, "--now", NOW, "--force")
    assert (code, "duplicate_keys" in err) == (1, True)


# test_a_round_that_was_given_up_is_withdrawn_and_the_one_after_it_published in test_held_rounds.py drops a branch
@pytest.mark.parametrize("loss", [pytest.param("dropped", marks=pytest.mark.deep), "changed"])
def test_no_checkpoint_is_published_if_the_checked_branch_was_dropped_or_changed(workshop, table_of, loss):
    topic = workshop.topic(f"branch-{loss}")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(i, "a", "x") for i in range(3)]))
    table, _platform = table_of(topic), workshop.platform()
    plan = evaluate_topic(table.topic, now_ms=NOW)
    checked = check_round(table, plan.round, [compact_unit(table, plan.units[0])])
    [unit] = checked.units
    if loss == "dropped":
        table.drop_branches([unit.branch])
    else:
        delete_where(table, unit.branch, "t.`offset` = 2")
    with pytest.raises(ConflictError):
        publish_round(table, checked)
    [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert log["checkpoint"] is None
    assert publish_or_start_over(Run(table), checked).published == (0,)
    assert offsets(workshop.read(topic)) == [2]
    with pytest.raises(ConflictError):  # the same round again, late
        publish_round(table, checked)


def test_a_broken_file_leaves_an_empty_table(workshop):
    topic = workshop.topic("never-made")
    code, _, err = workshop.run("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "a", "x"), {"a": 1}]))
    assert code == 2 and "a.jsonl:2" in err
    assert workshop.read(topic) == []


def test_the_table_of_another_topic_is_refused_as_a_side_table(workshop, table_of):
    other = workshop.topic("orders-keyless", table="cleantail.orders_keyless")
    workshop.ok("ingest", other, "--file", workshop.file("o.jsonl", [record(0, "a", "x")]))
    (workshop.config / "topics" / f"{other}.yaml").unlink()  # with both of them neither has its table
    topic = workshop.topic("orders", {"cleantail.keyless.policy": "quarantine"})
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, None, "x"), record(1, "a", "y")]))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 2 and "is not of topic orders" in err
    assert offsets(workshop.read(topic)) == [0, 1]
    (workshop.config / "topics" / f"{topic}.yaml").unlink()
    assert offsets(workshop.read(workshop.topic(other, table="cleantail.orders_keyless"))) == [0]


def test_a_check_on_a_missing_column_is_refused_before_the_round(workshop):
    checks = [{"expectation": "expect_column_values_to_not_be_null", "kwargs": {"column": "nope"}, "severity": "info"}]
    topic = workshop.topic("no-column", checks=checks)
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 2 and 'checks[0].kwargs.column: no column "nope"' in err


def test_an_expiry_in_quarantine_waits_in_scheduled_runs_and_runs_at_once_by_hand(workshop, table_of):
    topic = workshop.topic("quarantined-expiry")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "a", None), record(1, "b", "y")]))
    workshop.ok("compact", topic, "--now", NOW)
    table, due = table_of(topic), NOW + 1000
    [log] = evaluate_topic(table.topic, now_ms=due).logs
    held = Quarantine(due - 1, "expire", "check failed: x", 1, due + HOUR)
    table.set_properties({f"{PROPERTY_PARTITION}0": replace(log.state, quarantine=held).as_json()})
    assert rounds.expire_round(Run(table), due, [0]).expired == 0
    assert offsets(workshop.read(topic)) == [0, 1]
    assert workshop.json("compact", topic, "--now", due)["expired"]["expired"] == 1
    [log] = workshop.json("status", topic, "--now", due)["topics"][topic]
    assert (log["state"]["quarantine"], offsets(workshop.read(topic))) == (None, [1])


def test_publish_and_expiry_write_back_a_misplaced_checkpoint_of_a_log_that_no_unit_touches(workshop, table_of):
    topic = workshop.topic("misplaced", {"min.cleanable.dirty.ratio": 1.0})
    lines = [record(i, "a", "x", partition=p) for p in (0, 1) for i in (5, 6)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    table, _platform = table_of(topic), workshop.platform()

    def misplace(checkpoint):
        state = PartitionState(checkpoint=checkpoint, log_start_offset=5, log_end_offset=7)
        table.set_properties({f"{PROPERTY_PARTITION}1": state.as_json()})

    def stored():
        return workshop.json("status", topic, "--now", NOW)["topics"][topic][1]["checkpoint"]

    plan = evaluate_topic(table.topic, now_ms=NOW, force=True, partition=0)
    checked = check_round(table, plan.round, [compact_unit(table, plan.units[0])])
    misplace(200)
    told = REFERENCE_JSON.text(reference_of(checked))
    assert run_station.main(["publish", "--config", str(workshop.config), "--topic", topic, "--round", told]) == 0
    assert (stored(), offsets(workshop.read(topic))) == (5, [6, 5, 6])
    misplace(3)
    rounds.expire_round(Run(table), NOW, [0])
    assert stored() == 5


def test_retention_drops_whole_old_segments_and_compaction_cleans_the_rest(workshop, spark, table_of):
    config = {"cleanup.policy": "compact,delete", "retention.ms": 10 * HOUR, "segment.ms": HOUR, "segment.bytes": 14}
    topic = workshop.topic("retention", config)
    for n, age in enumerate((20 * HOUR, 5 * HOUR, 3 * HOUR)):
        lines = [record(2 * n + i, "a" if i else f"k{n}", f"v{n}{i}", ts=NOW - age) for i in (0, 1)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    assert offsets(workshop.read(topic)) == [2, 4, 5]
    [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert (log["log_start_offset"], log["checkpoint"], log["log_end_offset"]) == (2, 6, 6)
    workshop.ok("ingest", topic, "--file", workshop.file("late.jsonl", [record(1, "a", "v01", ts=NOW - 20 * HOUR)]))
    workshop.topic("retention", config | {"cleanup.policy": "compact"})  # what retention left, it left for good
    assert offsets(workshop.read(topic)) == [2, 4, 5]
    assert offsets(map(json.loads, workshop.ok("latest", topic).splitlines())) == [2, 4, 5]
    assert sorted(r.offset for r in spark.table(view_name(table_of(topic))).collect()) == [2, 4, 5]


# test_a_tombstone_goes_at_its_horizon_... holds the rule; here nothing else is left
@pytest.mark.deep
def test_a_file_of_nothing_but_tombstones_is_swept_by_deletion_vectors(workshop):
    topic = workshop.topic("all-tombstones")
    lines = [record(i, f"k{i}", None) for i in range(4)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3]
    workshop.ok("compact", topic, "--now", NOW + 1000)
    assert workshop.read(topic) == []
    workshop.ok("reclaim", topic, "--now", NOW + 1000)
    [log] = workshop.json("status", topic, "--now", NOW + 1000)["topics"][topic]
    assert (log["log_start_offset"], log["checkpoint"], log["log_end_offset"], log["warnings"]) == (0, 4, 4, [])


def test_reclaim_and_then_another_engine_merge_files_and_the_state_stays_true(workshop, table_of):
    topic = workshop.topic("merge", {"cleantail.reclaim.min.merge.files": 2})
    for n in range(3):
        lines = [record(10 * n + i, f"k{i}", f"v{n}{i}" if i else None) for i in range(5)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    before, [log] = workshop.read(topic), workshop.json("status", topic, "--now", NOW)["topics"][topic]
    workshop.ok("ingest", topic, "--file", workshop.file("later.jsonl", [record(30, "k9", "w")]))
    result = workshop.json("reclaim", topic)
    assert (result["rewritten_files"], result["new_files"]) == (3, 1)
    assert result["reclaimed_bytes"] > 0
    assert workshop.read(topic) == [*before, *workshop.read(topic, "--from-offset", 30)]
    [after] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    same = ("log_start_offset", "checkpoint", "first_dirty_offset", "pending_tombstones", "horizons")
    assert {k: after[k] for k in same} == {k: log[k] for k in same}
    table_of(topic).call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    [merged] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    same = (*same, "late_offset", "log_end_offset", "records")
    assert {k: merged[k] for k in same} == {k: after[k] for k in same}
    workshop.ok("compact", topic, "--now", NOW + 1000, "--force")
    assert offsets(workshop.read(topic)) == [21, 22, 23, 24, 30]
    assert all(f == "main" for f in table_of(topic).load().refs().keySet())


def test_a_rewrite_that_lost_records_is_not_swapped_in_and_leaves_no_branch(workshop, table_of, monkeypatch):
    topic = workshop.topic("lossy", {"cleantail.reclaim.min.merge.files": 2})
    for n in range(2):
        lines = [record(10 * n + i, f"k{n}{i}", "v", partition=p) for p in range(3) for i in range(5)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    before, table = workshop.read(topic), table_of(topic)
    real = staged_rewrites.run_tasks

    def lossy(table, work, batches, what):
        [done], [tasks] = real(table, work, batches, what), batches
        pairs = zip(done, tasks, strict=True)
        return [[replace(one, files=one.files[:-1]) if "partition=1" in task.new_path else one for one, task in pairs]]

    monkeypatch.setattr(staged_rewrites, "run_tasks", lossy)
    code, _, err = workshop.run("reclaim", topic)
    assert (code, "rewriting 2 files gave 0 records for 10" in err) == (2, True)
    assert workshop.read(topic) == before
    assert branches(table) == []

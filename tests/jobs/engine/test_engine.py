"""The engine on real tables: one task or several for a log give the same, and damage of any kind is counted."""

from __future__ import annotations

import os
import random

import pytest

from cleantail.lake.evaluate import evaluate_topic
from cleantail.log.task_shares import TaskSizes
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.checked_round import StagedUnit, UnitCounts
from cleantail.rounds.publications import COUNTS
from demo.sabotage import delete_where
from spark_jobs.engine import tasks
from spark_jobs.engine.measures import KeyCounts, measure_unit, prove_keys
from spark_jobs.engine.tasks import tasks_of_shares
from spark_jobs.round.intake import ingest
from spark_jobs.round.make import compact_unit, expire_unit, expiry_unit
from tests.model import compacted

NOW = 1_800_000_000_000
DEEP = int(os.environ.get("CLEANTAIL_HISTORIES", "1")) > 1
LOGS = 3 if DEEP else 2
DAMAGES = 2 if DEEP else 1
CLEAN = 80
"""Records of a log that are cleaned before its tombstones expire."""
SHARE = 20
"""Records of a share: a log of these tests has about a hundred, so that four shares of it are dirty, two groups."""
CONFIGS = {
    "offset": {},
    "timestamp": {"compaction.strategy": "timestamp"},
    "header": {"compaction.strategy": "header", "compaction.strategy.header": "v"},
}


def strategies(*quick):
    """By timestamp and by header is one code but for where the version is read; `make test-deep` runs all."""
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.deep) for name in CONFIGS]


def record(log, offset, key, payload="v", ts=0, version=None):
    headers = ["v", version] if version else []
    return {
        "partition": log, "offset": offset, "ts": 1_700_000_000_000 + (ts or offset), "key": key, "payload": payload,
        "headers": headers, "headers_encoding": "base64",
    }  # fmt: skip


def some_records(draw, offsets, keys):
    for log in range(LOGS):
        for offset in offsets:
            version = draw.choice([None, "AAAAAAAAAAE=", "AAAAAAAAAAI=", "//////////8=", "AAE="])
            yield record(log, offset, draw.choice(keys), draw.choice(["v", None]), draw.randrange(50), version)


def left_on(table, branch):
    rows = table.at_branch(branch).select("partition", "offset", "_file", "_pos").collect()
    return sorted(tuple(row) for row in rows)


@pytest.mark.parametrize("strategy", strategies("header"))
@pytest.mark.parametrize("seed", range(int(os.environ.get("CLEANTAIL_HISTORIES", "1"))))
def test_several_tasks_clean_and_check_a_log_as_one_task_does(workshop, table_of, monkeypatch, strategy, seed):
    """Whatever is damaged on the branch, and with copies of an offset. That several tasks with a map of their own are
    right, test_the_engine_does_what_the_rules_say_over_any_history says as well."""
    monkeypatch.setattr(ingest, "LOGS_MAX", 0)  # Spark writes small row groups; a task writes a block of lines as one
    draw = random.Random(f"{strategy}{seed}")
    config = {"cleanup.policy": "compact,delete", "cleantail.keyless.policy": "drop", "retention.ms": -1}
    topic = workshop.topic(f"alike-{strategy}-{seed}", config | CONFIGS[strategy])
    table, keys = table_of(topic), [None, "", *(f"k{i}" for i in range(12))]
    ingested = []
    for number, span in enumerate((range(40), range(40, 60), range(60, 90))):
        rows = list(some_records(draw, span, keys))
        ingested += rows
        rows += [row for row in rows if draw.random() < 0.2 and number]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{number}.jsonl", rows))
        if not number:
            workshop.ok("compact", topic, "--now", NOW)
            small_row_groups(table)
    on_main, left, measured = workshop.read(topic), [], []
    [unit] = evaluate_topic(table.topic, now_ms=NOW).units
    assert any(file.row_groups > 1 for file in table.files_at(unit.base_snapshot_id).log_files(range(LOGS)))
    for share, ships_map in ((1 << 30, True), *([(SHARE, True)] if DEEP else []), (SHARE, False)):
        monkeypatch.setattr(tasks, "task_sizes", lambda *_, size=share: TaskSizes(size, size, 1 << 40, 1, 1))
        monkeypatch.setattr(tasks, "map_fits", lambda *_, fits=ships_map: fits)
        done = compact_unit(table, unit)
        left.append(left_on(table, done.branch))
        measured.append([measure_unit(table, done, expiring=False)])
        for damage in range(DAMAGES):
            delete_where(table, done.branch, f"hash(t.`offset`, {seed}, {damage}) % 4 = 0")
            measured[-1].append(measure_unit(table, done, expiring=False))
    assert list(zip(left, measured, strict=True)) == [(left[0], measured[0])] * len(left)
    assert any(m.missing_winners for m in measured[0][-1])
    assert not any(m.missing_winners or m.duplicate_keys or m.imbalance for m in measured[0][0])
    assert {(log, offset) for log, offset, _, _ in left[0]} == expected_left(ingested, strategy)
    if strategy == "offset":
        assert [m.violations(COUNTS) for m in measured[0][0]] == [expected_counts(on_main, w) for w in unit.partitions]


def small_row_groups(table):
    """Several tasks can read one file then."""
    properties = {
        "write.parquet.row-group-size-bytes": 400,
        "write.parquet.row-group-check-min-record-count": 4,
        "write.parquet.row-group-check-max-record-count": 4,
    }
    texts = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    table.spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({texts})")


def expected_left(records, strategy):
    keyed = [r for r in records if r["key"] is not None]
    return {(r["partition"], r["offset"]) for r in compacted(keyed, strategy, "v")}


def expected_counts(records, work):
    """The counts by their definition; a copy of a record is one more that is read, and that goes."""
    log = [r for r in records if r["partition"] == work.partition]
    dirty = [r for r in log if work.first_dirty_offset <= r["offset"] < work.end_offset]
    last = {r["key"]: r["offset"] for r in dirty if r["key"] is not None}
    kept = {r["offset"] for r in log if r["key"] is not None and r["offset"] >= last.get(r["key"], 0)}
    return dict(zip(COUNTS, (len(log), len(kept), len(dirty), len(last)), strict=True))


def test_superseded_records_that_stay_are_counted(workshop, table_of):
    topic = workshop.topic("stayed")
    table = table_of(topic)
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, i, "k") for i in range(5)]))
    [unit] = evaluate_topic(table.topic, now_ms=NOW).units
    table.create_branch("ct_untouched", unit.base_snapshot_id)
    unit = WorkUnit(unit.round, 0, NOW, unit.base_snapshot_id, "ct_untouched", unit.partitions)
    [measure] = measure_unit(table, StagedUnit.of(unit, UnitCounts({})), expiring=False)
    assert (measure.duplicate_keys, measure.map_keys) == (4, 1)


def test_a_proof_counts_keys_and_those_that_have_more_than_one_record(workshop, table_of):
    topic = workshop.topic("proven")
    files = [
        [record(0, i, f"k{i % 4}") for i in range(6)] + [record(1, 0, "k0"), record(1, 1, None)],
        [record(log, i, f"k{i}") for log in range(2) for i in range(6, 9)],
    ]
    for number, rows in enumerate(files):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{number}.jsonl", rows))
    table = table_of(topic)
    [unit] = evaluate_topic(table.topic, now_ms=NOW).units
    [unique] = evaluate_topic(table.topic, now_ms=NOW, partition=1).units
    seen = table.at_snapshot(unit.base_snapshot_id)
    assert prove_keys(seen, unit.partitions) == {0: KeyCounts(7, 2), 1: KeyCounts(4, 0)}
    assert prove_keys(seen, unique.partitions) == {1: KeyCounts(4, 0)}


@pytest.mark.deep
@pytest.mark.parametrize("strategy", list(CONFIGS))
def test_several_tasks_expire_tombstones_as_one_task_does(workshop, table_of, monkeypatch, strategy):
    """Also where records that no round has cleaned yet hold tombstones back, and whatever is damaged. Of a compaction
    test_several_tasks_clean_and_check_a_log_as_one_task_does holds the rule, of an expiry by two tasks
    test_an_expiry_keeps_a_tombstone_at_whose_offset_another_record_is that it is judged."""
    draw, keys = random.Random(strategy), [f"k{i}" for i in range(40)]
    topic = workshop.topic(f"expired-{strategy}", CONFIGS[strategy] | {"min.cleanable.dirty.ratio": 1.0})
    table = table_of(topic)
    table.ensure()
    small_row_groups(table)
    for number, span in enumerate((range(CLEAN), range(CLEAN, CLEAN + 40))):
        rows = list(some_records(draw, span, keys))
        workshop.ok("ingest", topic, "--file", workshop.file(f"{number}.jsonl", rows))
        if not number:
            workshop.ok("compact", topic, "--now", NOW, "--force")
    plan = evaluate_topic(table.topic, now_ms=NOW + 5000)
    assert (plan.units, plan.swept) == ((), tuple(range(LOGS)))
    left, measured = [], []
    for share in (1 << 30, SHARE):
        monkeypatch.setattr(tasks, "task_sizes", lambda *_, size=share: TaskSizes(size, size, 1 << 40, 1, 1))
        unit = expiry_unit(plan, plan.swept, int(table.load().currentSnapshot().snapshotId()), 0, {})
        planned = tasks.log_tasks(table, unit, table.files_at(unit.base_snapshot_id))
        assert all((len(tasks_of_shares(task)) > 1) == (share == SHARE) for task in planned)
        done = expire_unit(table, plan, unit)
        left.append(left_on(table, done.branch))
        measured.append([measure_unit(table, done, expiring=True)])
        for damage in range(DAMAGES):
            delete_where(table, done.branch, f"hash(t.`offset`, {damage}) % 4 = 0")
            measured[-1].append(measure_unit(table, done, expiring=True))
    assert left[0] == left[1] != []
    assert measured[0] == measured[1]
    (sound, *_, damaged), _ = measured
    assert all(m.deleted["expired"] and not (m.early_tombstones or m.overdue_tombstones or m.imbalance) for m in sound)
    assert any(m.missing_winners for m in damaged)
    assert strategy == "offset" or len(waiting_tombstones(workshop.read(topic), left[0])) > 0


def waiting_tombstones(records, left):
    """The tombstones below the first uncleaned record that the expiry has left."""
    there = {(log, offset) for log, offset, _, _ in left}
    return [
        r for r in records if r["payload"] is None and r["offset"] < CLEAN and (r["partition"], r["offset"]) in there
    ]


def test_files_of_a_topic_mark_their_tombstones_and_readers_do_not_see_the_mark(workshop, table_of):
    topic = workshop.topic("tombstones-marked")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, 0, "a", None), record(0, 1, "b")]))
    table = table_of(topic)
    files = table.files_at(int(table.load().currentSnapshot().snapshotId())).log_files({0})
    assert [(file.marked, file.null_values) for file in files] == [(True, 1)]
    assert "tombstone" not in workshop.read(topic)[0]

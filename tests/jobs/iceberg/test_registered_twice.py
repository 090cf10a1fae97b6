"""Data files that a sink has registered more than once (apache/iceberg issues 17340, 13763): each record once after a
round, and nothing is lost."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest

from cleantail.lake.evaluate import evaluate_topic
from cleantail.log.task_shares import TaskSizes
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.java_calls import each
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.round import run as rounds
from spark_jobs.round.check import check_round
from spark_jobs.round.check_and_publish import publish_or_start_over
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import side_table
from spark_jobs.round.run import Run
from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import append, by_spark, full
from tests.jobs.round.intake.test_adopt import CONNECT, HOUR, NOW, changes, expected, read
from tests.jobs.round.test_held_rounds import die, dying_before_its_evidence
from tests.jobs.round.test_rounds import offsets, record


class Twice:
    """Registers files of a table again, as it is named in the catalog."""

    def __init__(self, spark, name):
        self.spark, self.jvm, self.name = spark, spark._jvm, name

    def load(self):
        util = self.jvm.org.apache.iceberg.spark.Spark3Util
        return util.loadIcebergTable(self.spark._jsparkSession, self.name)

    def files(self):
        """The files of the current snapshot, as a sink knows them: it has written them itself."""
        table = self.load()
        tasks = list(each(table.newScan().includeColumnStats().planFiles()))
        unique = {str(task.file().location()): task.file() for task in tasks}
        builder = self.jvm.org.apache.iceberg.DataFiles.builder
        return [builder(table.specs().get(f.specId())).copy(f).build() for f in unique.values()]

    def in_another_manifest(self, files):
        append = self.load().newFastAppend()
        for file in files:
            append.appendFile(file)
        append.commit()

    def in_one_manifest(self, files):
        """Takes the files away, and commits each twice in one manifest."""
        table = self.load()
        delete = table.newDelete()
        for file in files:
            delete.deleteFile(file)
        delete.commit()
        version = table.operations().current().formatVersion()
        for spec in {file.specId() for file in files}:
            place = f"{table.location()}/metadata/twice-{spec}-{table.currentSnapshot().snapshotId()}.avro"
            out = table.io().newOutputFile(place)
            writer = self.jvm.org.apache.iceberg.ManifestFiles.write(version, table.specs().get(spec), out, None)
            for file in [f for f in files if f.specId() == spec] * 2:
                writer.add(file)
            writer.close()
            self.load().newFastAppend().appendManifest(writer.toManifestFile()).commit()

    def thrice(self, files):
        """Two more times, in snapshots of their own."""
        self.in_another_manifest(files)
        self.in_another_manifest(files)

    def registrations(self):
        """File -> how often the table names it."""
        tasks = each(self.load().newScan().planFiles())
        return Counter(str(task.file().location()) for task in tasks)


WAYS = {"two manifests": Twice.in_another_manifest, "one manifest": Twice.in_one_manifest, "three": Twice.thrice}
TIMES = {"two manifests": 2, "one manifest": 2, "three": 3}


@pytest.fixture
def twice(spark):
    return lambda name: Twice(spark, name)


def by_every_way(sink, files):
    """Registers each file in the next of the ways, which go round. Returns how many records are there again."""
    assert len(files) >= len(WAYS)
    extra = 0
    for (way, register), file in zip(itertools.cycle(WAYS.items()), files, strict=False):
        register(sink, [file])
        extra += int(file.recordCount()) * (TIMES[way] - 1)
    return extra


def measures(result):
    return {m["partition"]: m for m in result["compacted"]["measures"]}


def files_of_each_log(spark, table, sink):
    """The files of partition 0, and those of partition 1: none has records of both."""
    logs = dict(spark.sql(f"SELECT DISTINCT _file, redpanda.`partition` FROM {full(table)}").collect())
    return [[file for file in sink.files() if logs[str(file.location())] == log] for log in (0, 1)]


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_a_round_of_an_adopted_table_keeps_each_record_once_and_counts_the_removed_ones(
    workshop, spark, redpanda, twice, version
):
    """Of version 3 test_a_round_of_one_log_keeps_what_others_have_in_its_files_once tells the same."""
    records, topic = list(changes(partitions=2)), f"doubled-v{version}"
    table = redpanda(topic, records, version)
    sink = twice(full(table))
    first, last = files_of_each_log(spark, table, sink)
    doubled = [*first[:2], *last[:2]]
    extra = by_every_way(sink, doubled)
    seen = len(by_spark(spark, table))
    assert seen == len(records) + extra

    out = workshop.ok("adopt", table)
    assert f"note: {len(doubled)} files are registered more than once: " in out and ", …" in out
    assert "partition 0: 40 records, offsets 0 to 39, 0 duplicates" in out
    settings(workshop, topic)
    result = workshop.json("compact", topic, "--now", NOW)
    assert result["ok"], result
    assert by_spark(spark, table) == read(workshop, topic) == expected(records)
    assert set(sink.registrations().values()) == {1}
    by_log = measures(result)
    assert sum(m["deleted"]["registered_twice"] for m in by_log.values()) == extra
    assert sum(m["records_in"] for m in by_log.values()) == seen
    assert all(m["imbalance"] == m["duplicate_keys"] == 0 for m in by_log.values())
    evidence = workshop.evidence(topic)
    assert (
        sum(json.loads(r["deleted"]).get("registered_twice", 0) for r in evidence if r["outcome"] == "checked") == extra
    )


@pytest.mark.deep
@pytest.mark.parametrize("version", [2, 3])
def test_files_that_several_logs_share_are_counted_log_by_log(workshop, spark, lake, twice, version):
    """test_a_round_of_one_log_keeps_what_others_have_in_its_files_once holds the rule for one log of a shared file."""
    columns, metadata, by = CONNECT["nested, one task for all partitions"]
    name = f"shared-twice-v{version}"
    records = [(p, o, ms, k[1:], v) for p, o, ms, k, v in changes(partitions=3)]
    select = ["CAST(k AS BIGINT) AS id", "v AS payload", metadata]
    groups = [records[n::3] for n in range(3)]
    table = lake(name, columns, groups, select, by, f"'format-version'='{version}'")
    sink = twice(full(table))
    again = by_every_way(sink, sink.files())
    workshop.ok("adopt", table, "--column", "key=id", "--column", "value=payload", "--topic", name)
    settings(workshop, name)
    result = workshop.json("compact", name, "--now", NOW)
    assert result["ok"], result
    assert read(workshop, name) == expected(records)
    assert spark.table(full(table)).count() == len(expected(records))
    deleted = [m["deleted"]["registered_twice"] for m in measures(result).values()]
    assert sum(deleted) == again and all(deleted)


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_a_round_keeps_the_visible_records_of_a_doubled_file_and_restores_no_deleted_one(
    workshop, spark, redpanda, twice, version
):
    records, topic = list(changes(partitions=1)), f"deleted-twice-v{version}"
    table = redpanda(topic, records, version)
    sink = twice(full(table))
    sink.in_another_manifest(sink.files())
    properties = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file'"
    spark.sql(f"ALTER TABLE {full(table)} SET TBLPROPERTIES ({properties})")
    spark.sql(f"DELETE FROM {full(table)} WHERE redpanda.`offset` IN (38, 39)")
    assert len(by_spark(spark, table)) == 76
    workshop.ok("adopt", table)
    settings(workshop, topic)
    result = workshop.json("compact", topic, "--now", NOW)
    assert result["ok"], result
    assert by_spark(spark, table) == read(workshop, topic) == expected([r for r in records if r[1] < 38])
    assert measures(result)[0]["deleted"]["registered_twice"] == 38


@pytest.mark.deep
def test_a_round_of_an_own_table_keeps_winners_and_tombstones_of_doubled_files_once(workshop, table_of, twice):
    """Each way with a file of a log of its own. Of the ways
    test_a_round_of_an_adopted_table_keeps_each_record_once_and_counts_the_removed_ones holds the rule, of a table of
    our own test_a_doubled_file_alone_makes_its_log_due_and_no_other."""
    topic, logs = workshop.topic("own-twice"), range(len(WAYS))
    first = [record(o, k, v, p) for p in logs for o, k, v in ((0, "a", "1"), (1, "b", "1"), (2, "c", None))]
    later = [record(o, k, v, p) for p in logs for o, k, v in ((3, "a", "2"), (4, "b", None), (5, "d", "1"))]
    workshop.ok("ingest", topic, "--file", workshop.file("first.jsonl", first))
    sink = twice(table_of(topic).name)
    old = sink.files()
    workshop.ok("ingest", topic, "--file", workshop.file("later.jsonl", later))
    new = [f for f in sink.files() if str(f.location()) not in {str(o.location()) for o in old}]
    by_every_way(sink, sorted(new, key=lambda file: file.partition().get(0)))
    result = workshop.json("compact", topic, "--now", NOW)
    assert result["ok"], result
    assert offsets(workshop.read(topic)) == [2, 3, 4, 5] * len(logs)
    again = [3 * (times - 1) for times in TIMES.values()]
    assert [m["deleted"] for _, m in sorted(measures(result).items())] == [
        {"superseded": 2, "registered_twice": extra} for extra in again
    ]
    assert set(sink.registrations().values()) == {1}


def test_a_doubled_file_alone_makes_its_log_due_and_no_other(workshop, table_of, twice):
    topic = workshop.topic("alone-twice", {"min.cleanable.dirty.ratio": 1.0, "segment.ms": 10**12})
    lines = [record(0, "a", "1"), record(0, "a", "1", partition=1), record(1, "b", "1")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    sink = twice(table_of(topic).name)
    sink.in_another_manifest([f for f in sink.files() if f.partition().get(0) == 0])
    plan = workshop.json("plan", topic, "--now", NOW)["partitions"]
    assert [p["action"] for p in plan] == ["compact", "none"]
    assert plan[0]["reason"].startswith("1 file is registered more than once: ")
    before = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert [log["records"] for log in before] == [2, 1]  # bytes and records of a file are counted once
    result = workshop.json("compact", topic, "--now", NOW)
    assert result["ok"] and result["compacted"]["published"] == [0]
    assert measures(result)[0]["deleted"]["registered_twice"] == 2
    assert [(r["partition"], r["offset"]) for r in workshop.read(topic)] == [(0, 0), (0, 1), (1, 0)]
    assert [p["action"] for p in workshop.json("plan", topic, "--now", NOW)["partitions"]] == ["none", "none"]


def made(workshop, table):
    """A round of everything that is due, on its branch."""
    plan = evaluate_topic(table.topic, now_ms=NOW, force=True)
    return plan, [compact_unit(table, unit) for unit in plan.units]


DAMAGES = ("lost", "left and not told", "other number", "left", "added again")
"""In every run those by each of which alone one measure is red."""


@pytest.mark.parametrize(
    ("damage", "version"),
    [
        *zip(DAMAGES[:3], (2, 3, 2), strict=True),
        *(pytest.param(damage, version, marks=pytest.mark.deep) for damage in DAMAGES[3:] for version in (2, 3)),
    ],
)
def test_a_check_fails_if_the_branch_keeps_neither_or_both_registrations(
    workshop, redpanda, table_of, twice, monkeypatch, damage, version
):
    records = list(changes(partitions=1, count=6))
    topic = f"damaged-{DAMAGES.index(damage)}-v{version}"
    name = redpanda(topic, records, version)
    sink = twice(full(name))
    [file, *_] = sink.files()
    sink.in_another_manifest([file])
    workshop.ok("adopt", name)
    settings(workshop, topic)
    table = table_of(topic)
    if damage.startswith("left"):
        write = SnapshotFiles.write
        monkeypatch.setattr(SnapshotFiles, "write", lambda self, removed, once=(): write(self, removed))
    if damage == "left and not told":
        monkeypatch.setattr("spark_jobs.round.make.removed_with", lambda *_: {})
    plan, units = made(workshop, table)
    iceberg, branch = table.load(), units[0].branch
    if damage == "lost":
        iceberg.newDelete().deleteFile(file).toBranch(branch).commit()
    if damage == "added again":
        iceberg.newFastAppend().appendFile(file).toBranch(branch).commit()
    if damage == "other number":
        rewrite = iceberg.newRewrite().validateFromSnapshot(table.head_of(branch)).dataSequenceNumber(2)
        rewrite.deleteFile(file).addFile(file).toBranch(branch).commit()
    checked = check_round(table, plan.round, units)
    assert not checked.ok
    red = {f.expectation + f.observed for v in checked.verdicts for f in v.failures}
    measure = checked.measures[0]
    broken = {
        "lost": ("missing_winners", "data_files_changed", "imbalance"),
        "left": ("duplicate_keys", "imbalance"),
        "left and not told": ("duplicate_keys",),
        "added again": ("duplicate_keys", "data_files_changed", "imbalance"),
        "other number": ("data_files_changed",),
    }[damage]
    assert all(getattr(measure, rule) for rule in broken), (measure, red)


def test_another_registration_between_check_and_publish_starts_the_round_over(
    workshop, spark, redpanda, table_of, twice
):
    records, topic = list(changes(partitions=1, count=20)), "between-twice"
    name = redpanda(topic, records, 2)
    sink = twice(full(name))
    files = sink.files()
    sink.in_another_manifest(files)
    workshop.ok("adopt", name)
    settings(workshop, topic)
    table = table_of(topic)
    plan, units = made(workshop, table)
    checked = check_round(table, plan.round, units)
    sink.in_another_manifest(files[:1])
    assert publish_or_start_over(Run(table), checked).published == (0,)
    assert by_spark(spark, name) == expected(records)
    assert set(sink.registrations().values()) == {1}


def test_reclaim_and_latest_go_on_and_a_file_that_comes_again_is_cleaned_again(workshop, spark, redpanda, twice):
    """In version 2 position deletes are older than the next registration: every reader sees all of its records again.
    That a rollback undoes the whole round, test_a_round_that_registered_files_once_is_undone_with_its_parts holds."""
    records, topic = list(changes(partitions=1, count=20)), "goes-on"
    name = redpanda(topic, records, 2)
    sink = twice(full(name))
    sink.thrice(sink.files())
    workshop.ok("adopt", name)
    settings(workshop, topic, **{"cleantail.reclaim.deleted.ratio": 0.01})
    assert workshop.json("reclaim", topic, "--now", NOW)["rewritten_files"] == 0
    assert len(by_spark(spark, name)) == 60
    shown = [json.loads(line) for line in workshop.ok("latest", topic, "--now", NOW).splitlines()]
    alive = [r for r in expected(records) if r[3] is not None]
    assert [(r["partition"], r["offset"], r["key"], r["payload"]) for r in shown] == alive
    workshop.ok("compact", topic, "--now", NOW)
    clean = expected(records)
    sink.in_another_manifest(sink.files())
    assert len(by_spark(spark, name)) == len(clean) + 20
    result = workshop.json("compact", topic, "--now", NOW + 2)
    assert measures(result)[0]["deleted"]["registered_twice"] == len(clean)
    workshop.ok("reclaim", topic, "--now", NOW + 5000)
    assert by_spark(spark, name) == read(workshop, topic) == clean
    assert set(sink.registrations().values()) == {1}


@pytest.mark.deep
def test_a_publish_that_dies_changes_nothing_and_the_next_one_completes_the_round(
    workshop, spark, redpanda, table_of, twice, monkeypatch
):
    """As of any round, which is one commit: tests/jobs/round/test_held_rounds.py holds the rule."""
    records, topic = list(changes(partitions=1, count=12)), "dies-twice"
    name = redpanda(topic, records, 3)
    sink = twice(full(name))
    sink.in_one_manifest(sink.files())
    workshop.ok("adopt", name)
    settings(workshop, topic)
    table, _platform = table_of(topic), workshop.platform()
    plan, units = made(workshop, table)
    checked = check_round(table, plan.round, units)
    before = by_spark(spark, name)
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(commits, "before_commit", die)
        publish_or_start_over(Run(table), checked)
    spark.sql(f"REFRESH TABLE {full(name)}")
    assert by_spark(spark, name) == before and len(before) == 24
    with dying_before_its_evidence(monkeypatch):
        publish_or_start_over(Run(table), checked)
    done = publish_or_start_over(Run(table), checked)
    assert (done.round, done.published) == (checked.round, (0,))
    assert by_spark(spark, name) == expected(records)


@pytest.mark.deep
def test_records_without_a_key_are_moved_once(workshop, spark, redpanda, table_of, twice):
    """test_a_round_of_an_adopted_table_keeps_each_record_once_and_counts_the_removed_ones holds the rule for the
    others."""
    topic = "keyless-twice"
    records = [(0, 0, NOW - HOUR, "a", "1"), (0, 1, NOW - HOUR, None, "2"), (0, 2, NOW - HOUR, "a", "3")]
    name = redpanda(topic, records, 2)
    sink = twice(full(name))
    sink.in_another_manifest(sink.files())
    workshop.ok("adopt", name)
    settings(workshop, topic, **{"cleantail.keyless.policy": "quarantine"})
    workshop.ok("compact", topic, "--now", NOW)
    assert [r[:2] for r in by_spark(spark, name)] == [(0, 2)]
    assert [row.offset for row in spark.table(side_table(table_of(topic))).collect()] == [1]


@pytest.mark.deep
def test_a_round_above_the_limit_waits_for_a_person_who_sees_each_record_once(workshop, spark, redpanda, twice):
    """test_a_round_above_the_limit_is_published_only_with_an_approval in test_held_rounds.py holds the rule."""
    topic = "limit-twice"
    records = [(0, o, NOW - HOUR + o, f"k{o % 2}", f"v{o}") for o in range(4)]
    name = redpanda(topic, records, 3)
    sink = twice(full(name))
    sink.thrice(sink.files())
    workshop.ok("adopt", name)
    settings(workshop, topic, **{"cleantail.max.drop.ratio": 0.5})
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 5 and "10 of 12 records would be removed, above cleantail.max.drop.ratio 0.5" in err
    assert err.count("offset 0 dropped; offset 2 of its key stays") == 1
    workshop.ok("compact", topic, "--now", NOW, "--approve")
    assert by_spark(spark, name) == expected(records)


@pytest.mark.deep
def test_several_tasks_keep_each_record_once_by_timestamp(workshop, spark, redpanda, twice, monkeypatch):
    """test_a_round_of_an_adopted_table_keeps_each_record_once_and_counts_the_removed_ones holds the rule."""
    topic = "timestamp-twice"
    records = [(0, o, NOW - HOUR + (o * 7919) % 1000, f"k{o % 5}", None if o % 9 == 4 else f"v{o}") for o in range(60)]
    name = redpanda(topic, records, 2)
    append(spark, name, [(0, o, NOW - HOUR + (o * 7919) % 1000, f"k{o % 5}", f"v{o}") for o in range(60, 70)])
    records += [(0, o, NOW - HOUR + (o * 7919) % 1000, f"k{o % 5}", f"v{o}") for o in range(60, 70)]
    sink = twice(full(name))
    sink.in_another_manifest(sink.files())
    workshop.ok("adopt", name)
    settings(workshop, topic, **{"compaction.strategy": "timestamp"})
    monkeypatch.setattr("spark_jobs.engine.tasks.task_sizes", lambda *_: TaskSizes(40, 40, 1 << 40, 1, 1))
    result = workshop.json("compact", topic, "--now", NOW)
    assert result["ok"], result
    winners = {}
    for _, o, ms, k, v in records:
        winners[k] = max(winners.get(k, (-1,)), (ms, o, v))
    assert by_spark(spark, name) == sorted((0, o, k, v) for k, (_, o, v) in winners.items())
    assert measures(result)[0]["deleted"]["registered_twice"] == 70


def test_an_expiry_keeps_each_record_of_a_doubled_file_once(workshop, table_of, twice):
    topic = workshop.topic("expiry-twice")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "a", "1"), record(1, "t", None)]))
    sink = twice(table_of(topic).name)
    first = {str(f.location()) for f in sink.files()}
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(2, "b", "1"), record(3, "c", "1")]))
    workshop.ok("compact", topic, "--now", NOW)
    sink.in_another_manifest([f for f in sink.files() if str(f.location()) not in first])
    done = rounds.expire_round(Run(table_of(topic)), NOW + 5000, [0])
    assert done.published == (0,)
    assert [dict(m.deleted) for m in done.measures] == [{"expired": 1, "registered_twice": 2}]
    assert offsets(workshop.read(topic)) == [0, 2, 3]
    assert set(sink.registrations().values()) == {1}


def test_a_round_of_one_log_keeps_what_others_have_in_its_files_once(workshop, spark, lake, twice):
    columns, metadata, by = CONNECT["nested, one task for all partitions"]
    records = [(p, o, NOW - HOUR + o, f"{o % 2}", f"v{o}") for p in (0, 1) for o in range(4)]
    select, name = ["CAST(k AS BIGINT) AS id", "v AS payload", metadata], "one-of-two"
    table = lake(name, columns, [records], select, by, "'format-version'='3'")
    sink = twice(full(table))
    sink.in_another_manifest(sink.files())
    workshop.ok("adopt", table, "--column", "key=id", "--column", "value=payload", "--topic", name)
    settings(workshop, name)
    result = workshop.json("compact", name, "--now", NOW, "--partition", 0)
    assert result["ok"] and list(measures(result)) == [0]
    assert measures(result)[0]["deleted"] == {"superseded": 2, "registered_twice": 4}
    left = [r for r in read(workshop, name) if r[0] == 1]
    assert left == [(p, o, k, v) for p, o, _, k, v in records if p == 1]
    assert [r for r in read(workshop, name) if r[0] == 0] == [r for r in expected(records) if r[0] == 0]

"""Files rewritten by tasks: the same records in the same order, with all that Iceberg knows of them, or by Spark."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestamptzType

from cleantail.lake.catalogs import open_catalog
from spark_jobs.engine.table_files import write_settings
from spark_jobs.engine.written_files import RefusedError, TableSchema
from spark_jobs.iceberg.file_removal import remove_orphans
from spark_jobs.iceberg.snapshot_files import planned_files
from spark_jobs.round import reclaim, staged_rewrites
from tests.jobs.conftest import REDPANDA, SINK, settings

NOW, FAR = 1_800_000_000_000, 1 << 45
HOUR = 3_600_000
ALL_GOES = {"cleantail.reclaim.deleted.ratio": 0.01, "cleantail.reclaim.min.merge.files": 2}
LINEAGE = "_row_id, _last_updated_sequence_number"


def record(offset, key, value, partition=0, **more):
    return {
        "partition": partition,
        "offset": offset,
        "tstype": "create",
        "ts": 1_700_000_000_000 + offset,
        "key": key,
        "payload": value,
    } | more


@pytest.fixture
def compacted(workshop):
    """A topic of two logs, or of `logs`, in two files each, of which a round has hidden records; returns its name."""

    def make(name, logs=(0, 1)):
        topic = workshop.topic(name, ALL_GOES)
        for n in range(2):
            lines = [
                record(20 * n + i, f"k{i + 5 * n}" if i else "", f"v{n}{i}" * 30 if i % 4 else None, p)
                for p in logs
                for i in range(15)
            ]
            workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
        workshop.ok("compact", topic, "--now", NOW)
        return topic

    return make


@pytest.fixture
def no_branches(monkeypatch):
    """Spark rewrites nothing."""

    def never(*_):
        raise AssertionError("Spark was to rewrite a group")

    monkeypatch.setattr(staged_rewrites, "stage_on_branch", never)


@pytest.fixture
def on_branches(monkeypatch):
    """The groups that Spark has rewritten."""
    groups, real = [], staged_rewrites.stage_on_branch

    def seen(table, group, *more):
        groups.append(group)
        return real(table, group, *more)

    monkeypatch.setattr(staged_rewrites, "stage_on_branch", seen)
    return groups


def rows(table, *more):
    """All that readers see, and `more` of it."""
    return sorted(map(str, table.spark.table(table.name).selectExpr("*", *more).collect()))


def data_files(table):
    return table.spark.sql(f"SELECT * FROM {table.name}.files WHERE content = 0 ORDER BY file_path").collect()


def planned(table):
    iceberg = table.load()
    return planned_files(iceberg, table.jvm, iceberg.currentSnapshot().snapshotId())


def on_disk(table):
    return {str(f) for f in Path(str(table.load().location()).removeprefix("file:")).rglob("data/**/*.parquet")}


def test_records_keep_columns_row_ids_and_order_and_metadata_say_what_is_in_the_new_files(
    workshop, table_of, compacted, no_branches
):
    topic = compacted("rewritten-own")
    table = table_of(topic)
    before = data_files(table)
    lineage, read = rows(table, "_row_id", "_last_updated_sequence_number"), workshop.read(topic)
    commits = table.load().currentSnapshot().sequenceNumber()
    arrived = {f.dataSequenceNumber() for f in (t.task.file() for t in planned(table))}
    result = workshop.json("reclaim", topic, "--now", NOW)
    assert (result["rewritten_files"], result["new_files"]) == (4, 2)
    require_true_metadata(data_files(table), before)
    assert table.load().currentSnapshot().sequenceNumber() == commits + 1  # small logs share a commit
    assert rows(table, "_row_id", "_last_updated_sequence_number") == lineage
    assert workshop.read(topic) == read
    placed = table.spark.sql(f"SELECT _file, _pos, `offset` FROM {table.name} ORDER BY _file, _pos").collect()
    assert placed == sorted(placed, key=lambda r: (r._file, r.offset))
    new = planned(table)
    assert [f.task.file().dataSequenceNumber() for f in new] == [max(arrived)] * 2
    assert [len(f.delete_files) for f in new] == [0, 0]
    # PyIceberg reads them, too, and a second rewrite keeps what the first has kept
    seen = open_catalog(workshop.platform()).load_table(table.topic.table).scan().to_arrow()
    assert sorted(seen["offset"].to_pylist()) == sorted(r["offset"] for r in read)
    workshop.ok(
        "ingest", topic, "--file", workshop.file("more.jsonl", [record(90, "k7", "w"), record(90, "k7", "w", 1)])
    )
    workshop.ok("compact", topic, "--now", NOW + 1, "--force")
    lineage = rows(table, "_row_id", "_last_updated_sequence_number")
    assert workshop.json("reclaim", topic, "--now", NOW + 1)["new_files"] == 2
    assert rows(table, "_row_id", "_last_updated_sequence_number") == lineage


def require_true_metadata(files, before):
    """Of new files, what their metadata say is what is in them; `before`: the files that were rewritten."""
    for file in files:
        assert file.file_path not in {f.file_path for f in before}
        path = file.file_path.removeprefix("file:")
        content, offsets = pq.read_table(path), file.readable_metrics.offset
        assert (file.record_count, file.file_size_in_bytes) == (content.num_rows, os.path.getsize(path))
        assert (file.sort_order_id, file.spec_id) == (before[0].sort_order_id, before[0].spec_id)
        numbers = content["offset"].to_pylist()
        assert (offsets.lower_bound, offsets.upper_bound) == (numbers[0], numbers[-1])
        assert file.readable_metrics.value.null_value_count == content["value"].null_count > 0
        assert file.readable_metrics.key.lower_bound == b""  # an empty key is a key
        assert set(file.lower_bounds) >= {1, 2, 3, 4, 5, 8} and 6 not in file.lower_bounds  # values: counts only
        assert list(file.split_offsets) == [4]
        assert content["tombstone"].to_pylist() == [value is None for value in content["value"].to_pylist()]
        assert {f.metadata[b"PARQUET:field_id"] for f in content.schema} >= {str(i).encode() for i in range(1, 9)}


def test_files_end_near_the_tables_target(workshop, table_of, no_branches):
    topic = workshop.topic("rewritten-target", ALL_GOES)
    table = table_of(topic)
    for n in (0, 100, 200, 300):  # each of the two is too large next to the other
        lines = [record(n + i, f"r{n + i}", os.urandom(3000).hex()) for i in range(100)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    table.set_properties({"write.target-file-size-bytes": "100000"})
    before = rows(table)
    assert workshop.json("reclaim", topic, "--now", NOW)["new_files"] > 3
    assert rows(table) == before
    files = data_files(table)
    assert max(f.file_size_in_bytes for f in files) < 120_000
    bounds = sorted((f.readable_metrics.offset.lower_bound, f.readable_metrics.offset.upper_bound) for f in files)
    assert all(high < low for (_, high), (low, _) in zip(bounds, bounds[1:], strict=False))


@pytest.mark.deep
@pytest.mark.parametrize("version", [2, 3])
def test_an_adopted_table_keeps_the_columns_that_its_sink_has_written(
    workshop, spark, redpanda, table_of, no_branches, version
):
    """test_reclaim_writes_parquet_whatever_other_format_the_table_names holds the rule."""
    records = [(p, o, NOW - HOUR + o, f"k{o % 3}", None if o % 5 == 0 else "v") for p in (0, 1) for o in range(20)]
    name, topic = redpanda(f"rewritten-{version}", records, version), f"rewritten-{version}"
    workshop.ok("adopt", name)
    settings(workshop, topic, **ALL_GOES)
    workshop.ok("compact", topic, "--now", NOW)
    table, more = table_of(topic), LINEAGE.split(", ") if version == 3 else []
    before = rows(table, *more)
    assert workshop.json("reclaim", topic, "--now", NOW)["new_files"] == 2
    assert rows(table, *more) == before
    assert not table.spark.sql(f"SELECT * FROM {table.name}.delete_files").collect()


def test_what_another_writer_deletes_meanwhile_stays_deleted_and_no_new_file_is_left(
    workshop, spark, table_of, compacted, no_branches, monkeypatch
):
    """In partition 0 before the files are planned, in partition 1 after they were rewritten."""
    topic = compacted("rewritten-meanwhile", logs=(0, 1, 2))
    table, now, swap = table_of(topic), staged_rewrites.Plans.now, reclaim.swap
    before, files, deleted = rows(table), on_disk(table), []

    def delete(partition):
        if partition not in deleted:
            deleted.append(partition)
            spark.sql(f"DELETE FROM {table.name} WHERE `partition` = {partition} AND `offset` = 34")

    with monkeypatch.context() as patch:
        patch.setattr(staged_rewrites.Plans, "now", lambda self: delete(0) or now(self))
        patch.setattr(reclaim, "swap", lambda *given: delete(1) or swap(*given))
        assert workshop.json("reclaim", topic, "--now", NOW)["new_files"] == 1  # the third group's
    left = [r for r in before if "partition=2" in r or "offset=34," not in r]
    assert rows(table) == left != before and deleted == [0, 1]
    assert len(on_disk(table) - files) == 1


@pytest.mark.deep
def test_spark_rewrites_the_small_logs_that_their_task_refuses_and_tasks_the_others(
    workshop, table_of, compacted, on_branches, monkeypatch
):
    """test_spark_rewrites_files_that_no_task_can_rewrite_unless_a_round_came_after_the_plan holds the rule."""
    topic = compacted("rewritten-one-refused")
    table, real = table_of(topic), staged_rewrites.rewrite_task
    before = rows(table)

    def refused(table, iceberg, files):
        if "/partition=1/" in files[0].path:
            raise RefusedError("partition 1 is not for tasks")
        return real(table, iceberg, files)

    monkeypatch.setattr(staged_rewrites, "rewrite_task", refused)
    assert workshop.json("reclaim", topic, "--now", NOW)["new_files"] == 2
    assert [{file.partition for file in group} for group in on_branches] == [{1}]
    assert rows(table) == before
    assert {Path(f.file_path).name.startswith("rewritten-") for f in data_files(table)} == {True, False}


def test_a_task_that_is_killed_leaves_the_table_as_it_was_and_an_orphan(
    workshop, spark, table_of, compacted, no_branches, monkeypatch
):
    topic = compacted("rewritten-killed", logs=(0,))
    table, real = table_of(topic), staged_rewrites.rewrite_all
    before, snapshot, files = rows(table), table.load().currentSnapshot().snapshotId(), on_disk(table)

    def killed(properties, task):
        from spark_jobs.engine.written_files import NewFiles

        def die(self):
            self.flush()
            self._open[1].flush()
            os.kill(os.getpid(), signal.SIGKILL)

        NewFiles.close = die
        return real(properties, task)

    monkeypatch.setattr(staged_rewrites, "rewrite_all", killed)
    assert workshop.run("reclaim", topic, "--now", NOW)[0] != 0
    orphans = on_disk(table) - files
    assert orphans and table.load().currentSnapshot().snapshotId() == snapshot
    iceberg = table.load()
    of_branch = 2  # manifest and manifest list of the round's branch, which has no snapshot any more
    assert remove_orphans(spark, iceberg, FAR, str(iceberg.location()), 0) == len(orphans) + of_branch
    assert not orphans & on_disk(table)
    assert rows(table) == before


@pytest.mark.parametrize(
    ("properties", "overlap"),
    [
        pytest.param({"write.format.default": "orc"}, False, id="orc", marks=pytest.mark.deep),
        pytest.param({"write.format.default": "AVRO", "write.delete.format.default": "orc"}, False, id="avro, deletes"),
        pytest.param({"write.format.default": "ORC"}, True, id="orc, rewritten by Spark"),
        pytest.param(
            {"write.format.default": "avro", "write.delete.format.default": "avro"},
            True,
            id="avro, by Spark",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_reclaim_writes_parquet_whatever_other_format_the_table_names(
    workshop, spark, lake, table_of, on_branches, properties, overlap
):
    """As where the sink writes Parquet by an option of its own. No column changes, and files that overlap become one in
    the order of the offsets. The names of an unpartitioned table's files have no empty parts."""
    asked = {"format-version": "2"} | properties
    topic = "-".join(properties.values()).lower() + f"-{overlap}"
    records = [(0, o, NOW - HOUR, f"k{o % 3}", f"v{o}") for o in range(20)]
    groups = [records[::2], records[1::2]] if overlap else [records[:10], records[10:]]
    table = lake(topic, f"redpanda {REDPANDA}, value binary", [], SINK)
    sets = ", ".join(f"'{k}'='{v}'" for k, v in asked.items())
    spark.sql(f"ALTER TABLE cleantail.sinks.`{topic}` SET TBLPROPERTIES ({sets})")
    for rows_of_file in groups:
        frame = spark.createDataFrame(rows_of_file, "p int, o bigint, ms bigint, k string, v string").coalesce(1)
        frame.selectExpr(*SINK).writeTo(f"cleantail.sinks.`{topic}`").option("write-format", "parquet").append()
    workshop.ok("adopt", table)
    settings(workshop, topic, **ALL_GOES)
    workshop.ok("compact", topic, "--now", NOW)
    table = table_of(topic)
    before = rows(table)
    assert workshop.json("reclaim", topic, "--now", NOW)["rewritten_files"] == 2
    assert bool(on_branches) == overlap
    formats = spark.sql(f"SELECT DISTINCT file_format FROM {table.name}.all_files").collect()
    assert [row.file_format for row in formats] == ["PARQUET"]
    [file] = data_files(table)
    assert "//" not in file.file_path.removeprefix("file://")
    assert rows(table) == before
    placed = spark.sql(f"SELECT redpanda.`offset` FROM {table.name} ORDER BY _pos").collect()
    assert [row.offset for row in placed] == [17, 18, 19]


def test_a_type_that_icebergs_writers_do_not_write_is_refused():
    field = pa.field("timestamp", pa.timestamp("ms", "UTC"), metadata={b"PARQUET:field_id": b"1"})
    table = Schema(NestedField(1, "timestamp", TimestamptzType(), required=False))
    with pytest.raises(RefusedError, match=r"timestamp\[ms, tz=UTC\]"):
        TableSchema(table.model_dump_json(), 3).written(pa.schema([field]), "f.parquet")


@pytest.mark.parametrize(
    ("properties", "asked"),
    [
        pytest.param({"write.parquet.bloom-filter-enabled.column.key": "true"}, "bloom-filter", id="a filter"),
        pytest.param({"write.parquet.compression-codec": "brotli"}, "brotli", id="a codec"),
        pytest.param({"write.target-file-size-bytes": "much"}, "not a number", id="no number"),
    ],
)
def test_a_table_that_asks_for_something_else_is_refused(properties, asked):
    with pytest.raises(RefusedError, match=asked):
        write_settings(properties, 1 << 30)


def test_write_settings_are_the_tables_or_icebergs_defaults():
    plain = write_settings({}, 1 << 30)
    assert (plain.codec, plain.level, plain.target_bytes, plain.row_group_bytes) == ("gzip", 6, 512 << 20, 128 << 20)
    own = write_settings({"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "9"}, 64 << 20)
    assert (own.codec, own.level, own.row_group_bytes) == ("zstd", 9, 16 << 20)


@pytest.mark.deep
def test_a_reclaim_that_another_machine_overtakes_leaves_the_files_to_it(workshop, table_of, compacted, monkeypatch):
    """The other one has rewritten the files, and deleted the old ones, before the tasks of this one open them.

    Of other writers test_what_another_writer_deletes_meanwhile_stays_deleted_and_no_new_file_is_left holds the rule."""
    topic, real, others = compacted("rewritten-overtaken"), staged_rewrites.run_tasks, []
    before = rows(table_of(topic))

    def overtaken(*arguments):
        if not others:
            others.append(1)
            others.append(workshop.json("reclaim", topic, "--now", NOW + 60 * 86_400_000))
        return real(*arguments)

    monkeypatch.setattr(staged_rewrites, "run_tasks", overtaken)
    result = workshop.json("reclaim", topic, "--now", NOW)
    assert others[1]["new_files"] > 0 and result["new_files"] == 0
    assert rows(table_of(topic)) == before


def test_spark_rewrites_files_that_no_task_can_rewrite_unless_a_round_came_after_the_plan(
    workshop, spark, table_of, compacted, on_branches, monkeypatch
):
    """Here the schema has changed since the files were written. A round of another machine may come: locks are for one
    home."""
    topic = compacted("rewritten-schema", logs=(0,))
    table = table_of(topic)
    spark.sql(f"ALTER TABLE {table.name} ADD COLUMN seen int")
    workshop.ok(
        "ingest", topic, "--file", workshop.file("later.jsonl", [record(50 + i, f"k{i}", "v") for i in range(9)])
    )
    real = reclaim.rewrite_groups

    def overtaken(table, groups):
        workshop.ok("compact", topic, "--now", NOW + 1, "--force")
        return real(table, groups)

    with monkeypatch.context() as patch:
        patch.setattr(reclaim, "rewrite_groups", overtaken)
        assert workshop.json("reclaim", topic, "--now", NOW + 1)["rewritten_files"] == 0
    assert on_branches
    before = rows(table)
    assert workshop.json("reclaim", topic, "--now", NOW + 1)["rewritten_files"]
    assert rows(table) == before

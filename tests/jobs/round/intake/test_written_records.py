"""Files that tasks have written themselves are as Spark's would be, and where tasks cannot write them Spark does."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest

from cleantail.sources.kcat import TIMESTAMP_MAX_MS
from spark_jobs.round.intake import ingest
from tests.jobs.round.test_rounds import offsets, record

FACTS = (
    "partition, sort_order_id, spec_id, sum(record_count) OVER (PARTITION BY partition) AS records, readable_metrics"
)
BY_TASKS = "ingested-"
"""What the names of files begin with that tasks have written."""


def files_of(table):
    """Partition, path, bounds and records of the table's files, by partition and offset."""
    columns = "partition.partition AS p, file_path AS path, readable_metrics.`offset` AS o, record_count AS records"
    rows = table.spark.sql(f"SELECT {columns} FROM {table.name}.files").collect()
    return sorted(rows, key=lambda row: (row.p, row.o.lower_bound))


def require_no_other_file(table):
    """No Parquet file lies in the table's folder that the table does not know."""
    folder = Path(urlparse(str(table.load().location())).path)
    assert {str(path) for path in (folder / "data").rglob("*.parquet")} == {
        urlparse(row.path).path for row in files_of(table)
    }


def set_codec(table, codec):
    """Tasks do not write lz4: there Spark does."""
    table.spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.parquet.compression-codec' = '{codec}')")


def small_ranges(monkeypatch, size):
    monkeypatch.setattr("cleantail.sources.source_files.RANGE_BYTES_MIN", size)
    monkeypatch.setattr("cleantail.sources.source_files.TASKS_PER_CORE", 4)


def lines_of(logs, records):
    """Records of the logs in turn, as kcat shows them: tombstones, empty ones, headers and none."""
    values = ("x" * 40, None, "", "{}")
    return [
        record(
            offset,
            None if offset % 7 == 6 else f"k{offset % 5}",
            values[offset % 4],
            partition=log,
            ts=1_600_000_000_000 + offset,
            headers=["h", "v", "h", None] if offset % 3 == 0 else [],
        )
        for offset in range(records)
        for log in range(logs)
    ]


def test_files_of_tasks_have_one_log_each_in_order_with_the_columns_and_metrics_of_sparks(
    workshop, table_of, monkeypatch
):
    topics = [workshop.topic("by-tasks"), workshop.topic("by-spark")]
    file = workshop.file("a.jsonl", lines_of(3, 40))
    workshop.ok("ingest", topics[0], "--file", file)
    monkeypatch.setattr(ingest, "LOGS_MAX", 0)  # then Spark writes
    workshop.ok("ingest", topics[1], "--file", file)
    found = {}
    for topic in topics:
        files = files_of(table_of(topic))
        assert [BY_TASKS in row.path for row in files] == [topic == "by-tasks"] * 3
        for row in files:
            read = pq.read_table(urlparse(row.path).path, partitioning=None)
            assert set(read["partition"].to_pylist()) == {row.p}
            assert read["offset"].to_pylist() == list(range(40))
            assert read["tombstone"].to_pylist() == [value is None for value in read["value"].to_pylist()]
        rows = table_of(topic).spark.sql(f"SELECT {FACTS} FROM {table_of(topic).name}.files ORDER BY 1").collect()
        sizes = ("column_size",)
        found[topic] = [
            (
                row.partition,
                row.sort_order_id,
                row.spec_id,
                row.records,
                _without(row.readable_metrics.asDict(True), sizes),
            )
            for row in rows
        ]
        require_no_other_file(table_of(topic))
    assert found["by-tasks"] == found["by-spark"]
    one, other = ([{**row, "topic": ""} for row in workshop.read(topic)] for topic in topics)
    assert one == other and len(one) == 120


def _without(metrics, names):
    return {column: {k: v for k, v in facts.items() if k not in names} for column, facts in metrics.items()}


def test_a_file_that_is_cut_gives_files_that_follow_each_other(workshop, table_of, monkeypatch):
    topic, lines = workshop.topic("in-ranges"), lines_of(2, 300)
    file = workshop.file("a.jsonl", lines)
    small_ranges(monkeypatch, 1000)
    assert workshop.json("ingest", topic, "--file", file)["records"] == 600
    files = files_of(table_of(topic))
    assert len(files) > 4 and all(BY_TASKS in row.path for row in files)
    for log in (0, 1):
        bounds = [(row.o.lower_bound, row.o.upper_bound) for row in files if row.p == log]
        assert bounds[0][0] == 0 and bounds[-1][1] == 299
        assert all(after[0] == before[1] + 1 for before, after in zip(bounds, bounds[1:], strict=False))
    assert offsets(workshop.read(topic, "--partition", 0)) == list(range(300))


def test_a_bad_line_of_a_cut_file_is_named_by_its_number_in_the_file_and_no_file_is_left(
    workshop, table_of, monkeypatch
):
    topic = workshop.topic("bad-in-ranges")
    workshop.ok("ingest", topic, "--file", workshop.file("good.jsonl", [record(0, "a", "x", partition=9)]))
    good = workshop.file("bad.jsonl", lines_of(2, 300)).read_text().splitlines()
    small_ranges(monkeypatch, 1000)
    for at in (5, 450):  # in the first range, and in a later one
        lines = [*good]
        lines[at - 1] = json.dumps(record(-1, "a", "x"))
        (workshop.config / "bad.jsonl").write_text("\n".join(lines))
        code, _, err = workshop.run("ingest", topic, "--file", workshop.config / "bad.jsonl")
        assert code == 2 and f'bad.jsonl:{at}: "offset" is -1' in err and "nothing was appended" in err
        require_no_other_file(table_of(topic))
    assert len(workshop.read(topic)) == 1


def test_data_files_are_sorted_by_offset_whatever_the_order_of_the_lines(workshop, table_of, monkeypatch):
    topic = workshop.topic("any-order")
    small_ranges(monkeypatch, 100)
    back, log_again, copies_in_turn = [0, 2, 1, 3], [0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 1, 1]
    orders = (back, log_again, copies_in_turn)
    lines = [record(number, "a", "x", partition=log) for log, numbers in enumerate(orders) for number in numbers]
    assert workshop.json("ingest", topic, "--file", workshop.file("a.jsonl", lines))["records"] == len(lines)
    files = files_of(table_of(topic))
    assert {row.p for row in files} == {0, 1, 2}
    for row in files:
        stored = pq.read_table(urlparse(row.path).path, partitioning=None)["offset"].to_pylist()
        assert stored == sorted(stored)
    require_no_other_file(table_of(topic))
    read = workshop.read(topic)
    for log, numbers in enumerate(orders):
        assert sorted(offsets(r for r in read if r["partition"] == log)) == sorted(numbers)


@pytest.mark.parametrize("codec", ["zstd", pytest.param("lz4", marks=pytest.mark.deep)], ids=["by tasks", "by Spark"])
def test_a_file_without_a_record_appends_nothing_and_is_known_from_then_on(workshop, table_of, codec):
    topic = workshop.topic(f"empty-{codec}")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "a", "x"), record(1, "b", "y")]))
    set_codec(table_of(topic), codec)
    empty = workshop.file("b.jsonl", [])
    for text in ("", "\n \n\n"):
        empty.write_text(text)
        done = workshop.json("ingest", topic, "--file", empty)
        assert (done["records"], done["files"][0]["skipped"]) == (0, False)
        assert offsets(workshop.read(topic)) == [0, 1]
        assert workshop.json("ingest", topic, "--file", empty)["files"][0]["skipped"]
    require_no_other_file(table_of(topic))


def test_spark_writes_the_files_if_there_are_more_logs_than_a_task_may_hold_open(workshop, table_of, monkeypatch):
    topic = workshop.topic("many-logs")
    monkeypatch.setattr(ingest, "LOGS_MAX", 3)
    file = workshop.file("a.jsonl", lines_of(4, 5))
    assert workshop.json("ingest", topic, "--file", file)["records"] == 20
    assert not any(BY_TASKS in row.path for row in files_of(table_of(topic)))
    require_no_other_file(table_of(topic))


def test_a_task_with_many_logs_writes_what_it_holds_before_it_is_too_much(workshop, table_of, monkeypatch):
    topic = workshop.topic("little-memory", {"segment.bytes": 1_048_576})
    value = "".join(f"{number:08}" for number in range(4_000))
    lines = [record(n // 3, "a", value[n:], partition=n % 3) for n in range(120)]
    assert workshop.json("ingest", topic, "--file", workshop.file("a.jsonl", lines))["records"] == 120
    groups = [pq.read_metadata(urlparse(row.path).path).num_row_groups for row in files_of(table_of(topic))]
    assert max(groups) > 1
    assert sorted(offsets(workshop.read(topic, "--partition", 0))) == list(range(40))


def test_a_codec_that_only_sparks_writer_has_is_written_by_it(kafka, workshop, landed, table_of):
    topic = workshop.topic("in-lz4", source=kafka.source())
    kafka.create(topic, 2)
    kafka.send(topic, [(b"a", b"x")])
    workshop.ok("ingest", topic)
    set_codec(table_of(topic), "lz4")
    kafka.send(topic, [(b"b", None, [("h", b"1")])], partition=1)
    assert workshop.json("ingest", topic)["records"] == 1
    assert [BY_TASKS in row.path for row in files_of(table_of(topic))] == [True, False]
    assert landed(topic) == kafka.consumed(topic, 2)


def test_a_read_that_fails_in_one_partition_leaves_no_file_of_another(kafka, workshop, landed, table_of):
    topic = workshop.topic("fails-in-one", source=kafka.source())
    kafka.create(topic, 3)
    kafka.send(topic, [(b"a", b"x")])
    workshop.ok("ingest", topic)
    kafka.send(topic, [(b"b", b"y")] * 500)
    kafka.send(topic, [(b"c", b"z", None, TIMESTAMP_MAX_MS + 1)], partition=1)
    kafka.send(topic, [(b"d", b"w")] * 500, partition=2)
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and "partition 1, offset 0: timestamp" in err and "nothing was appended" in err
    require_no_other_file(table_of(topic))
    assert len(landed(topic)) == 1


def test_a_table_whose_partition_column_was_widened_is_written_by_spark(workshop, table_of, spark):
    topic = workshop.topic("widened-partition")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "k", "v")]))
    spark.sql(f"ALTER TABLE {table_of(topic).name} ALTER COLUMN partition TYPE bigint")
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(1, "k", "w"), record(2, "l", "x")]))
    assert offsets(workshop.read(topic)) == [0, 1, 2]
    assert [BY_TASKS in row.path for row in files_of(table_of(topic))] == [True, False]
    require_no_other_file(table_of(topic))


def test_a_table_with_other_partition_fields_is_refused_before_any_change(workshop, table_of, spark):
    topic = workshop.topic("other-partitioning")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "k", "v"), record(1, "k", "w")]))
    before = str(table_of(topic).load().currentSnapshot().snapshotId())
    file = workshop.file("b.jsonl", [record(2, "k", "x")])
    for change, found in (
        ("ADD PARTITION FIELD hours(timestamp)", "identity of partition, hour of timestamp"),
        ("DROP PARTITION FIELD hours(timestamp)", None),
        ("REPLACE PARTITION FIELD partition WITH bucket(4, partition)", "bucket[4] of partition"),
        ("DROP PARTITION FIELD bucket(4, partition)", "nothing"),
    ):
        spark.sql(f"ALTER TABLE {table_of(topic).name} {change}")
        for command in (("ingest", topic, "--file", file), ("compact", topic), ("plan", topic), ("reclaim", topic)):
            if found is not None:
                code, _, err = workshop.run(*command)
                says = f"is partitioned by {found}, but a topic's own table must be partitioned by partition alone"
                assert code == 2 and says in err, command
    assert str(table_of(topic).load().currentSnapshot().snapshotId()) == before

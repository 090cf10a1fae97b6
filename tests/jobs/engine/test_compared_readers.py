"""Two readers of data files are compared before a round decides on a new kind of them: what one misreads blocks its log.

The tests change Cleantail's reader in the workers of Spark (`misreading`, in tests/jobs/conftest.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cleantail.log.partition_state import states_of_properties
from spark_jobs.engine import compared_readers
from spark_jobs.engine.compared_readers import PROPERTY_COMPARED
from tests.jobs.conftest import settings
from tests.jobs.round.test_rounds import NOW, branches, offsets, record

RULE = "same_for_two_readers"


def _nulls(arrays, name):
    return arrays | {name: pa.nulls(len(arrays[name]), arrays[name].type)} if name in arrays else arrays


def null_keys(file, arrays):
    return _nulls(arrays, "key")


def one_key_for_all(file, arrays):
    """As if another column stood where the key is."""
    return arrays | {"key": pa.array([b"k"] * len(arrays["key"]), pa.binary())} if "key" in arrays else arrays


def keys_backwards(file, arrays):
    """The same keys, of other records: their sum is the same."""
    return arrays | {"key": arrays["key"][::-1]} if "key" in arrays else arrays


def all_are_tombstones(file, arrays):
    return _nulls(arrays | {"tombstone": pa.array([True] * len(arrays["offset"]))}, "value")


def offsets_backwards(file, arrays):
    return arrays | {"offset": arrays["offset"][::-1]}


def versions_null(file, arrays):
    return _nulls(_nulls(_nulls(arrays, "timestamp"), "headers"), "order")


VERSIONS = {
    "timestamp": {"compaction.strategy": "timestamp"},
    "headers": {"compaction.strategy": "header", "compaction.strategy.header": "v"},
}


MISREAD = [
    (one_key_for_all, {}, "key"),
    (offsets_backwards, {}, "offset"),
    (versions_null, VERSIONS["timestamp"], "timestamp"),
    (null_keys, {}, "key"),
    (all_are_tombstones, {}, "tombstone"),
    (versions_null, VERSIONS["headers"], "headers"),
    (keys_backwards, {}, "key"),
]


@pytest.mark.parametrize("misread", [MISREAD[4:], pytest.param(MISREAD[:4], marks=pytest.mark.deep)])
def test_a_reader_that_misreads_a_column_of_a_topics_own_table_blocks_the_log(workshop, table_of, misreading, misread):
    topic = workshop.topic(f"misread-{len(misread)}")
    headers = ["v", "AAAAAAAAAAE="]
    lines = [record(i, f"k{i % 3}", "v" if i else None, headers=headers, headers_encoding="base64") for i in range(6)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    for mutate, config, column in misread:
        workshop.topic(topic, config)
        mend = misreading(mutate)
        code, _, err = workshop.run("compact", topic, "--now", NOW)
        mend()
        said = " ".join(err.split())
        assert code == 1 and f"partition 0: {RULE}" in said, (mutate, column)
        assert f"sees other values of {column} than Cleantail's" in said, (mutate, column)
    assert ".parquet: Spark's Iceberg reader" in said and "Report this file" in said
    assert offsets(workshop.read(topic)) == [0, 1, 2, 3, 4, 5]
    table = table_of(topic)
    state = states_of_properties(dict(table.load().properties()), topic)[0]
    assert state.checkpoint is None and "other values of key" in state.quarantine.reason
    assert branches(table) == [] and PROPERTY_COMPARED not in dict(table.load().properties())
    shown = json.dumps(workshop.json("status", topic))
    assert "other values of key" in shown and "rewrite_data_files" in shown
    *_, row = workshop.evidence(topic)
    assert [check["expectation"] for check in json.loads(row["checks"])] == [RULE]
    workshop.ok("compact", topic, "--now", NOW)
    assert len(workshop.read(topic)) == 3


def test_each_kind_of_file_is_compared_once_per_version_of_the_readers(
    workshop, table_of, misreading, spark, monkeypatch
):
    """Which costs no job and no file where all kinds are known; a new version of the readers knows none."""
    monkeypatch.setattr(compared_readers, "_equal", set())
    compared, real = [], compared_readers._differing
    monkeypatch.setattr(
        compared_readers, "_differing", lambda *given: compared.append(sorted(given[-1])) or real(*given)
    )
    topic = workshop.topic("kinds-once")

    def clean(first):
        lines = [record(first + i, f"k{i % 2}", "v") for i in range(4)]
        workshop.ok("ingest", topic, "--file", workshop.file(f"{first}.jsonl", lines))
        workshop.ok("compact", topic, "--now", NOW, "--force")

    clean(0)
    [[kind]] = compared
    table = table_of(topic)
    assert json.loads(table.load().properties()[PROPERTY_COMPARED])["kinds"] == [kind]
    monkeypatch.setattr(compared_readers, "_equal", set())
    spark.sql(f"INSERT INTO {table.name} SELECT 0, 4L, timestamp_millis({NOW - 1}), 0, X'6b30', X'76', null, false")
    workshop.ok("compact", topic, "--now", NOW, "--force")
    [_, [other]] = compared  # another program's file: the kind of the others is remembered in the table
    assert set(json.loads(table.load().properties()[PROPERTY_COMPARED])["kinds"]) == {kind, other}
    monkeypatch.setattr(compared_readers, "_source_of_reader", lambda: "another version")
    clean(5)
    assert len(compared) == 3, "another version of the reader compares again"


@pytest.mark.deep
def test_all_files_are_compared_by_one_job_of_each_reader(workshop, table_of, spark, monkeypatch):
    """Small ones, one of more records than are compared, and one that has deleted records and several row groups. That
    they are compared at all, test_a_reader_that_misreads_a_column_of_a_topics_own_table_blocks_the_log holds."""
    topic = workshop.topic("kinds-in-one-job")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(i, f"k{i}", "v") for i in range(10_002)]))
    table = table_of(topic)
    columns = "0, o, timestamp_millis(1), 0, CAST(CAST(o AS STRING) AS BINARY), X'76', null, false"
    rows = f"SELECT /*+ COALESCE(1) */ {columns} FROM VALUES {{}} AS t(o)"
    spark.sql(f"INSERT INTO {table.name} {rows.format('(20000L), (20001L)')}")
    groups = {"write.parquet.row-group-size-bytes": "1", "write.parquet.row-group-check-min-record-count": "1"}
    groups |= {"write.parquet.row-group-check-max-record-count": "1", "write.delete.mode": "merge-on-read"}
    table.set_properties(groups)
    many = ", ".join(f"({o}L)" for o in range(30_000, 30_009))
    spark.sql(f"INSERT INTO {table.name} {rows.format(many)}")
    spark.sql(f"DELETE FROM {table.name} WHERE `offset` IN (20000, 30001)")
    monkeypatch.setattr(compared_readers, "_equal", set())
    seen, real = [], compared_readers._by_spark
    monkeypatch.setattr(compared_readers, "_by_spark", lambda *given: seen.append(real(*given)) or seen[-1])
    workshop.ok("compact", topic, "--now", NOW, "--force")
    listed = spark._jsc.sc().statusStore().jobsList(None)
    texts = [str(listed.apply(n).description()) for n in range(listed.size())]
    assert sum("compare readers" in text and topic in text for text in texts) == 2
    assert sorted(each.records for each in seen[0]) == [1, 8, 10_000]


def test_one_log_is_blocked_where_its_files_alone_are_misread(workshop, spark, table_of, misreading):
    """The other logs are published."""
    topic = workshop.topic("misread-one-log")
    lines = [record(i, "k", "v", partition=p) for p in (0, 1) for i in range(3)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    table = table_of(topic)
    spark.sql(f"INSERT INTO {table.name} SELECT 2, o, timestamp_millis({NOW - 1}), 0, X'6b', X'76', null, false "
              "FROM VALUES (0L), (1L) AS t(o)")  # fmt: skip
    misreading(lambda file, arrays: null_keys(file, arrays) if file.log == 2 else arrays)
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 1 and f"partition 2: {RULE}" in err and "partition 0:" not in err
    assert [(r["partition"], r["offset"]) for r in workshop.read(topic)] == [(0, 2), (1, 2), (2, 0), (2, 1)]


def test_an_expiry_leaves_the_tombstones_of_a_log_that_is_misread(workshop, misreading):
    topic = workshop.topic("misread-expiry", {"delete.retention.ms": 1000})
    lines = [record(0, "a", "x"), record(1, "a", None), record(2, "b", "y")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    misreading(null_keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compared_readers, "_source_of_reader", lambda: "another version")
        code, _, err = workshop.run("compact", topic, "--now", NOW + 5000)
    assert code == 1 and f"partition 0: {RULE}" in err
    assert offsets(workshop.read(topic)) == [1, 2]


ADOPTED = "partition int, offset bigint, ms bigint, id string, value string, tenant string"


@pytest.fixture
def tenants(spark, workshop):
    """A table that Hive-style files were added to: its key column tenant is in their partition only."""

    def make(name):
        workshop.platform()
        spark.sql("CREATE NAMESPACE IF NOT EXISTS cleantail.sinks")
        full = f"cleantail.sinks.`{name}`"
        spark.sql(f"CREATE TABLE {full} ({ADOPTED}) USING iceberg PARTITIONED BY (tenant) "
                  "TBLPROPERTIES ('format-version'='2')")  # fmt: skip
        place = (
            Path(
                spark.sql(f"DESCRIBE EXTENDED {full}")
                .where("col_name = 'Location'")
                .first()
                .data_type.removeprefix("file:")
            )
            / "added"
        )
        for offset, tenant in enumerate(("eu", "us")):
            folder = place / f"tenant={tenant}"
            folder.mkdir(parents=True)
            columns = {"partition": pa.array([0], pa.int32()), "offset": pa.array([offset], pa.int64())}
            columns |= {"ms": pa.array([NOW - 10_000 + offset]), "id": pa.array(["1"]), "value": pa.array(["v"])}
            pq.write_table(pa.table(columns), folder / "a.parquet")
        spark.sql(f"CALL cleantail.system.add_files(table => 'sinks.{name}', "
                  f"source_table => '`parquet`.`{place}`')")  # fmt: skip
        return f"sinks.{name}"

    return make


def null_tenants(file, arrays):
    """A reader for which a column that a file lacks is null."""
    from cleantail.lake.records.topic_columns import joined_parts

    if "key" not in arrays:
        return arrays
    ids = pa.array([b"1"] * len(arrays["key"]), pa.binary())
    return arrays | {"key": joined_parts([pa.nulls(len(ids), pa.binary()), ids])}


@pytest.mark.deep
def test_a_key_part_that_only_the_partition_has_is_never_taken_for_null(workshop, tenants, misreading):
    """A round that took it for null would lose a record, with green checks.

    test_a_misread_column_of_an_adopted_table_blocks_all_its_logs holds the rule."""
    table = tenants("tenants")
    workshop.ok("adopt", table, "--column", "key=tenant,id", "--column", "timestamp=ms")
    settings(workshop, "tenants")
    misreading(null_tenants)
    code, _, err = workshop.run("compact", "tenants", "--now", NOW)
    said = " ".join(err.split())
    assert code == 1 and f"{RULE}" in said and "sees other values of key" in said
    assert offsets(workshop.read("tenants")) == [0, 1]


def test_a_misread_column_of_an_adopted_table_blocks_all_its_logs(workshop, adopted, misreading, spark):
    """Its files may hold several logs."""
    topic, table = adopted("misread_adopted", [(p, o, NOW - 10_000 + o, "k", "v") for p in (0, 1) for o in range(3)])
    misreading(keys_null_in_the_second_log)
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 1 and "partition 1: same_for_two_readers" in err
    assert spark.table(f"cleantail.{table}").count() == 6


def keys_null_in_the_second_log(file, arrays):
    return null_keys(file, arrays) if file.log == 1 else arrays

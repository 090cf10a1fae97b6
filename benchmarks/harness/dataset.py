"""The records of a benchmark: a log of unique keys, then updates. Each update supersedes one record.

    shape = Shape(records=10_000_000, update_share=0.2)     # steady state: 80 % clean, 20 % dirty
    built = build(lake, shape)

Values do not compress and keys are in no order, as in an old log. A shape gives the same records on each machine. A
data set is made once for each directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks.harness.lake import Lake
from benchmarks.harness.shape import (
    FIRST_TIMESTAMP_MS,
    HORIZON_MS,
    KEY_DIGITS,
    NOW_MS,
    OWN,
    UUIDS,
    VERSION_HEADER,
    Shape,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.iceberg.tables import TopicTable

BASE_TAG = "bench_base"


@dataclass(frozen=True, slots=True)
class Built:
    """A data set in a lake: its snapshot and state, which every repetition restores."""

    topic: str
    base_snapshot_id: int
    known_sequence_number: int
    log_bytes: int


def build(lake: Lake, shape: Shape) -> Built:
    """Return the data set. Make it if the lake lacks it. Starts Spark, so call it in a fresh process."""
    # 1. it exists
    note = lake.directory / f"{shape.topic}.json"
    if note.exists():
        return Built(**json.loads(note.read_text()))
    # 2. the clean part, then the updates
    table = empty_table(lake, shape)
    fill(table, shape, 0, shape.keys_per_log)
    clean_sequence_number = int(table.load().currentSnapshot().sequenceNumber())
    fill(table, shape, shape.keys_per_log, shape.per_log)
    # 3. the state that every repetition restores
    base = table.load().currentSnapshot()
    # a tag protects the files from any expiry of snapshots
    table.load().manageSnapshots().createTag(BASE_TAG, base.snapshotId()).commit()
    built = Built(
        shape.topic, int(base.snapshotId()), clean_sequence_number, int(base.summary().get("total-files-size"))
    )
    note.write_text(json.dumps(asdict(built)))
    return built


def reset(table: TopicTable, shape: Shape, built: Built) -> None:
    """Restore the table's snapshot and state from before any round."""
    table.load().manageSnapshots().setCurrentSnapshot(built.base_snapshot_id).commit()
    table.set_properties(_states(shape, built) | _marks(table, shape, built))


def _marks(table: TopicTable, shape: Shape, built: Built) -> dict[str, str]:
    """Return the history of the base, with the round that cleaned it as the last commit."""
    from cleantail.rounds.rewritten_history import Mark, Marks, property_of_marks

    iceberg = table.load()
    base = Mark(built.base_snapshot_id, int(iceberg.snapshot(built.base_snapshot_id).sequenceNumber()))
    return property_of_marks(Marks(str(iceberg.uuid()), None if shape.first_clean else base, base))


def _states(shape: Shape, built: Built) -> dict[str, str]:
    from cleantail.log.partition_state import PROPERTY_PARTITION, Horizon, PartitionState

    state = PartitionState()
    if not shape.first_clean:
        end = shape.first_dirty_offset
        horizons, sequence_number = (Horizon(end, HORIZON_MS),), built.known_sequence_number
        # the round that cleaned it has proven it, so the next full proof is due after seven days
        state = PartitionState(end, 0, end, horizons, sequence_number, proven_ms=NOW_MS)
    return {f"{PROPERTY_PARTITION}{p}": state.as_json() for p in range(shape.partitions)}


def fill(table: TopicTable, shape: Shape, first: int, end: int) -> None:
    """Append offsets `[first, end)` of every log in one commit, in files like those of an ingestion."""
    from spark_jobs.iceberg.commits import append_files
    from spark_jobs.iceberg.iceberg_reads import added_by
    from spark_jobs.iceberg.tables import branch_name

    branch = branch_name(f"in_bench_{first}")
    logs = [_records(table.spark, shape, p, first, end) for p in range(shape.partitions)]
    if shape.layout != OWN:
        for log in logs:  # a sink's file has one log
            log.selectExpr(*SINK_COLUMNS).writeTo(table.name).append()
        return
    frame = logs[0]
    for log in logs[1:]:
        frame = frame.unionAll(log)
    table.create_branch(branch, None)
    table.append_to(branch, frame)
    append_files(table, added_by(table.load(), branch), {}, {"cleantail.operation": "ingest"})
    table.drop_branches([branch])


def _records(spark: SparkSession, shape: Shape, partition: int, first: int, end: int) -> DataFrame:
    first_part, updates = (shape.key_expression(updates) for updates in (False, True))
    key = f"if(id < {shape.keys_per_log}, {first_part}, {updates})"
    tombstones = round(shape.tombstone_share * 10_000)
    hashes = ", ".join(f"sha2(concat(id, '-{partition}-{i}'), 512)" for i in range(shape.value_bytes // 64))
    return spark.range(first, end, numPartitions=1).selectExpr(
        f"{partition} AS `partition`",
        "id AS `offset`",
        f"timestamp_millis({FIRST_TIMESTAMP_MS} + id) AS `timestamp`",
        "0 AS timestamp_type",
        f"cast({_key_text(shape, key)} AS binary) AS `key`",
        f"if(pmod(xxhash64(id, {partition}), 10000) < {tombstones}, NULL, unhex(concat({hashes}))) AS `value`",
        f"cast({_headers(shape)} AS array<struct<key: string, value: binary>>) AS headers",
    )


def _key_text(shape: Shape, number: str) -> str:
    if shape.keys == UUIDS:
        return f"regexp_replace(md5(cast({number} AS string)), '(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-')"
    return f"concat('key-', lpad(cast({number} AS string), {KEY_DIGITS}, '0'))"


def _headers(shape: Shape) -> str:
    if shape.strategy != "header":
        return "array()"
    return f"array(named_struct('key', '{VERSION_HEADER}', 'value', unhex(lpad(hex(id), 16, '0'))))"


SINK_COLUMNS = (
    "named_struct('partition', `partition`, 'offset', `offset`, 'timestamp', `timestamp`, 'headers', headers, "
    "'key', `key`, 'timestamp_type', timestamp_type) AS redpanda",
    "`value`",
)
SINK_SCHEMA = (
    "redpanda struct<`partition`: int, `offset`: bigint, `timestamp`: timestamp, "
    "headers: array<struct<key: string, value: binary>>, key: binary, timestamp_type: int>, value binary"
)


def dropped(table: TopicTable) -> TopicTable:
    """Drop the table with its files if it exists. Return its full name."""
    table.spark.sql(f"DROP TABLE IF EXISTS {table.name} PURGE")
    return table


def empty_table(lake: Lake, shape: Shape) -> TopicTable:
    """Return an empty table for the data set: a topic's own, or an adopted one with the columns of a sink."""
    if shape.layout == OWN:
        lake.write_topic(shape.topic, shape.config)
        table = lake.table(shape.topic)
        dropped(table)
        table.ensure()
        return table
    return adopted_table(lake, shape.topic, int(shape.layout[-1]), shape.config)


def adopted_table(lake: Lake, topic: str, version: int, config: Mapping[str, object]) -> TopicTable:
    """Return an empty table of Redpanda's layout in this format version, adopted by the topic."""
    name, spark = f"sinks.{topic}", lake.session()
    full = f"{lake.platform.catalog.name}.{name}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.platform.catalog.name}.sinks")
    spark.sql(f"DROP TABLE IF EXISTS {full} PURGE")
    spark.sql(
        f"CREATE TABLE {full} ({SINK_SCHEMA}) USING iceberg PARTITIONED BY (hours(redpanda.timestamp)) TBLPROPERTIES "
        f"('format-version'='{version}', 'write.metadata.metrics.default'='none', 'write.distribution-mode'='none', "
        "'write.spark.fanout.enabled'='true', 'write.parquet.compression-codec'='zstd')"
    )
    columns = {
        "partition": "redpanda.partition", "offset": "redpanda.offset", "timestamp": "redpanda.timestamp",
        "headers": "redpanda.headers", "key": "redpanda.key", "timestamp_type": "redpanda.timestamp_type",
        "value": "value",
    }  # fmt: skip
    lake.write_topic(topic, config, table=name, columns=columns)
    return _adopted(lake, topic)


def _adopted(lake: Lake, topic: str) -> TopicTable:
    from cleantail_cli import main

    folder = lake.config / "adopting"
    (folder / "topics").mkdir(parents=True, exist_ok=True)
    (folder / "defaults.yaml").write_text((lake.config / "defaults.yaml").read_text())
    if main(["adopt", f"sinks.{topic}", "--topic", topic, "--config", str(folder)]):
        raise RuntimeError(f"table sinks.{topic} could not be adopted")
    (folder / "topics" / f"{topic}.yaml").unlink(missing_ok=True)
    return lake.table(topic)


def forget(lake: Lake, shape: Shape) -> None:
    """Delete the data set's files, and the note about them."""
    dropped(lake.table(shape.topic))
    (lake.directory / f"{shape.topic}.json").unlink(missing_ok=True)

"""The records that are measured: a log of unique keys, then updates that each supersede one of them.

    shape = Shape(records=10_000_000, update_share=0.2)     # steady state: 80 % clean, 20 % dirty
    built = build(lake, shape)

Values do not compress and keys are in no order, as in a log that has lived. A data set is the same whenever and
wherever it is made, and is made once for a directory.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.iceberg.tables import TopicTable

CLEAN_STEP, UPDATE_STEP = 2_246_822_519, 2_654_435_761
"""Primes above any number of keys: multiples of one, modulo the keys, meet every key once before any twice."""
FIRST_TIMESTAMP_MS = 1_700_000_000_000
NOW_MS = 1_790_000_000_000
"""The clock of every round: long after the records, before the horizons."""
HORIZON_MS = 1_800_000_000_000
"""The horizon of every tombstone: after the clock of every round."""
KEY_DIGITS = 12
VALUE_BYTES = 256
TOPIC_CONFIG = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.0001, "cleantail.reclaim.deleted.ratio": 0.05}
"""No segment stays active, every share of updates is enough for a round, every deletion for a reclaim."""
BASE_TAG = "bench_base"
OWN, REDPANDA_2, REDPANDA_3 = "own", "redpanda2", "redpanda3"
"""Layouts of a table: Cleantail's own, and that of Redpanda's Iceberg topics in format version 2 or 3."""
NUMBERS, UUIDS = "numbers", "uuids"
ZIPF_S = 1.1
VERSION_HEADER = "version"


@dataclass(frozen=True, slots=True)
class Shape:
    """Records over all logs, and which share of them are updates: the second record of their key, at the log's end.

    `first_clean`: no round has been there yet, so everything is dirty; else the updates are what is dirty.
    `tombstone_share`: of all records, those without a value. `layout`: of the table, OWN or that of a sink (REDPANDA).
    `keys`: NUMBERS or UUIDS. `zipf`: updates choose their key by Zipf's law, and may meet one key many times. `files`:
    about how many data files there are, 0 for files of the usual size.
    """

    records: int
    update_share: float
    first_clean: bool = False
    tombstone_share: float = 0.0
    partitions: int = 4
    strategy: str = "offset"
    layout: str = OWN
    keys: str = NUMBERS
    zipf: bool = False
    files: int = 0
    value_bytes: int = VALUE_BYTES

    def __post_init__(self) -> None:
        if not 0 < self.update_share <= 0.5:
            raise ValueError(f"the share of updates is {self.update_share}: above 0, and at most 0.5 (a key has two)")
        if self.updates_per_log < 1:
            raise ValueError(f"{self.records} records are too few for an update in each of {self.partitions} logs")

    @property
    def per_log(self) -> int:
        return self.records // self.partitions

    @property
    def updates_per_log(self) -> int:
        return round(self.per_log * self.update_share)

    @property
    def keys_per_log(self) -> int:
        """Returns how many keys a log has, which is also the offset of its first update."""
        return self.per_log - self.updates_per_log

    @property
    def first_dirty_offset(self) -> int:
        return 0 if self.first_clean else self.keys_per_log

    @property
    def total(self) -> int:
        """Returns how many records are made: the same whole number in every log."""
        return self.per_log * self.partitions

    @property
    def survivors(self) -> int:
        """Returns how many records a round has to leave: one for each key."""
        return self.keys_per_log * self.partitions

    @property
    def topic(self) -> str:
        kind = "first" if self.first_clean else "steady"
        shares = f"{round(self.update_share * 10_000)}_{round(self.tombstone_share * 10_000)}"
        special = [self.strategy, self.layout, self.keys, "zipf" * self.zipf, f"f{self.files}" * (self.files > 0)]
        if self.value_bytes != VALUE_BYTES:
            special.append(f"v{self.value_bytes}")
        names = "_".join(name for name in special if name and name not in ("offset", OWN, NUMBERS))
        return f"bench_{kind}_{self.total}_{shares}_{self.partitions}{f'_{names}' if names else ''}"

    @property
    def text(self) -> str:
        what = "first clean" if self.first_clean else "steady state"
        tombstones = f", {self.tombstone_share:.0%} tombstones" if self.tombstone_share else ""
        return f"{what}, {self.total:,} records in {self.partitions} logs, {self.update_share:.4g} updates{tombstones}"

    def key_number(self, offset: int) -> int:
        """Returns the key of the record at an offset, as `key_expression` has it."""
        step = CLEAN_STEP if offset < self.keys_per_log else UPDATE_STEP
        return offset * step % self.keys_per_log

    def key_expression(self, updates: bool) -> str:
        if updates and self.zipf:
            return self._zipf_expression()
        step = UPDATE_STEP if updates else CLEAN_STEP
        return f"id * {step}L % {self.keys_per_log}L"

    def _zipf_expression(self) -> str:
        """Returns SQL of a key by Zipf's law: the inverse of its distribution, taken as continuous, of a hash."""
        rest = 1 - ZIPF_S
        share = "(pmod(xxhash64(id), 1000000007) / 1000000007.0D)"
        power = f"power(1 + {share} * ({self.keys_per_log**rest!r}D - 1), {1 / rest!r}D)"
        return f"least(cast(floor({power}) AS bigint), {self.keys_per_log}L) - 1"

    @property
    def config(self) -> dict[str, object]:
        """Returns the topic's config."""
        header = {"compaction.strategy.header": VERSION_HEADER} if self.strategy == "header" else {}
        log_bytes = self.per_log * (self.value_bytes + KEY_DIGITS)
        segments = {"segment.bytes": max(log_bytes * self.partitions // self.files, 1)} if self.files else {}
        return dict[str, object](TOPIC_CONFIG) | {"compaction.strategy": self.strategy} | header | segments


@dataclass(frozen=True, slots=True)
class Built:
    """Describes a data set in a lake: what every repetition goes back to."""

    topic: str
    base_snapshot_id: int
    known_sequence_number: int
    log_bytes: int


def build(lake: Lake, shape: Shape) -> Built:
    """Returns the data set, made where the lake does not have it. It starts Spark, so it is called in a process of its
    own."""
    # 1. it is there already
    note = lake.directory / f"{shape.topic}.json"
    if note.exists():
        return Built(**json.loads(note.read_text()))
    # 2. the clean part, then the updates
    table = empty_table(lake, shape)
    fill(table, shape, 0, shape.keys_per_log)
    clean_sequence_number = int(table.load().currentSnapshot().sequenceNumber())
    fill(table, shape, shape.keys_per_log, shape.per_log)
    # 3. what every repetition goes back to
    base = table.load().currentSnapshot()
    # a tag keeps the files from whatever expires snapshots
    table.load().manageSnapshots().createTag(BASE_TAG, base.snapshotId()).commit()
    built = Built(
        shape.topic, int(base.snapshotId()), clean_sequence_number, int(base.summary().get("total-files-size"))
    )
    note.write_text(json.dumps(asdict(built)))
    return built


def reset(table: TopicTable, shape: Shape, built: Built) -> None:
    """Makes the table as before any round: its snapshot and its state."""
    table.load().manageSnapshots().setCurrentSnapshot(built.base_snapshot_id).commit()
    table.set_properties(_states(shape, built))


def _states(shape: Shape, built: Built) -> dict[str, str]:
    from cleantail.log.partition_state import PROPERTY_PARTITION, Horizon, PartitionState

    state = PartitionState()
    if not shape.first_clean:
        end = shape.first_dirty_offset
        horizons, sequence_number = (Horizon(end, HORIZON_MS),), built.known_sequence_number
        # proven by the round that cleaned it: a proof from nothing is for every seventh day
        state = PartitionState(end, 0, end, horizons, sequence_number, proven_ms=NOW_MS)
    return {f"{PROPERTY_PARTITION}{p}": state.as_json() for p in range(shape.partitions)}


def fill(table: TopicTable, shape: Shape, first: int, end: int) -> None:
    """Appends offsets `[first, end)` of every log in one commit, as an ingestion writes them."""
    from spark_jobs.iceberg.branches import branch_name
    from spark_jobs.iceberg.commits import append_files
    from spark_jobs.iceberg.iceberg_reads import added_data_files

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
    append_files(table, added_data_files(table.load(), branch), {}, {"cleantail.operation": "ingest"})
    table.drop_branch(branch)


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


def empty_table(lake: Lake, shape: Shape) -> TopicTable:
    """Returns the data set's table without a record: a topic's own, or one that a sink has made and that is adopted."""
    if shape.layout == OWN:
        lake.write_topic(shape.topic, shape.config)
        table = lake.table(shape.topic)
        table.drop()
        table.ensure()
        return table
    name = f"sinks.{shape.topic}"
    spark, full = lake.session(), f"{lake.platform.catalog.name}.{name}"
    version = shape.layout[-1]
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
    lake.write_topic(shape.topic, shape.config, table=name, columns=columns)
    return _adopted(lake, shape)


def _adopted(lake: Lake, shape: Shape) -> TopicTable:
    from cleantail.cli import main

    folder = lake.config / "adopting"
    (folder / "topics").mkdir(parents=True, exist_ok=True)
    (folder / "defaults.yaml").write_text((lake.config / "defaults.yaml").read_text())
    if main(["adopt", f"sinks.{shape.topic}", "--topic", shape.topic, "--config", str(folder)]):
        raise RuntimeError(f"table sinks.{shape.topic} could not be adopted")
    (folder / "topics" / f"{shape.topic}.yaml").unlink(missing_ok=True)
    return lake.table(shape.topic)


def forget(lake: Lake, shape: Shape) -> None:
    """Deletes the data set's files, and the note that it was made."""
    lake.table(shape.topic).drop()
    (lake.directory / f"{shape.topic}.json").unlink(missing_ok=True)

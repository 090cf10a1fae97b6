"""The current state of a topic through PyIceberg and Arrow, and where to go on reading from.

Clean tail and head together, the topic's strategy applied, tombstoned keys absent (semantics.md 2, hazard 3). Records
without a key are no part of a state. State and positions are of one snapshot: a reader that loads the state and then
follows from the positions misses nothing and sees nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.config.platform import Platform
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic import Topic
from cleantail.config.topic_table import HEADERS, KEY, LEDGER_SUFFIX, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.errors import CleantailError, TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.log_bounds import log_ends, log_starts
from cleantail.lake.records.log_records import log_records
from cleantail.lake.table_metadata import arrivals
from cleantail.log.ranking import VERSION_BYTES, latest_timestamp_ms, strategy_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Rank = tuple[bool, int, int]
"""(has a version, version, offset): the highest wins."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The state at one snapshot. `positions`: partition -> the next offset to read, for every log of the topic."""

    table: Table
    topic: Topic
    snapshot_id: int | None
    positions: Mapping[int, int]
    remembered: Mapping[tuple[int, bytes], Rank]
    now_ms: int
    starts: Mapping[int, int]
    """Partition -> the first offset that a reader may see, where retention has moved it."""
    arrivals: Mapping[str, int]
    """Data file -> data sequence number: the order in which records came."""

    def batches(self, partition: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the state in the topic table's columns, in offset order, one log after another; one log at a time is
        in memory."""
        for p in sorted(self.positions) if partition is None else [partition]:
            yield from self._log(p).to_batches()

    def to_arrow(self, partition: int | None = None) -> pa.Table:
        """Returns the whole state as one Arrow table."""
        import pyarrow as pa

        logs = [self._log(p) for p in (sorted(self.positions) if partition is None else [partition])]
        return pa.concat_tables(logs) if logs else self.table.schema().as_arrow().empty_table()

    def _log(self, partition: int) -> pa.Table:
        start = self.starts.get(partition, 0)
        records = log_records(
            self.table, partition, self.snapshot_id, from_offset=start, keyed=True, arrivals=self.arrivals
        )
        remembered = {key: rank for (p, key), rank in self.remembered.items() if p == partition}
        return winners(records, self.topic.config, self.now_ms, remembered)


def load_latest(topic: Topic, platform: Platform, now_ms: int, snapshot_id: int | None = None) -> Latest:
    """Loads the state as it is now, or as of a snapshot. Raises TableError where there is no such table or snapshot.

    `now_ms` is the clock of remembered deletions and of the bound on future timestamps.
    """
    catalog = open_catalog(platform, os.environ)
    table = load_table(catalog, topic, platform)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: ingest something first")
    positions = log_ends(table, snapshot_id)
    current = table.current_snapshot()
    at = snapshot_id if snapshot_id is not None else current.snapshot_id if current else None
    starts, order = log_starts(table, topic.config, snapshot_id), arrivals(table, snapshot_id)
    return Latest(table, topic, at, positions, _remembered(catalog, topic, now_ms), now_ms, starts, order)


def _remembered(catalog: Catalog, topic: Topic, now_ms: int) -> dict[tuple[int, bytes], Rank]:
    """Returns the versions whose tombstones an expiry has removed, in force at `now_ms`: (partition, key) -> rank."""
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.expressions import And, EqualTo, GreaterThan

    if not topic.config.cleantail_tombstone_lateness_ms:
        return {}
    try:
        ledger = catalog.load_table(f"{topic.table}{LEDGER_SUFFIX}")
    except NoSuchTableError:
        return {}
    except Exception as e:  # whatever the driver raises means the same to a person
        raise TableError(f"table {topic.table}{LEDGER_SUFFIX} cannot be loaded: {type(e).__name__}") from None
    in_force = And(EqualTo("strategy", strategy_text(topic.config)), GreaterThan("forget_at_ms", now_ms))
    ranks: dict[tuple[int, bytes], Rank] = {}
    for version in ledger.scan(row_filter=in_force).to_arrow().to_pylist():
        key, rank = (version[PARTITION], version[KEY]), (version["has_version"], version["version"], version[OFFSET])
        ranks[key] = max(ranks.get(key, rank), rank)
    return ranks


def winners(records: pa.Table, configs: KafkaConfigs, now_ms: int, remembered: Mapping[bytes, Rank]) -> pa.Table:
    """Returns one record a key in offset order: the winner, unless it is a tombstone or older than a remembered
    deletion.

    `records`: the topic table's columns, one log, no null keys, in the order in which they came: of copies of one
    record the first is shown, as it is the one that a round keeps (semantics.md 3.5).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    has_version, version = _versions(records, configs, now_ms)
    ranks = pa.table(
        {"key": records[KEY], "has_version": has_version, "version": version, "offset": records[OFFSET]}
    ).append_column("row", pa.array(range(len(records)), pa.int64()))
    order = [*((name, "ascending") for name in ("has_version", "version", "offset")), ("row", "descending")]
    best = ranks.sort_by(order).group_by("key", use_threads=False).aggregate([("row", "last")])
    kept = records.take(best["row_last"]).filter(pc.is_valid(records.take(best["row_last"])[VALUE]))
    if remembered:
        alive = ranks.take(best["row_last"]).filter(pc.is_valid(records.take(best["row_last"])[VALUE]))
        kept = kept.filter(pa.array([_lives(row, remembered) for row in alive.to_pylist()], pa.bool_()))
    return kept.sort_by(OFFSET)


def _lives(row: Mapping[str, Any], remembered: Mapping[bytes, Rank]) -> bool:
    rank = (row["has_version"], row["version"], row["offset"])
    return row["key"] not in remembered or remembered[row["key"]] <= rank


def _versions(records: pa.Table, configs: KafkaConfigs, now_ms: int) -> tuple[pa.Array, pa.Array]:
    """Returns (has_version, version) of each record; without a version it is (false, 0), as in
    cleantail.log.ranking."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if configs.compaction_strategy == "offset":
        return pa.repeat(pa.scalar(False), len(records)), pa.repeat(pa.scalar(0, pa.int64()), len(records))
    if configs.compaction_strategy == "header":
        versions = _header_versions(records, configs)
        by_record = [versions.get(i) for i in range(len(records))]
        version = pa.array(by_record, pa.int64())
    else:
        millis = pc.divide(records[TIMESTAMP].combine_chunks().cast(pa.int64()), 1000)
        in_bound = pc.less_equal(millis, latest_timestamp_ms(configs, now_ms))
        version = pc.if_else(in_bound, millis, pa.scalar(None, pa.int64()))
    return pc.is_valid(version), pc.fill_null(version, 0)


def _header_versions(records: pa.Table, configs: KafkaConfigs) -> dict[int, int]:
    """Returns record number -> version, of the records whose version header has 8 bytes; of repeated headers the last
    or the first."""
    import pyarrow.compute as pc

    lists = records[HEADERS].combine_chunks()
    headers = lists.flatten()
    named = pc.equal(pc.struct_field(headers, "key"), configs.compaction_strategy_header)
    record_numbers = pc.list_parent_indices(lists).filter(named).to_pylist()
    chosen: dict[int, bytes | None] = {}
    for record_number, value in zip(
        record_numbers, pc.struct_field(headers, "value").filter(named).to_pylist(), strict=True
    ):
        if configs.cleantail_header_occurrence == "last" or record_number not in chosen:
            chosen[record_number] = value
    return {
        record_number: int.from_bytes(value, "big", signed=True)
        for record_number, value in chosen.items()
        if value is not None and len(value) == VERSION_BYTES
    }

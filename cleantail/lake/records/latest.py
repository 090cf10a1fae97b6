"""The current state of a topic through PyIceberg and Arrow, and where to go on reading from.

Clean tail and head together, the topic's strategy applied, tombstoned keys absent (semantics.md 2, hazard 3). Records
without a key are no part of a state. State and positions are of one snapshot: a reader that loads the state and then
follows from the positions misses nothing and sees nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import HEADERS, KEY, LEDGER_SUFFIX, OFFSET, ORDER, PARTITION, TIMESTAMP, VALUE
from cleantail.errors import CleantailError, TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.manifest_entries import named_if_damaged
from cleantail.lake.records.log_bounds import log_ends, log_starts
from cleantail.lake.records.log_records import log_records
from cleantail.lake.table_metadata import live_files
from cleantail.log.winners import Ranks, Versions, beaten, best_ranks, remembered_units, versions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Rank = tuple[bool, int, int]
"""(has a version, version, offset): the highest wins."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Describes the state at one snapshot. `positions`: partition -> the next offset to read, for every log of the
    topic."""

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
    starts, order = log_starts(table, topic.config, snapshot_id), _arrivals(table, snapshot_id)
    return Latest(table, topic, at, positions, _remembered(catalog, topic, now_ms), now_ms, starts, order)


def _arrivals(table: Table, snapshot_id: int | None) -> dict[str, int]:
    """Returns data file -> data sequence number, which a rewrite keeps: the order in which records came (semantics.md
    3.5)."""
    return {file.path: file.data_sequence_number for file in live_files(table, snapshot_id)}


def _remembered(catalog: Catalog, topic: Topic, now_ms: int) -> dict[tuple[int, bytes], Rank]:
    """Returns the versions whose tombstones an expiry has removed, in force at `now_ms`: (partition, key) -> rank."""
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.expressions import And, GreaterThan, In

    if not topic.config.cleantail_tombstone_lateness_ms:
        return {}
    try:
        ledger = catalog.load_table(f"{topic.table}{LEDGER_SUFFIX}")
    except NoSuchTableError:
        return {}
    except Exception as e:  # whatever the driver raises means the same to a person
        raise TableError(f"table {topic.table}{LEDGER_SUFFIX} cannot be loaded: {type(e).__name__}") from None
    units = remembered_units(topic.config)
    in_force = And(In("strategy", units), GreaterThan("forget_at_ms", now_ms))
    ranks: dict[tuple[int, bytes], Rank] = {}
    with named_if_damaged(ledger, "a file of it"):
        versions = ledger.scan(row_filter=in_force).to_arrow().to_pylist()
    for version in versions:
        number = version["version"] * units[version["strategy"]]
        key, rank = (version[PARTITION], version[KEY]), (version["has_version"], number, version[OFFSET])
        ranks[key] = max(ranks.get(key, rank), rank)
    return ranks


def winners(records: pa.Table, configs: KafkaConfigs, now_ms: int, remembered: Mapping[bytes, Rank]) -> pa.Table:
    """Returns one record a key in offset order: the winner, unless it is a tombstone or older than a remembered
    deletion.

    `records`: the topic table's columns, and ORDER where that decides; one log, no null keys, in the order in which
    they came: of copies of one record the first is shown, as it is the one that a round keeps (semantics.md 3.5).
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = records[KEY].combine_chunks().dictionary_encode()
    number, count = keys.indices.to_numpy(), len(keys.dictionary)
    timestamps, headers = (records[name].combine_chunks() for name in (TIMESTAMP, HEADERS))
    orders = records[ORDER].combine_chunks() if ORDER in records.column_names else None
    versions = versions_of(timestamps, headers, len(records), configs, now_ms, orders)
    offset = records[OFFSET].to_numpy()
    best = best_ranks(number, versions, offset, count)
    gone = np.zeros(count, np.bool_)
    if remembered:
        gone = beaten(best, _ranks(remembered, keys.dictionary))
    survives = (offset == best.offset[number]) & ~gone[number] & pc.is_valid(records[VALUE]).to_numpy()
    rows = np.flatnonzero(survives)
    _, first_of_key = np.unique(number[rows], return_index=True)
    state = records.take(pa.array(rows[first_of_key])).sort_by(OFFSET)
    return state if orders is None else state.drop_columns(ORDER)


def _ranks(remembered: Mapping[bytes, Rank], keys: pa.Array) -> Ranks:
    """Returns the remembered rank of each key."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    number = pc.index_in(pa.array(remembered.keys(), keys.type), value_set=keys)
    known = pc.is_valid(number).to_numpy(zero_copy_only=False)
    has, version, offset = (np.array(column)[known] for column in zip(*remembered.values(), strict=True))
    versions = Versions(has, version, np.zeros(len(has), np.bool_))
    return best_ranks(number.drop_null().to_numpy(), versions, offset, len(keys))

"""The current state of a topic through PyIceberg and Arrow, and the positions from which to continue reading.

Combines clean tail and head, applies the topic's strategy, and leaves out tombstoned keys (semantics.md 2, hazard 3).
Records without a key do not belong to a state. State and positions are from one snapshot. A reader that loads the
state and then continues from the positions reads each record exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic import Topic
from cleantail.config.topic_table import HEADERS, KEY, LEDGER_SUFFIX, OFFSET, ORDER, PARTITION, TIMESTAMP, VALUE
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import load_any, load_table, open_catalog
from cleantail.lake.manifest_entries import named_if_damaged
from cleantail.lake.records.log_records import log_records
from cleantail.lake.table_metadata import live_files, properties_that_count
from cleantail.log.log_state import kept_log_start
from cleantail.log.partition_state import states_of_properties
from cleantail.log.source_position import read_position_of, with_source_ends
from cleantail.log.winners import Ranks, Versions, beaten, best_ranks, remembered_units, versions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


def log_starts(table: Table, configs: KafkaConfigs, snapshot_id: int | None = None) -> dict[int, int]:
    """Return partition -> the first offset that a reader may see, if retention has moved it (semantics.md 1.2).

    A late record below this offset is in a file, but not in the log. The properties have the current state, so an older
    snapshot has no such offsets.
    """
    if snapshot_id not in (None, table.metadata.current_snapshot_id):
        return {}
    states = states_of_properties(properties_that_count(table), ".".join(table.name()))
    starts = {p: kept_log_start(state, configs) for p, state in states.items()}
    return {p: start for p, start in starts.items() if start > 0}


def log_ends(table: Table, snapshot_id: int | None = None) -> dict[int, int]:
    """Return partition -> next offset of every log at a snapshot, by default the current one.

    Current ends include removed records, and the position in the source. A partition that is empty at the source ends
    at
    0. The ends of an older snapshot come from its files. Raises TableError for an unknown snapshot.
    """
    ends = [(file.partition, file.upper_offset + 1) for file in live_files(table, snapshot_id)]
    if snapshot_id is None:
        name = ".".join(table.name())
        properties = properties_that_count(table)
        position = read_position_of(properties, name)
        states = with_source_ends(states_of_properties(properties, name), position)
        ends += [(partition, state.log_end_offset or 0) for partition, state in states.items()]
        ends += [(partition, 0) for partition in (position.next_offsets if position else ())]
    return dict(sorted(ends))  # the last, highest end of each log stays


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
    """Partition -> the first offset that a reader may see, if retention has moved it."""
    arrivals: Mapping[str, int]
    """Data file -> data sequence number: the order in which records came."""

    def batches(self, partition: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the state in the topic table's columns, in offset order, one log after another.

        Only one log at a time is in memory.
        """
        for p in sorted(self.positions) if partition is None else [partition]:
            yield from self._log(p).to_batches()

    def to_arrow(self, partition: int | None = None) -> pa.Table:
        """Return the whole state as one Arrow table."""
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


def load_latest(topic: Topic, now_ms: int, snapshot_id: int | None = None) -> Latest:
    """Load the current state, or the state at a snapshot. Raises TableError if the table or snapshot does not exist.

    `now_ms`: the clock for deletions in the ledger and for the bound on future timestamps.
    """
    catalog = open_catalog(topic.platform)
    table = load_table(catalog, topic)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: ingest records first")
    positions = log_ends(table, snapshot_id)
    at = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    starts, order = log_starts(table, topic.config, snapshot_id), _arrivals(table, snapshot_id)
    return Latest(table, topic, at, positions, _remembered(catalog, topic, now_ms), now_ms, starts, order)


def _arrivals(table: Table, snapshot_id: int | None) -> dict[str, int]:
    """Return data file -> data sequence number: the order in which records came (semantics.md 3.5).

    A rewrite keeps that number.
    """
    return {file.path: file.data_sequence_number for file in live_files(table, snapshot_id)}


def _remembered(catalog: Catalog, topic: Topic, now_ms: int) -> dict[tuple[int, bytes], Rank]:
    """Return the ranks of expired tombstones that are in force at `now_ms`: (partition, key) -> rank."""
    from pyiceberg.expressions import And, GreaterThan, In

    if not topic.config.cleantail_tombstone_lateness_ms:
        return {}
    ledger = load_any(catalog, f"{topic.table}{LEDGER_SUFFIX}", topic.platform)
    if ledger is None:
        return {}
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
    """Return the winner of each key, in offset order, except tombstones and records that a deletion in the ledger
    beats.

    `records`: records of one log, without null keys, in the order of their arrival, with the topic table's columns, and
    ORDER if it decides. Of several copies the first is shown, because a round keeps the first (semantics.md 3.5).
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
    """Return the remembered rank of each key."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    number = pc.index_in(pa.array(remembered.keys(), keys.type), value_set=keys)
    known = pc.is_valid(number).to_numpy(zero_copy_only=False)
    has, version, offset = (np.array(column)[known] for column in zip(*remembered.values(), strict=True))
    versions = Versions(has, version, np.zeros(len(has), np.bool_))
    return best_ranks(number.drop_null().to_numpy(), versions, offset, len(keys))

"""Adapter: from where and up to where a reader reads each log of a table, by its metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.lake.table_metadata import live_files, properties_that_count
from cleantail.log.log_state import kept_log_start
from cleantail.log.partition_state import states_of_properties
from cleantail.log.source_position import read_position_of, with_source_ends

if TYPE_CHECKING:
    from pyiceberg.table import Table


def log_starts(table: Table, configs: KafkaConfigs, snapshot_id: int | None = None) -> dict[int, int]:
    """Returns partition -> the first offset that a reader may see, where retention has moved it (semantics.md 1.2).

    A late record below it is in a file, but not in the log. The properties say what is so now: an older snapshot is
    read as it was.
    """
    current = table.current_snapshot()
    if snapshot_id is not None and not (current and snapshot_id == current.snapshot_id):
        return {}
    states = states_of_properties(properties_that_count(table), ".".join(table.name()))
    starts = {p: kept_log_start(state, configs) for p, state in states.items()}
    return {p: start for p, start in starts.items() if start > 0}


def log_ends(table: Table, snapshot_id: int | None = None) -> dict[int, int]:
    """Return partition -> next offset of every log at a snapshot, the current one if None.

    Today's ends include records that were removed since, and the position in the source: a partition that is empty
    there ends at 0. The ends of an older snapshot are those of its files. Raises TableError for an unknown snapshot.
    """
    ends: dict[int, int] = {}
    for file in live_files(table, snapshot_id):
        ends[file.partition] = max(ends.get(file.partition, 0), file.upper_offset + 1)
    if snapshot_id is None:
        name = ".".join(table.name())
        properties = properties_that_count(table)
        position = read_position_of(properties, name)
        states = with_source_ends(states_of_properties(properties, name), position)
        for partition, state in states.items():
            ends[partition] = max(ends.get(partition, 0), state.log_end_offset or 0)
        ends |= {p: 0 for p in (position.next_offsets if position else ()) if p not in ends}
    return ends

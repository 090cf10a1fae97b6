"""Adapter: what Iceberg says of a data file, as the logs in it.

A file of Cleantail's own holds one log, and its manifest has all bounds. Those of sinks are in
cleantail.lake.records.log_parts.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE, Columns
from cleantail.errors import TableError
from cleantail.lake.manifest_entries import NO_LINEAGES, Lineages
from cleantail.lake.position_deletes import DeleteFile, lost_positions, lost_records
from cleantail.lake.records.file_records import require_parquet
from cleantail.lake.records.log_parts import CACHED_FILES, Part, parts_of
from cleantail.lake.records.log_records import stored_records
from cleantail.lake.records.topic_columns import columns_of_properties
from cleantail.log.segments import NO_TIMESTAMP_MS, DataFile, split

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Table

_lost_by_file: dict[tuple[Any, ...], tuple[int, ...]] = {}


def data_files_of(
    table: Table, entry: ManifestEntry, deletes: Sequence[DeleteFile], lineages: Lineages = NO_LINEAGES
) -> list[DataFile]:
    """Return one DataFile for every log in the file of a manifest entry.

    `deletes` are the delete files of that file, `lineages` those of the snapshot's files, in an adopted table without
    offsets. Each log has the records that it lost itself: they decide about its start, its segments and its retention.
    Bytes and tombstones of a file of several logs are dealt out by numbers of records; their sums are exact. Raises
    TableError for a file that is not Parquet.
    """
    require_parquet(entry.data_file.file_path, entry.data_file.file_format)
    columns = columns_of_properties(table.properties)
    records, arrived = entry.data_file.record_count, entry.sequence_number or 0
    deleted = lost_records(table.io, deletes, records, arrived) if deletes else 0
    if columns is None:
        return [_single_log_file(table, entry, deleted)]
    parts = parts_of(table, entry.data_file, columns, lineages)
    iceberg_partition = f"{entry.data_file.spec_id} {entry.data_file.partition}"
    of_parts = [p.records for p in parts]
    nulls = sum(p.nulls or 0 for p in parts)
    lost = _lost_by_log(table, entry, columns, parts, deletes, deleted)
    shares = zip(
        parts, lost, split(entry.data_file.file_size_in_bytes, of_parts), split(nulls, of_parts), strict=True
    )  # fmt: skip
    return [
        DataFile(
            path=entry.data_file.file_path,
            partition=part.partition,
            lower_offset=part.lower_offset,
            upper_offset=part.upper_offset,
            min_timestamp_ms=part.min_timestamp_ms,
            max_timestamp_ms=part.max_timestamp_ms,
            records=part.records,
            deleted_records=deleted_of_log,
            size_bytes=size,
            null_values=tombstones,
            data_sequence_number=entry.sequence_number or 0,
            snapshot_id=entry.snapshot_id or 0,
            iceberg_partition=iceberg_partition,
            null_keys=part.null_keys or 0,
        )
        for part, deleted_of_log, size, tombstones in shares
    ]


def _lost_by_log(
    table: Table,
    entry: ManifestEntry,
    columns: Columns,
    parts: Sequence[Part],
    deletes: Sequence[DeleteFile],
    lost: int,
) -> tuple[int, ...]:
    """Return how many of each part's records are deleted.

    No metadata has that of a file of several logs. The deleted positions and the partitions of its records are read,
    once in a process.
    """
    records = tuple(part.records for part in parts)
    if len(parts) == 1 or lost in (0, sum(records)):
        return (lost,) if len(parts) == 1 else records if lost else (0,) * len(parts)
    file, sequence_number = entry.data_file, entry.sequence_number or 0
    key = (file.file_path, sequence_number, columns.partition, *((d.path, d.start) for d in deletes))
    if (known := _lost_by_file.get(key)) is None:
        import numpy as np
        from pyroaring import BitMap64

        if len(_lost_by_file) >= CACHED_FILES:
            _lost_by_file.clear()
        positions = lost_positions(table.io, deletes, file.record_count, sequence_number)
        counts, at = Counter[int](), 0
        for records_read in stored_records(table, columns, [PARTITION], file):
            partitions, end = records_read[PARTITION].to_numpy(), at + len(records_read)
            inside = np.array((positions & BitMap64(range(at, end))).to_array(), np.int64)
            counts.update(partitions[inside - at].tolist())
            at = end
        _lost_by_file[key] = known = tuple(counts[part.partition] for part in parts)
    return known


def _single_log_file(table: Table, entry: ManifestEntry, deleted: int) -> DataFile:
    file = entry.data_file
    ids = {name: table.schema().find_field(name).field_id for name in (OFFSET, TIMESTAMP, KEY, VALUE)}
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return DataFile(
        path=file.file_path,
        partition=int(file.partition[0]),
        lower_offset=_long(lower.get(ids[OFFSET]), file.file_path),
        upper_offset=_long(upper.get(ids[OFFSET]), file.file_path),
        min_timestamp_ms=_millis(lower.get(ids[TIMESTAMP])),
        max_timestamp_ms=_millis(upper.get(ids[TIMESTAMP])),
        records=file.record_count,
        deleted_records=deleted,
        size_bytes=file.file_size_in_bytes,
        null_values=(file.null_value_counts or {}).get(ids[VALUE], 0),
        data_sequence_number=entry.sequence_number or 0,
        snapshot_id=entry.snapshot_id or 0,
        null_keys=(file.null_value_counts or {}).get(ids[KEY], 0),
    )


def _long(bound: bytes | None, path: str) -> int:
    if bound is None:
        raise TableError(
            f"{path} has no bounds for the column offset: set write.metadata.metrics.default=full and rewrite it"
        )
    return int(struct.unpack("<q", bound)[0])


def _millis(bound: bytes | None) -> int:
    """Returns a bound in Kafka's milliseconds: Iceberg keeps microseconds."""
    return NO_TIMESTAMP_MS if bound is None else int(struct.unpack("<q", bound)[0]) // 1000

"""The files of a snapshot, as its manifests name them: data files, and delete files of every kind, through the JVM.

Iceberg's own plan of a scan names the delete files anew for each data file, which is too much where a sink has written
thousands of equality deletes; which are of which is cleantail.adopt.equality_deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleantail.adopt.equality_deletes import EVERYWHERE, ColumnBounds, TableFile
from cleantail.errors import TableError
from cleantail.lake.delete_entries import REWRITE
from cleantail.lake.records.file_records import require_parquet
from spark_jobs.iceberg.file_columns import PartitionConstants
from spark_jobs.iceberg.iceberg_reads import data_file_of, identity
from spark_jobs.iceberg.jvm.file_facts import FileFacts
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.java_json import described_file

NO_DATA_FILE = "None"
"""What data_file_of says of a delete file that is of several data files."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Describes a file of a snapshot: Iceberg's object for it, what its metadata say, and its data sequence number."""

    file: Any
    facts: FileFacts
    sequence_number: int

    @property
    def path(self) -> str:
        return self.facts.path

    @property
    def iceberg_partition(self) -> tuple[int, str]:
        return self.facts.partition_key


@dataclass(frozen=True, slots=True)
class SnapshotEntries:
    """Holds the files of a snapshot. `own` are delete files of one data file each (deletion vectors included), by that;
    `shared` position deletes of several; `by_value` the equality deletes."""

    data: Sequence[Entry]
    by_value: Sequence[Entry]
    shared: Sequence[Entry]
    own: Mapping[str, Sequence[Entry]]
    unpartitioned: frozenset[int]

    @property
    def foreign(self) -> list[Entry]:
        """Returns the delete files that are not of one data file."""
        return [*self.by_value, *self.shared]

    @property
    def field_ids(self) -> list[int]:
        """Returns the columns that any equality delete compares."""
        return sorted({number for entry in self.by_value for number in entry.facts.equality_ids})


def snapshot_entries(jvm: Any, table: Any, snapshot_id: int) -> SnapshotEntries:
    """Reads the manifests of a snapshot. Raises TableError for deletes that cannot be read."""
    snapshot, manifests = table.snapshot(snapshot_id), getattr(jvm, "org.apache.iceberg.ManifestFiles")
    data = [
        entry
        for manifest in each(snapshot.dataManifests(table.io()))
        for entry in _entries(jvm, table, manifests.read(manifest, table.io(), table.specs()))
    ]
    for entry in data:
        require_parquet(entry.path, entry.facts.file_format)
    by_value, shared, own = list[Entry](), list[Entry](), dict[str, list[Entry]]()
    for manifest in each(snapshot.deleteManifests(table.io())):
        for entry in _entries(jvm, table, manifests.readDeleteManifest(manifest, table.io(), table.specs())):
            if entry.facts.content == "equality-deletes":
                by_value.append(_parquet(entry))
            elif (path := data_file_of(jvm, entry.file)) == NO_DATA_FILE:
                shared.append(_parquet(entry))
            else:
                own.setdefault(path, []).append(entry)
    specs = {int(spec.specId()) for spec in table.specs().values() if spec.isUnpartitioned()}
    return SnapshotEntries(data, by_value, shared, own, frozenset(specs))


def _entries(jvm: Any, table: Any, reader: Any) -> Iterator[Entry]:
    try:
        for file in each(reader):
            yield Entry(file, described_file(jvm, table, file), int(file.dataSequenceNumber()))
    finally:
        reader.close()


def _parquet(entry: Entry) -> Entry:
    if not entry.facts.is_parquet:
        kind = entry.facts.file_format.upper()
        raise TableError(f"{entry.path} has deletes as {kind}, and only Parquet can be read. {REWRITE}")
    return entry


def table_files(table: Any, entries: SnapshotEntries, compared: Sequence[Entry]) -> list[TableFile]:
    """Returns data files, or equality deletes, as the rules know them. An equality delete has its columns itself."""
    ids, scopes = set(entries.field_ids), _scopes(entries)
    partitions = PartitionConstants(table, ids)
    return [
        TableFile(
            path=entry.path,
            scope=EVERYWHERE if _is_everywhere(entry, entries) else scopes[entry.iceberg_partition],
            sequence_number=entry.sequence_number,
            records=entry.facts.records,
            field_ids=tuple(sorted(entry.facts.equality_ids)),
            bounds=_bounds(entry.facts, ids),
            constants=() if entry.facts.equality_ids else partitions.of(entry.facts),
        )
        for entry in compared
    ]


def _scopes(entries: SnapshotEntries) -> dict[tuple[int, str], int]:
    partitions = sorted({entry.iceberg_partition for entry in (*entries.data, *entries.by_value)})
    return {partition: number for number, partition in enumerate(partitions)}


def _is_everywhere(entry: Entry, entries: SnapshotEntries) -> bool:
    return bool(entry.facts.equality_ids) and entry.facts.spec_id in entries.unpartitioned


def _bounds(facts: FileFacts, ids: set[int]) -> dict[int, ColumnBounds]:
    nulls = facts.null_value_counts
    return {number: ColumnBounds(*facts.bounds_of(number), nulls[number]) for number in ids if number in nulls}


def registrations(entries: SnapshotEntries) -> dict[str, tuple[tuple[int, ...], tuple[tuple[str, int], ...]]]:
    """Returns, for each data file, the sequence numbers with which it is registered, and its own delete files."""
    numbers: dict[str, list[int]] = {}
    for entry in entries.data:
        numbers.setdefault(entry.path, []).append(entry.sequence_number)
    return {
        path: (tuple(sorted(of_file)), tuple(sorted(identity(e.file) for e in entries.own.get(path, ()))))
        for path, of_file in numbers.items()
    }

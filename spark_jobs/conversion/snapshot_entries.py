"""The files of a snapshot, as its manifests name them: data files, and delete files of every kind, through the JVM.

Iceberg's own plan of a scan names the delete files anew for each data file, which is too much where a sink has written
thousands of equality deletes; which are of which is cleantail.adopt.equality_deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleantail.adopt.equality_deletes import EVERYWHERE, ColumnBounds, TableFile
from cleantail.errors import TableError
from cleantail.lake.delete_entries import REWRITE
from spark_jobs.iceberg.iceberg_reads import data_file_of, identity
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.java_json import described_file

NO_DATA_FILE = "None"
"""What data_file_of says of a delete file that is of several data files."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Describes a file of a snapshot: Iceberg's object for it, what its metadata say (as JSON), and its data sequence
    number."""

    file: Any
    facts: Mapping[str, Any]
    sequence_number: int

    @property
    def path(self) -> str:
        return str(self.facts["file-path"])

    @property
    def iceberg_partition(self) -> tuple[int, str]:
        """Returns its partition spec and its partition there, as a text that is equal for equal ones."""
        return int(self.facts["spec-id"]), json.dumps(self.facts["partition"], sort_keys=True)


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
        return sorted({number for entry in self.by_value for number in entry.facts["equality-ids"]})


def snapshot_entries(jvm: Any, table: Any, snapshot_id: int) -> SnapshotEntries:
    """Reads the manifests of a snapshot. Raises TableError for deletes that cannot be read."""
    snapshot, manifests = table.snapshot(snapshot_id), getattr(jvm, "org.apache.iceberg.ManifestFiles")
    data = [
        entry
        for manifest in each(snapshot.dataManifests(table.io()))
        for entry in _entries(jvm, table, manifests.read(manifest, table.io(), table.specs()))
    ]
    by_value, shared, own = list[Entry](), list[Entry](), dict[str, list[Entry]]()
    for manifest in each(snapshot.deleteManifests(table.io())):
        for entry in _entries(jvm, table, manifests.readDeleteManifest(manifest, table.io(), table.specs())):
            if entry.facts["content"] == "equality-deletes":
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
    if (kind := str(entry.facts["file-format"]).upper()) != "PARQUET":
        raise TableError(f"{entry.path} has deletes as {kind}, and only Parquet can be read. {REWRITE}")
    return entry


def table_files(entries: SnapshotEntries, compared: Sequence[Entry]) -> list[TableFile]:
    """Returns data files, or equality deletes, as the rules know them."""
    ids, scopes = set(entries.field_ids), _scopes(entries)
    return [
        TableFile(
            path=entry.path,
            scope=EVERYWHERE if _is_everywhere(entry, entries) else scopes[entry.iceberg_partition],
            sequence_number=entry.sequence_number,
            records=int(entry.facts["record-count"]),
            field_ids=tuple(sorted(entry.facts.get("equality-ids") or ())),
            bounds=_bounds(entry.facts, ids),
        )
        for entry in compared
    ]


def _scopes(entries: SnapshotEntries) -> dict[tuple[int, str], int]:
    partitions = sorted({entry.iceberg_partition for entry in (*entries.data, *entries.by_value)})
    return {partition: number for number, partition in enumerate(partitions)}


def _is_everywhere(entry: Entry, entries: SnapshotEntries) -> bool:
    return bool(entry.facts.get("equality-ids")) and int(entry.facts["spec-id"]) in entries.unpartitioned


def _bounds(facts: Mapping[str, Any], ids: set[int]) -> dict[int, ColumnBounds]:
    low, high, nulls = (_by_id(facts, name) for name in ("lower-bounds", "upper-bounds", "null-value-counts"))
    return {
        number: ColumnBounds(_bytes(low.get(number)), _bytes(high.get(number)), nulls.get(number))
        for number in ids
        if number in nulls
    }


def _by_id(facts: Mapping[str, Any], name: str) -> dict[int, Any]:
    pairs = facts.get(name) or {"keys": (), "values": ()}
    return dict(zip(pairs["keys"], pairs["values"], strict=True))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def registrations(entries: SnapshotEntries) -> dict[str, tuple[tuple[int, ...], tuple[tuple[str, int], ...]]]:
    """Returns, for each data file, the sequence numbers with which it is registered, and its own delete files."""
    numbers: dict[str, list[int]] = {}
    for entry in entries.data:
        numbers.setdefault(entry.path, []).append(entry.sequence_number)
    return {
        path: (tuple(sorted(of_file)), tuple(sorted(identity(e.file) for e in entries.own.get(path, ()))))
        for path, of_file in numbers.items()
    }

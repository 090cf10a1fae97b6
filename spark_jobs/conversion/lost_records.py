"""Says what every data file has lost: by equality deletes as tasks found it, by shared position deletes, and by its
own.

A file that is registered more than once has one delete file afterwards, which hides a record in every registration: so
its registrations must have lost the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from cleantail.errors import TableError
from cleantail.lake.delete_entries import REWRITE
from cleantail.lake.position_deletes import DeleteFile, require_readable
from spark_jobs.conversion.snapshot_entries import Entry, SnapshotEntries
from spark_jobs.iceberg.delete_files import Lost, read_deletes_in_driver

SharedPositions = Sequence[tuple[int, Mapping[str, BitMap64]]]
"""Number of a shared delete file -> data file -> its deleted positions."""


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Says what data files have lost. `whole`: data file -> everything that it has lost. `changed`: those of them that
    get a delete file, since one that goes hides records there. `hidden`: how many records the delete files that go
    hide, each once."""

    whole: Mapping[str, BitMap64]
    changed: frozenset[str]
    hidden: int

    def lost(self, entries: SnapshotEntries) -> list[Lost]:
        """Returns the delete files that are to be written."""
        facts = {entry.path: entry.facts for entry in entries.data if entry.path in self.changed}
        return [(facts[path], self.whole[path]) for path in sorted(self.changed)]


def lost_records(
    table: Any, entries: SnapshotEntries, by_value: Mapping[int, BitMap64], shared: SharedPositions
) -> LostRecords:
    """Returns what the data files have lost. `by_value` is by their numbers in `entries.data`. Raises TableError where
    registrations of one file differ in it, or deletion vectors make the table unreadable."""
    by_position = _by_position(entries, shared)
    whole, changed, hidden = dict[str, BitMap64](), set[str](), 0
    for number, entry in enumerate(entries.data):
        own = _own(table, entries, entry)
        gone = by_value.get(number, BitMap64()) | by_position.get(number, BitMap64())
        lost = own | gone
        if entry.path in whole and whole[entry.path] != lost:
            raise TableError(
                f"{entry.path} is registered more than once, and its registrations have lost different records, which "
                f"no delete file of it can say. {REWRITE}"
            )
        if entry.path not in whole:
            hidden += len(gone - own)
        whole[entry.path] = lost
        if gone - own:
            changed.add(entry.path)
    return LostRecords({path: lost for path, lost in whole.items() if lost}, frozenset(changed), hidden)


def _by_position(entries: SnapshotEntries, shared: SharedPositions) -> dict[int, BitMap64]:
    """Returns number of a data file -> its positions in shared delete files. Such a file is of data files of its own
    partition that did not come after it."""
    numbers: dict[str, list[int]] = {}
    for number, entry in enumerate(entries.data):
        numbers.setdefault(entry.path, []).append(number)
    hidden: dict[int, BitMap64] = {}
    for number, by_file in shared:
        delete = entries.shared[number]
        for path, positions in by_file.items():
            for n in numbers.get(path, ()):
                data = entries.data[n]
                if (
                    data.sequence_number <= delete.sequence_number
                    and data.iceberg_partition == delete.iceberg_partition
                ):
                    hidden[n] = hidden.get(n, BitMap64()) | positions
    return hidden


def _own(table: Any, entries: SnapshotEntries, data: Entry) -> BitMap64:
    """Returns what the data file's own delete files hide of it."""
    deletes = entries.own.get(data.path, ())
    vectors = [e for e in deletes if e.facts.content_offset is not None]
    if vectors:  # which has all of them
        require_readable([DeleteFile(data.path, e.path, "PUFFIN", 0, e.sequence_number) for e in vectors],
                         data.sequence_number)  # fmt: skip
        deletes = vectors
    since = [e.facts.deleted_positions for e in deletes if e.sequence_number >= data.sequence_number]
    return BitMap64.union(BitMap64(), *(read_deletes_in_driver(table, where, data.path) for where in since))

"""Convert equality deletes, and position deletes that cover several data files, into deletes of one data file each.

    Flink's or Connect's upserts, Debezium's deletes  ->  deletion vectors (format version 3), position deletes (2)

1. The driver reads the data and delete files from the manifests of a snapshot. Iceberg's own scan plan would be too
   large, because it repeats thousands of equality deletes for each data file.
2. Tasks find the positions of the deleted records (convert_tasks), by the rules of cleantail.adopt.equality_deletes. A
   file that is registered more than once gets one delete file, so its registrations must have lost the same records.
3. A commit to a branch adds the new delete files and removes the old ones. No reader reads the branch.
4. Three sets of records must be equal. Iceberg's reader in Spark found the first in the table before. The tasks found
   the second, and Spark finds the third on the branch.
5. One commit applies the change to `main`. Commits of a sink in the meantime stay, with their equality deletes. If they
   changed a file that the result depends on, the conversion starts again.

A killed run leaves `main` unchanged. A later run drops its branch after a day.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from cleantail.adopt.equality_deletes import EVERYWHERE, ColumnBounds, Converted, TableFile, searches
from cleantail.config.platform import Platform
from cleantail.config.topic_table import quoted
from cleantail.errors import ConflictError, TableError
from cleantail.human import counted
from cleantail.lake.catalogs import load_named, store_properties
from cleantail.lake.manifest_entries import REWRITE
from cleantail.lake.position_deletes import DeleteFile, require_readable
from cleantail.lake.records.log_records import require_parquet
from cleantail.lake.storage_locations import OwnFolders, require_safe_commits
from cleantail.log.task_shares import in_one_process, parallelism
from cleantail.retries import ROUNDS
from cleantail.rounds.commit_summaries import CONVERT, OPERATION
from spark_jobs.convert_tasks import (
    Alive,
    PositionsTask,
    SearchTask,
    alive_records,
    key_columns,
    read_positions,
    search,
)
from spark_jobs.engine.tasks import require_python, run_described, stored_work
from spark_jobs.iceberg.commits import (
    Load,
    drop_branches,
    new_update,
    overtaken,
    replay,
    send,
    stage_deletes,
    with_summary,
)
from spark_jobs.iceberg.file_columns import PartitionConstants
from spark_jobs.iceberg.file_facts import FileFacts
from spark_jobs.iceberg.iceberg_reads import BranchChange, asked_again, data_file_of, history, iceberg_table, identity
from spark_jobs.iceberg.java_calls import described_file, each
from spark_jobs.iceberg.log_files import all_of, read_deletes_in_driver, write_deletes
from spark_jobs.iceberg.tables import branch_name, created_at_s

NO_DATA_FILE = "None"
"""Result of `data_file_of` for a delete file that covers several data files."""


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A file of a snapshot. `file` is Iceberg's object, `sequence_number` its data sequence number."""

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
    """The files of a snapshot.

    by_value       equality deletes
    shared         position deletes of several data files
    own            data file -> its own delete files, including deletion vectors
    unpartitioned  ids of the partition specs without fields
    """

    data: Sequence[SnapshotEntry]
    by_value: Sequence[SnapshotEntry]
    shared: Sequence[SnapshotEntry]
    own: Mapping[str, Sequence[SnapshotEntry]]
    unpartitioned: frozenset[int]

    @property
    def foreign(self) -> list[SnapshotEntry]:
        """Return the delete files that cover several data files."""
        return [*self.by_value, *self.shared]

    @property
    def field_ids(self) -> list[int]:
        return sorted({number for entry in self.by_value for number in entry.facts.equality_ids})


def snapshot_entries(jvm: Any, table: Any, snapshot_id: int) -> SnapshotEntries:
    """Read the manifests of a snapshot. Raises TableError for deletes that cannot be read."""
    snapshot, manifests = table.snapshot(snapshot_id), getattr(jvm, "org.apache.iceberg.ManifestFiles")
    data = [
        entry
        for manifest in each(snapshot.dataManifests(table.io()))
        for entry in _entries(jvm, table, manifests.read(manifest, table.io(), table.specs()))
    ]
    for entry in data:
        require_parquet(entry.path, entry.facts.file_format)
    by_value, shared, own = list[SnapshotEntry](), list[SnapshotEntry](), dict[str, list[SnapshotEntry]]()
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


def _entries(jvm: Any, table: Any, reader: Any) -> Iterator[SnapshotEntry]:
    try:
        for file in each(reader):
            yield SnapshotEntry(file, described_file(jvm, table, file), int(file.dataSequenceNumber()))
    finally:
        reader.close()


def _parquet(entry: SnapshotEntry) -> SnapshotEntry:
    if not entry.facts.is_parquet:
        kind = entry.facts.file_format.upper()
        raise TableError(f"{entry.path} has deletes as {kind}, and only Parquet can be read. {REWRITE}")
    return entry


def table_files(table: Any, entries: SnapshotEntries, compared: Sequence[SnapshotEntry]) -> list[TableFile]:
    """Convert data files, or equality deletes, to the type of equality_deletes."""
    ids = set(entries.field_ids)
    constants = PartitionConstants(table, ids)
    partitions = sorted({entry.iceberg_partition for entry in (*entries.data, *entries.by_value)})
    scopes = {partition: number for number, partition in enumerate(partitions)}

    def converted(entry: SnapshotEntry) -> TableFile:
        facts = entry.facts
        everywhere = bool(facts.equality_ids) and facts.spec_id in entries.unpartitioned
        return TableFile(
            path=entry.path,
            scope=EVERYWHERE if everywhere else scopes[entry.iceberg_partition],
            sequence_number=entry.sequence_number,
            records=facts.records,
            field_ids=tuple(sorted(facts.equality_ids)),
            bounds=_bounds(facts, ids),
            constants=() if facts.equality_ids else constants.of(facts),  # an equality delete stores its columns
        )

    return [converted(entry) for entry in compared]


def _bounds(facts: FileFacts, ids: set[int]) -> dict[int, ColumnBounds]:
    nulls = facts.null_value_counts
    return {number: ColumnBounds(*facts.bounds_of(number), nulls[number]) for number in ids if number in nulls}


def registrations(entries: SnapshotEntries) -> dict[str, tuple[tuple[int, ...], tuple[tuple[str, int], ...]]]:
    """Return data file -> (sequence numbers of its registrations, its own delete files)."""
    numbers: dict[str, list[int]] = {}
    for entry in entries.data:
        numbers.setdefault(entry.path, []).append(entry.sequence_number)
    return {
        path: (tuple(sorted(of_file)), tuple(sorted(identity(e.file) for e in entries.own.get(path, ()))))
        for path, of_file in numbers.items()
    }


SharedPositions = Sequence[tuple[int, Mapping[str, BitMap64]]]
"""Number of a shared delete file -> data file -> its deleted positions."""


@dataclass(frozen=True, slots=True)
class LostRecords:
    """The deleted positions of data files.

    whole    data file -> all its deleted positions
    changed  data files that need a new delete file, because a removed one hides some of their records
    hidden   number of records that the removed delete files hide; each counts once
    """

    whole: Mapping[str, BitMap64]
    changed: frozenset[str]
    hidden: int


def lost_records(
    table: Any, entries: SnapshotEntries, by_value: Mapping[int, BitMap64], shared: SharedPositions
) -> LostRecords:
    """Return the deleted positions of the data files. `by_value`: index in `entries.data` -> positions. Raises
    TableError if registrations of a file differ, or deletion vectors make the table unreadable."""
    by_position = _by_position(entries, shared)
    whole, changed, hidden = dict[str, BitMap64](), set[str](), 0
    for number, entry in enumerate(entries.data):
        own = _own(table, entries, entry)
        gone = by_value.get(number, BitMap64()) | by_position.get(number, BitMap64())
        lost = own | gone
        if entry.path in whole and whole[entry.path] != lost:
            raise TableError(
                f"{entry.path} is registered more than once, and its registrations lost different records. A delete "
                f"file cannot express that. {REWRITE}"
            )
        if entry.path not in whole:
            hidden += len(gone - own)
        whole[entry.path] = lost
        if gone - own:
            changed.add(entry.path)
    return LostRecords({path: lost for path, lost in whole.items() if lost}, frozenset(changed), hidden)


def _by_position(entries: SnapshotEntries, shared: SharedPositions) -> dict[int, BitMap64]:
    """Return index in `entries.data` -> positions that shared delete files hide.

    A shared delete file applies to data files of its own partition that are not newer."""
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


def _own(table: Any, entries: SnapshotEntries, data: SnapshotEntry) -> BitMap64:
    """Return the positions that the data file's own delete files hide."""
    deletes = entries.own.get(data.path, ())
    vectors = [e for e in deletes if e.facts.content_offset is not None]
    if vectors:  # a vector contains all deletes of its data file
        require_readable([DeleteFile(data.path, e.path, "PUFFIN", 0, e.sequence_number) for e in vectors],
                         data.sequence_number)  # fmt: skip
        deletes = vectors
    since = [e.facts.deleted_positions for e in deletes if e.sequence_number >= data.sequence_number]
    return BitMap64.union(BitMap64(), *(read_deletes_in_driver(table, where, data.path) for where in since))


logger = logging.getLogger("cleantail.convert_deletes")

STEM = "rw_deletes"
"""Prefix of the branches of conversions."""
STALE_S = 86_400
"""Age after which a branch counts as left behind by a killed run."""
SHARE_RECORDS = 1_000_000
"""Minimum number of records for a task. With fewer, the start of the task costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one table, named namespace.name."""

    spark: SparkSession
    platform: Platform
    table: str

    @property
    def quoted_name(self) -> str:
        return quoted(f"{self.platform.catalog.name}.{self.table}")

    def load(self) -> Any:
        return iceberg_table(self.spark, self.quoted_name)

    def run(self, work: Any, tasks: Sequence[Any], what: str) -> list[Any]:
        """Run tasks that open the table's files on Spark."""
        if not tasks:
            return []
        require_python(self.spark.sparkContext, self.platform)
        store = store_properties(load_named(self.platform, self.table))
        return run_described(self.spark.sparkContext, stored_work(work, store), tasks, f"{what} of {self.table}")


def convert_deletes(spark: SparkSession, platform: Platform, table: str) -> Converted:
    """Convert the deletes of a table, named namespace.name. Empty if no delete needs it. Raises ConflictError if
    another commit came first in every attempt, TableError for deletes that cannot be read."""
    return ROUNDS.run(
        lambda: _convert(Conversion(spark, platform, table)),
        lambda attempt, error: logger.info("the conversion starts again (attempt %s): %s", attempt, error),
    )


def _convert(conversion: Conversion) -> Converted:
    require_safe_commits(load_named(conversion.platform, conversion.table))
    spark, table = conversion.spark, conversion.load()
    jvm: Any = spark._jvm
    names, before_s = map(str, each(table.refs().keySet())), time.time() - STALE_S
    left = [name for name in names if name.startswith(STEM) and created_at_s(name) < before_s]
    drop_branches(conversion.load, left)  # of killed runs
    if table.currentSnapshot() is None:
        return Converted()
    base = int(table.currentSnapshot().snapshotId())
    entries = snapshot_entries(jvm, table, base)
    if not entries.foreign:
        return Converted()
    own = OwnFolders(conversion.table, str(table.location()), conversion.platform.imported_folders)
    own.require(entry.path for of_kind in (entries.data, entries.foreign, *entries.own.values()) for entry in of_kind)
    lost = lost_records(table, entries, _hidden_by_value(conversion, table, entries), _shared(conversion, entries))
    before = _read_by_spark(conversion, f"VERSION AS OF {base}")
    _require_same(
        _expected(entries, lost), before, conversion.table, "Cleantail and Spark find different records deleted"
    )
    done = Converted(len(entries.by_value), len(entries.shared), lost.hidden, len(lost.changed),
                     sum(alive.records for alive in before.values()))  # fmt: skip
    change = _change(jvm, table, entries, lost)
    branch = branch_name(STEM)
    stage_deletes(jvm, conversion.load, branch, base, change, _summary(done))
    try:
        after = _read_by_spark(conversion, f"VERSION AS OF '{branch}'")
        _require_same(before, after, conversion.table, "the conversion would change the table's records")
        snapshot_id = _publish(jvm, conversion.load, base, entries, change, done, branch)
    except BaseException:
        drop_branches(conversion.load, [branch])
        raise
    logger.info(
        "%s: %s and %s became deletes of %s", conversion.table, counted(done.equality_deletes, "equality delete file"),
        counted(done.shared_position_deletes, "shared position delete file"), counted(done.data_files, "data file"),
    )  # fmt: skip
    return replace(done, snapshot_id=snapshot_id)


def _hidden_by_value(conversion: Conversion, table: Any, entries: SnapshotEntries) -> dict[int, BitMap64]:
    """Return index in `entries.data` -> positions that equality deletes remove."""
    columns = key_columns(table, entries.field_ids)
    files, deletes = table_files(table, entries, entries.data), table_files(table, entries, entries.by_value)
    spark = conversion.platform.spark
    cores, records = parallelism(spark), sum(file.records for file in files)
    kinds = {number: column.kind for number, column in columns.items()}
    packs = searches(files, deletes, kinds, max(SHARE_RECORDS, -(-records // cores)))
    alone = len(packs) == 1 and in_one_process(spark)
    tasks = [
        SearchTask(
            files=tuple((n, files[n]) for n in pack.files),
            deletes=tuple(deletes[n] for n in pack.deletes),
            columns=columns,
            threads=cores if alone else 1,
            memory_bytes=conversion.platform.cleaner.cleantail_task_memory_bytes,
            location=conversion.platform.warehouse,
        )
        for pack in packs
    ]
    hidden: dict[int, BitMap64] = {}
    for of_task in conversion.run(search, tasks, "find what equality deletes remove"):
        hidden |= of_task
    return hidden


def _shared(conversion: Conversion, entries: SnapshotEntries) -> SharedPositions:
    named = [(number, entry.path) for number, entry in enumerate(entries.shared)]
    number = min(parallelism(conversion.platform.spark), len(named))
    tasks = [PositionsTask(tuple(named[n::number]), conversion.platform.warehouse) for n in range(number)]
    return [one for done in conversion.run(read_positions, tasks, "read shared position deletes") for one in done]


def _change(jvm: Any, table: Any, entries: SnapshotEntries, lost: LostRecords) -> BranchChange:
    """Write the new delete files. Returns them, uncommitted, with the delete files that they replace."""
    facts = {entry.path: entry.facts for entry in entries.data if entry.path in lost.changed}
    contents = [(facts[path], lost.whole[path]) for path in sorted(lost.changed)]
    written = write_deletes(jvm, table, contents) if contents else []
    replaced = [entry.file for path in sorted(lost.changed) for entry in entries.own.get(path, ())]
    return BranchChange(tuple(written), (*replaced, *(entry.file for entry in entries.foreign)), 0)


def _read_by_spark(conversion: Conversion, version: str) -> dict[str, Alive]:
    query = f"SELECT _file, _pos FROM {conversion.quoted_name} {version}"
    return alive_records(asked_again(lambda: conversion.spark.sql(query)))


def _expected(entries: SnapshotEntries, lost: LostRecords) -> dict[str, Alive]:
    """Return data file -> the records that readers must find, by the result of this conversion."""
    expected: dict[str, Alive] = {}
    for entry in entries.data:
        alive = all_of(entry.facts.records) - lost.whole.get(entry.path, BitMap64())
        before = expected.get(entry.path, Alive(alive, 0))
        if alive:
            expected[entry.path] = Alive(alive, before.records + len(alive))
    return expected


def _require_same(one: dict[str, Alive], other: dict[str, Alive], table: str, what: str) -> None:
    wrong = sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))
    if wrong:
        nothing = Alive(BitMap64(), 0)
        counts = [f"{p}: {one.get(p, nothing).records} and {other.get(p, nothing).records}" for p in wrong[:3]]
        raise TableError(
            f"{table}: {what}, in {counted(len(wrong), 'data file')} (records {'; '.join(counts)}); nothing was changed"
        )


def _publish(
    jvm: Any, load: Load, base: int, entries: SnapshotEntries, change: BranchChange, done: Converted, branch: str
) -> int:
    """Commit the change to `main` and drop the branch in one transaction. Returns the new snapshot's id.

    Other writers may append files and equality deletes meanwhile. Neither changes the deletes of an existing file.
    Raises ConflictError if a data file with new deletes was rewritten or got other deletes, or if a replaced delete
    file was removed."""

    def stage(table: Any, transaction: Any) -> None:
        now = int(table.currentSnapshot().snapshotId())
        if now != base:
            _require_unchanged(jvm, table, base, entries, change)
        delta = new_update(transaction, "newRowDelta").validateFromSnapshot(now).validateDeletedFiles()
        replay(jvm, delta, change, by_position=True)
        with_summary(delta, _summary(done)).commit()
        if table.refs().containsKey(branch):
            transaction.manageSnapshots().removeBranch(branch).commit()

    return int(send(load, stage, overtaken).currentSnapshot().snapshotId())


def _require_unchanged(jvm: Any, table: Any, base: int, entries: SnapshotEntries, change: BranchChange) -> None:
    """Raise ConflictError if the result no longer fits the table.

    The data files with new deletes must be registered as in the base, with the same delete files of their own. All
    replaced delete files must still exist."""
    if not any(commit.snapshot_id == base for commit in history(table)):
        raise ConflictError("the snapshot that the conversion read was rolled back or has expired")
    later = snapshot_entries(jvm, table, int(table.currentSnapshot().snapshotId()))
    before, after = registrations(entries), registrations(later)
    for path in sorted(data_file_of(jvm, file) for file in change.added):
        if before[path] != after.get(path):
            raise ConflictError(f"{path} was rewritten, registered again or got other deletes during the conversion")
    there = {identity(e.file) for e in later.foreign} | {identity(e.file) for own in later.own.values() for e in own}
    for file in change.removed:
        if identity(file) not in there:
            raise ConflictError(f"{file.location()} was removed during the conversion")


def _summary(done: Converted) -> dict[str, str]:
    return {
        OPERATION: CONVERT,
        "cleantail.converted-equality-deletes": str(done.equality_deletes),
        "cleantail.converted-shared-position-deletes": str(done.shared_position_deletes),
    }

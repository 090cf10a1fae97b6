"""Turns equality deletes, and position deletes of several data files, into deletes of one data file each.

    Flink's or Connect's upserts, Debezium's deletes  ->  deletion vectors (format version 3), position deletes (2)

1. Tasks find where the deleted records lie (search_task), by the rules of cleantail.adopt.equality_deletes.
2. The new delete files are committed to a branch, which no reader sees, and the old ones are taken away there.
3. It is checked record by record: what Iceberg's own reader in Spark sees of the table before, what was found here, and
   what Spark sees on the branch have to be the same.
4. One commit puts it onto `main`. What a sink has committed meanwhile stays, equality deletes too; where it has changed
   what this rests on, the conversion begins anew.

A killed run leaves `main` as it was, and a branch that a run takes away once it is a day old.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from cleantail.adopt.equality_deletes import Converted, searches
from cleantail.config.platform import Platform
from cleantail.config.topic_table import quoted
from cleantail.errors import ConflictError, TableError
from cleantail.human import counted
from cleantail.lake.catalogs import load_named, store_properties
from cleantail.lake.table_folder import OwnFolders, require_safe_commits
from cleantail.log.task_shares import in_one_process, parallelism
from cleantail.retries import ROUNDS
from cleantail.rounds.commit_summaries import CONVERT, OPERATION
from spark_jobs.conversion.alive import Alive, alive_records
from spark_jobs.conversion.key_columns import key_columns
from spark_jobs.conversion.lost_records import LostRecords, SharedPositions, lost_records
from spark_jobs.conversion.search_task import PositionsTask, SearchTask, read_positions, search
from spark_jobs.conversion.snapshot_entries import SnapshotEntries, registrations, snapshot_entries, table_files
from spark_jobs.engine.tasks import require_python, run_described, stored_work
from spark_jobs.iceberg.branches import branch_name, created_at_s
from spark_jobs.iceberg.commits import Load, drop_branches, overtaken, replay, send, stage_deletes, with_summary
from spark_jobs.iceberg.delete_files import write_deletes
from spark_jobs.iceberg.iceberg_reads import BranchChange, data_file_of, history, iceberg_table, identity
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.manifest_threads import committing
from spark_jobs.iceberg.log_files import all_of

logger = logging.getLogger("cleantail.convert_deletes")

STEM = "rw_deletes"
"""What the names of a conversion's branches begin with."""
STALE_S = 86_400
"""A branch that is older was left behind by a killed run."""
SHARE_RECORDS = 1_000_000
"""Records of data files below which a task of its own costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Describes a table, by its name in the catalog, and where its files are opened from."""

    spark: SparkSession
    platform: Platform
    table: str

    @property
    def quoted_name(self) -> str:
        return quoted(f"{self.platform.catalog.name}.{self.table}")

    def load(self) -> Any:
        return iceberg_table(self.spark, self.quoted_name)

    def run(self, work: Any, tasks: Sequence[Any], what: str) -> list[Any]:
        """Runs tasks on Spark, which open the table's files."""
        if not tasks:
            return []
        require_python(self.spark.sparkContext, self.platform)
        store = store_properties(load_named(self.platform, self.table))
        return run_described(self.spark.sparkContext, stored_work(work, store), tasks, f"{what} of {self.table}")


def convert_deletes(spark: SparkSession, platform: Platform, table: str) -> Converted:
    """Converts the deletes of a table, named namespace.name, and returns what was done; nothing where there are none.
    Raises ConflictError where others were faster every time, TableError for deletes that cannot be read."""
    return ROUNDS.run(lambda: _convert(Conversion(spark, platform, table)), _noted)


def _noted(attempt: int, error: BaseException) -> None:
    logger.info("the conversion starts over (%s): %s", attempt, error)


def _convert(conversion: Conversion) -> Converted:
    require_safe_commits(load_named(conversion.platform, conversion.table))
    spark, table = conversion.spark, conversion.load()
    jvm: Any = spark._jvm
    _drop_stale(conversion.load)
    if table.currentSnapshot() is None:
        return Converted()
    base = int(table.currentSnapshot().snapshotId())
    entries = snapshot_entries(jvm, table, base)
    if not entries.foreign:
        return Converted()
    own = OwnFolders(conversion.table, str(table.location()), conversion.platform.imported_folders)
    own.require(entry.path for of_kind in (entries.data, entries.foreign, *entries.own.values()) for entry in of_kind)
    lost = lost_records(table, entries, _hidden_by_value(conversion, table, entries), _shared(conversion, entries))
    before = _seen(conversion, f"VERSION AS OF {base}")
    _require_same(_expected(entries, lost), before, conversion.table, "Cleantail and Spark find other records deleted")
    done = Converted(len(entries.by_value), len(entries.shared), lost.hidden, len(lost.changed),
                     sum(alive.records for alive in before.values()))  # fmt: skip
    change = _change(jvm, table, entries, lost)
    branch = branch_name(STEM)
    stage_deletes(jvm, conversion.load, branch, base, change, _summary(done))
    try:
        after = _seen(conversion, f"VERSION AS OF '{branch}'")
        _require_same(before, after, conversion.table, "the table would not have the same records as before")
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
    """Returns number of a data file -> the positions that equality deletes remove, as tasks found them."""
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
    """Writes the new delete files, which no snapshot knows yet, and names those that they replace."""
    written = write_deletes(jvm, table, lost.lost(entries)) if lost.changed else []
    replaced = [entry.file for path in sorted(lost.changed) for entry in entries.own.get(path, ())]
    return BranchChange(tuple(written), (*replaced, *(entry.file for entry in entries.foreign)), 0)


def _seen(conversion: Conversion, version: str) -> dict[str, Alive]:
    return alive_records(conversion.spark.sql(f"SELECT _file, _pos FROM {conversion.quoted_name} {version}"))


def _expected(entries: SnapshotEntries, lost: LostRecords) -> dict[str, Alive]:
    """Returns what readers have to see of each data file, by what was found here."""
    expected: dict[str, Alive] = {}
    for entry in entries.data:
        alive = all_of(entry.facts.records) - lost.whole.get(entry.path, BitMap64())
        before = expected.get(entry.path, Alive(alive, 0))
        if alive:
            expected[entry.path] = Alive(alive, before.records + len(alive))
    return expected


def _require_same(one: dict[str, Alive], other: dict[str, Alive], table: str, what: str) -> None:
    """Raises TableError, with the files' names and counts, where two counts of the table's records differ."""
    wrong = sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))
    if wrong:
        nothing = Alive(BitMap64(), 0)
        counts = [f"{p}: {one.get(p, nothing).records} and {other.get(p, nothing).records}" for p in wrong[:3]]
        raise TableError(
            f"{table}: {what}, in {counted(len(wrong), 'data file')} (records {'; '.join(counts)}); nothing was changed"
        )


def _drop_stale(load: Load) -> None:
    """Takes branches away that killed runs have left behind, a day later."""
    before_s = time.time() - STALE_S
    names = [str(name) for name in each(load().refs().keySet())]
    drop_branches(load, [name for name in names if name.startswith(STEM) and created_at_s(name) < before_s])


def _publish(
    jvm: Any, load: Load, base: int, entries: SnapshotEntries, change: BranchChange, done: Converted, branch: str
) -> int:
    """Commits the change to `main` and drops the branch, all or nothing; returns the new snapshot's id. Raises
    ConflictError where what it rests on has changed.

    What was found stays true whatever is appended meanwhile, and whatever deletes by value come: these are of files as
    they are. It does not where a data file in which records are deleted was rewritten or got other deletes, or where a
    delete file that is to go has gone."""

    def stage(table: Any, transaction: Any) -> None:
        now = int(table.currentSnapshot().snapshotId())
        if now != base:
            _require_unchanged(jvm, table, base, entries, change)
        delta = committing(transaction.newRowDelta(), table).validateFromSnapshot(now).validateDeletedFiles()
        replay(jvm, delta, change, by_position=True)
        with_summary(delta, _summary(done)).commit()
        if table.refs().containsKey(branch):
            transaction.manageSnapshots().removeBranch(branch).commit()

    return int(send(load, stage, overtaken).currentSnapshot().snapshotId())


def _require_unchanged(jvm: Any, table: Any, base: int, entries: SnapshotEntries, change: BranchChange) -> None:
    """Raises ConflictError unless the data files in which records are deleted are registered as in the base, with the
    same delete files of their own, and all delete files that are to go are there."""
    if not any(commit.snapshot_id == base for commit in history(table)):
        raise ConflictError("what the conversion read was rolled back, or has expired, which makes its result void")
    later = snapshot_entries(jvm, table, int(table.currentSnapshot().snapshotId()))
    before, after = registrations(entries), registrations(later)
    for path in sorted(data_file_of(jvm, file) for file in change.added):
        if before[path] != after.get(path):
            raise ConflictError(f"{path} was rewritten, registered again or got other deletes meanwhile")
    there = {identity(e.file) for e in later.foreign} | {identity(e.file) for own in later.own.values() for e in own}
    for file in change.removed:
        if identity(file) not in there:
            raise ConflictError(f"{file.location()} was taken away meanwhile")


def _summary(done: Converted) -> dict[str, str]:
    return {
        OPERATION: CONVERT,
        "cleantail.converted-equality-deletes": str(done.equality_deletes),
        "cleantail.converted-shared-position-deletes": str(done.shared_position_deletes),
    }

"""Groups of neighbouring files become new files without the deleted records, and take their place in one commit each.

A group is rewritten by a task of spark_jobs.engine.rewrites, which reads and writes with pyarrow; where that refuses,
by Spark onto a branch. A killed run leaves finished groups done, the rest as it was, and files that no snapshot knows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError, TableError
from cleantail.human import counted
from cleantail.log.policy.shares import parallelism
from cleantail.log.segments import DataFile
from cleantail.rounds.reclaim_results import RewrittenGroup
from spark_jobs.engine.rewrites.rewrite_task import rewrite_files
from spark_jobs.engine.rewrites.written_schema import UnlikeTableError
from spark_jobs.engine.tasks import run_tasks
from spark_jobs.iceberg.commits import replace_files
from spark_jobs.iceberg.iceberg_reads import PlannedFile, added_data_files, by_path, each, planned_files
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.upkeep.branch_rewriting import stage_on_branch
from spark_jobs.round.upkeep.task_files import new_data_files, rewrite_task

logger = logging.getLogger("cleantail.reclaim")

BASE_S = 60
"""How long groups are begun on the same snapshot: whatever rewrites their files after it, or deletes of them, makes
their rewriting void."""


@dataclass(frozen=True, slots=True)
class Base:
    """A snapshot from which groups are rewritten, and the registrations of its data files by path."""

    snapshot_id: int
    files: Mapping[str, Sequence[PlannedFile]]

    def of(self, group: Sequence[DataFile]) -> list[PlannedFile]:
        """Returns the group's files, in offset order. Raises ConflictError where one is gone, or was registered again:
        that one waits for a round that keeps it once."""
        for file in group:
            if len(self.files.get(file.path, ())) != 1:
                happened = "registered again" if file.path in self.files else "rewritten"
                raise ConflictError(f"{file.path} was {happened} after the run had begun")
        ordered = sorted(group, key=lambda f: (f.lower_offset, f.upper_offset, f.path))
        return [self.files[file.path][0] for file in ordered]


class Bases:
    """Plans the table anew when the last plan is older than BASE_S, and not for every group."""

    def __init__(self, table: TopicTable) -> None:
        self._table, self._lock = table, threading.Lock()
        self._base: Base | None = None
        self._planned_s = 0.0

    def now(self) -> Base:
        with self._lock:
            if self._base is None or time.monotonic() - self._planned_s > BASE_S:
                iceberg = self._table.load()
                snapshot_id = int(iceberg.currentSnapshot().snapshotId())
                files = by_path(planned_files(iceberg, self._table.jvm, snapshot_id))
                self._base, self._planned_s = Base(snapshot_id, files), time.monotonic()
            return self._base


@dataclass(frozen=True, slots=True)
class Staged:
    """A group's live records in new files, of which `main` knows nothing yet. `branch`: the one that has them, or
    None."""

    base: Base
    new_files: tuple[Any, ...]
    branch: str | None = None

    @property
    def records(self) -> int:
        return sum(int(file.recordCount()) for file in self.new_files)


def rewrite_groups(
    table: TopicTable, platform: Platform, groups: Sequence[Sequence[DataFile]]
) -> Iterator[RewrittenGroup]:
    """Rewrites each group as one task of Spark, as many at a time as there are cores, and yields those that were
    swapped on `main`. After an error no further group is begun, and what was staged is dropped."""
    bases = Bases(table)
    with ThreadPoolExecutor(parallelism(platform.spark)) as threads:
        staged = [threads.submit(stage_group, table, platform, g, bases, n) for n, g in enumerate(groups)]
        swapped = 0
        try:
            for group, future in zip(groups, staged, strict=True):
                new_files = _swapped(table, group, future)
                swapped += 1
                if new_files is not None:
                    yield RewrittenGroup(len(group), new_files, freed_bytes(table))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            for future in staged[swapped + 1 :]:
                if not future.cancelled() and future.exception() is None:
                    drop_staged(table, future.result())
            raise


def _swapped(table: TopicTable, group: Sequence[DataFile], staged: Future[Staged]) -> int | None:
    try:
        return swap_group(table, group, staged.result())
    except ConflictError as e:
        logger.warning("%s is left for the next run: %s", counted(len(group), "file"), e)
        return None


def stage_group(
    table: TopicTable, platform: Platform, group: Sequence[DataFile], bases: Bases, number: int = 0
) -> Staged:
    """Writes the live records of the group into new files, in offset order. Raises ConflictError where the group is not
    what it was when the run began."""
    base = bases.now()
    iceberg, files = table.load(), base.of(group)
    try:
        _require_no_overlap(group)
        task = rewrite_task(table, platform, iceberg, files)
        [rewritten] = run_tasks(table, platform, rewrite_files, [task], "rewrite files without deleted records")
        refusal = rewritten.refusal
    except UnlikeTableError as e:
        refusal = str(e)
    if refusal:
        logger.info("Spark rewrites %s: %s", counted(len(group), "file"), refusal)
        branch = stage_on_branch(table, group, base.snapshot_id, number)
        return Staged(base, tuple(added_data_files(table.load(), branch)), branch)
    return Staged(base, tuple(new_data_files(table, iceberg, files[0], rewritten.files)))


def _require_no_overlap(group: Sequence[DataFile]) -> None:
    """Raises UnlikeTableError where files of the group overlap: a task does not sort."""
    ordered = sorted(group, key=lambda f: (f.lower_offset, f.upper_offset))
    if any(after.lower_offset < file.upper_offset for file, after in pairwise(ordered)):
        raise UnlikeTableError("their offsets overlap")


def swap_group(table: TopicTable, group: Sequence[DataFile], staged: Staged) -> int | None:
    """Puts the new files in the old ones' place. Returns their number.

    Raises TableError, with `main` unchanged, when the rewritten records are not as many as those of the old files,
    ConflictError where another writer was faster. Then the new files are deleted.
    """
    expected = sum(f.live_records for f in group)
    try:
        if staged.records != expected:
            raise TableError(
                f"rewriting {counted(len(group), 'file')} gave {counted(staged.records, 'record')} for {expected}; "
                "nothing was changed"
            )
        old = [(f.task.file(), list(each(f.task.deletes()))) for f in staged.base.of(group)]
        number = max(f.data_sequence_number for f in group)
        summary = {"cleantail.operation": "reclaim"}
        replace_files(table, staged.new_files, old, staged.base.snapshot_id, number, summary)
    except (TableError, ConflictError):  # after any other error nobody knows whether `main` has the files
        drop_staged(table, staged)
        raise
    finally:
        if staged.branch is not None:
            table.drop_branch(staged.branch)
    return len(staged.new_files)


def drop_staged(table: TopicTable, staged: Staged) -> None:
    """Drops the branch, whose files go when its snapshot expires, or deletes the files that nothing knows of."""
    if staged.branch is not None:
        table.drop_branch(staged.branch)
        return
    io = table.load().io()
    for file in staged.new_files:
        io.deleteFile(str(file.location()))


def freed_bytes(table: TopicTable) -> int:
    """Returns by how much the last rewrite made the data files smaller; 0 where it did not."""
    summaries = [snapshot.summary() for snapshot in each(table.load().snapshots())]
    last = [s for s in summaries if s.get("cleantail.operation") == "reclaim"][-1]
    sizes = [int(last.get(name) or 0) for name in ("removed-files-size", "added-files-size")]
    return max(sizes[0] - sizes[1], 0)

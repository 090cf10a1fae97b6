"""Check one task's logs after the round is on its branch: count rule violations and the new state.

1. The check finds the winners again, on the base. For every record of the base, it compares whether the branch has the
   record with whether the branch should have it.
2. Keys that the dirty part touches must have one survivor, their winner. The records of all other keys must be as they
   were: they were proven unique when they were cleaned. A full proof (measures.prove_keys) compares all keys again.
3. An unchanged file that the round had no reason to change is counted by its metadata, and read only for its
   tombstones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from cleantail.log.winners import Booleans, Ranks
from spark_jobs.engine.log_task import Bounds, LogCounts, LogTask
from spark_jobs.engine.removals import COPIES, DirtyPart, decided_records, is_dirty, read_dirty_part
from spark_jobs.engine.tally import Ledgers, Tally
from spark_jobs.engine.task_records import (
    DIRTY,
    LIVE,
    PAST,
    Records,
    TouchedRecords,
    batch_of,
    flags_of,
    records_of,
    remembered_ranks,
    task_keys,
    touched_records,
    verdict_of,
    versioned,
)
from spark_jobs.iceberg.log_files import LogFile, live_after, live_before

UNUSABLE = {"timestamp": "future_timestamps", "header": "malformed_versions"}
"""Strategy -> the measure of dirty records with a version that the strategy cannot use."""


def count_violations(properties: Mapping[str, str], task: LogTask, ledgers: Ledgers) -> list[LogCounts]:
    """Return the counts of LogMeasure for each log. `task.files` have the deletes of base and branch."""
    io = load_file_io(dict(properties), task.location)
    with task_keys(task) as keys:
        dirty = read_dirty_part(task, io, keys)
        tally = Tally(task, ledgers)
        tally.count_dirty(dirty.records)
        touched = touched_records(task, keys, examined_records(dirty, io, tally))
        ranks = remembered_ranks(task, io, keys, dirty.touched.count)
        count_touched(tally, touched, dirty.touched.count, ranks, dirty.best)
        return tally.result()


def read_share(
    dirty: DirtyPart, io: FileIO, ledgers: Ledgers
) -> tuple[Iterator[pa.RecordBatch], Callable[[], list[LogCounts]]]:
    """Return the records that need a decision by key, and a function that returns all other counts once they are read.
    Only the first share counts the dirty records."""
    tally = Tally(dirty.task, ledgers)
    if dirty.task.is_first_share:
        tally.count_dirty(dirty.records)
    return examined_records(dirty, io, tally), tally.result


def decide_bucket(
    task: LogTask,
    records: TouchedRecords,
    count: int,
    remembered: Ranks | None,
    best: Ranks | None = None,
    *,
    ledgers: Ledgers,
) -> list[LogCounts]:
    """Return the counts that depend on which record of a bucket's keys wins. `best`: as in verdict_of."""
    tally = Tally(task, ledgers)
    count_touched(tally, records, count, remembered, best)
    return tally.result()


def examined_records(dirty: DirtyPart, io: FileIO, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Yield the records with a key that are below the end, and count everything that does not depend on keys."""
    task, bounds = dirty.task, Bounds.of(dirty.task)
    for number, file in task.numbered_files():
        keep = live_before(io, file)
        if _as_it_was(file, dirty):
            _count_unread(io, tally, file, keep)
            continue
        alive_after = live_after(io, file)
        foreign = ~keep & alive_after  # deleted in the base, but live on the branch
        for records in records_of(io, task, file, foreign, keys=False) if foreign.any() else ():
            everyone = np.ones(len(records), np.bool_)
            tally.add(records, {"foreign_records": everyone, "records_out": everyone})
        copies = dirty.copies.of(file)
        if dirty.decides(file, keep):
            _count_decided(dirty, io, tally, file, keep, alive_after)
            continue
        for records in records_of(io, task, file, keep, versions=versioned(task), tombstones=True):
            live = alive_after[records.pos]
            tally.add_tombstones(records, live)
            in_dirty = is_dirty(records, bounds)
            copy = copies.among(records, in_dirty)
            _count_records(tally, bounds, records, live, copy)
            versions = records.versions(task)
            if unusable := UNUSABLE.get(task.configs.compaction_strategy):
                tally.add(records, {unusable: versions.unusable & in_dirty})
            rest = (records.offset < bounds.end[records.log]) & ~copy & ~records.keyless
            past = records.offset < bounds.start[records.log]
            flags = flags_of(task, past) + np.where(live, LIVE, 0) + np.where(past, PAST, 0)
            flags += np.where(in_dirty, DIRTY, 0)
            yield batch_of(task, number, records.where(rest), flags[rest], versions.where(rest))


def _count_records(tally: Tally, bounds: Bounds, records: Records, live: Booleans, copy: Booleans) -> None:
    """Count what depends on a record alone. count_touched subtracts the due removals from `missing_winners`."""
    head = records.offset >= bounds.end[records.log]
    past = records.offset < bounds.start[records.log]
    keyless = records.keyless & ~head
    tally.add(
        records,
        {
            "records_in": np.ones(len(records), np.bool_),
            "records_out": live,
            "records_read": ~head & ~past,
            "records_kept": live & ~head & ~past,
            "head_changed": ~live & head,
            "missing_winners": ~(live | head | past | keyless | copy),
            "invalid_left": live & keyless,
            "duplicate_keys": live & copy & ~past,
            COPIES: copy,
        },
    )


def count_touched(
    tally: Tally, records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None
) -> None:
    verdict = verdict_of(records, count, remembered, best)
    live, past = records.has(LIVE), records.has(PAST)
    touched = verdict.known & ~past
    spared = touched & live & ~verdict.winner
    tally.add_places(records.place, {"missing_winners": touched & ~live & ~verdict.winner}, sign=-1)
    tally.add_places(
        records.place,
        {
            "duplicate_keys": spared & ~verdict.buried,
            "resurrected": spared & verdict.buried,
            "map_keys": verdict.best,
        },
    )


def _count_decided(
    dirty: DirtyPart, io: FileIO, tally: Tally, file: LogFile, keep: Booleans, alive_after: Booleans
) -> None:
    """Count the records of a file whose records are all dirty and whose winners the dirty part decides."""
    for records, wins in decided_records(dirty, io, file, keep, tombstones=True):
        live, everyone = alive_after[records.pos], np.ones(len(records), np.bool_)
        tally.add_tombstones(records, live)
        measures = {
            **dict.fromkeys(("records_in", "records_read"), everyone),
            **dict.fromkeys(("records_out", "records_kept"), live),
            "map_keys": wins,
            "missing_winners": wins & ~live,
            "duplicate_keys": live & ~wins,
        }
        tally.add(records, measures)


def _count_unread(io: FileIO, tally: Tally, file: LogFile, keep: Booleans) -> None:
    """Count the records of an unchanged file below the end by its metadata, once for all of its pieces."""
    assert file.log is not None, "a file of several logs is read"
    [place] = [i for i, work in enumerate(tally.task.works) if work.partition == file.log]
    counts, records = tally.logs[place].counts, int(np.count_nonzero(keep))
    for name in ("records_in", "records_out", "records_read", "records_kept") if not file.piece else ():
        counts[name] += records
    ledger = tally.ledgers.get(file.log)
    if file.null_values == 0 or ledger is None:
        return
    if any(file.may_hold(low, end) for low, end in ledger.spans):
        for batch in records_of(io, tally.task, file, keep, keys=False, tombstones=True):
            tally.add_tombstones(batch, np.ones(len(batch), np.bool_))


def _as_it_was(file: LogFile, dirty: DirtyPart) -> bool:
    """Return whether, by the metadata, the round has changed nothing in the file and had no reason to."""
    if file.log is None or file.before != file.after or file.lost or file.null_keys != 0 or dirty.copies:
        return False
    [work] = [work for work in dirty.task.works if work.partition == file.log]
    return file.lies_in(work.log_start_offset, work.first_dirty_offset) and not dirty.may_touch(file)

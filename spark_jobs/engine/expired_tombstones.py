"""Find the due tombstones that an expiry removes, in one task, and count them afterwards.

Tombstones that guard a key stay. Shares of a log's files are independent, because tombstones are not compared.

1. By offset no tombstone guards a key, because every record above it beats it.
2. By timestamp or header a record above the first dirty offset may have a lower rank. Without the tombstone that record
   would bring the key back (semantics.md 2, hazards 2 and 3), so the tombstone guards the key.
3. The lateness bound protects against records that are not in the log yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from cleantail.log.winners import Booleans, Ranks, beaten, ranks_of, record_ranks, worst_ranks
from cleantail.rounds.checked_round import EXPIRED
from spark_jobs.engine.log_task import Bounds, LogCounts, LogRemovals, LogTask
from spark_jobs.engine.removals import COPIES, DirtyOffsets, Removed
from spark_jobs.engine.tally import Ledgers, Tally
from spark_jobs.engine.task_records import (
    KEY_AND_OFFSET,
    Records,
    TaskKeys,
    batch_of,
    positions_by_place,
    records_of,
    task_keys,
    touched_records,
    versioned,
)
from spark_jobs.iceberg.log_files import LogFile, live_after, live_before


def find_expired(properties: Mapping[str, str], task: LogTask, ledgers: Ledgers) -> LogRemovals:
    """Return the tombstones in the ledgers' spans, without those that guard a key."""
    io = load_file_io(dict(properties), task.location)
    removed = Removed()
    with task_keys(task) as numbers:
        guards = guarding(task, io, numbers, ledgers)
        for number, records in tombstones_of(task, io, ledgers):
            goes = ~held_by(guards, task, number, records)
            removed.add_records(EXPIRED, task, number, records, goes)
            removed.add_last(records, goes)
    return removed.result(task, task)


def tombstones_of(task: LogTask, io: FileIO, ledgers: Ledgers) -> Iterator[tuple[int, Records]]:
    for number, file in task.numbered_files():
        if not _may_have(file, task, ledgers):
            continue
        keep = live_before(io, file)
        for records in records_of(io, task, file, keep, versions=versioned(task), tombstones=True):
            assert records.tombstone is not None, "tombstones were requested"
            inside = _in_spans(records, task, ledgers, records.tombstone)
            if inside.any():
                yield number, records.where(inside)


def _may_have(file: LogFile, task: LogTask, ledgers: Ledgers) -> bool:
    spans = (span for work in task.works for span in ledgers[work.partition].spans)
    return file.null_values != 0 and any(file.may_hold(low, end) for low, end in spans)


def _in_spans(records: Records, task: LogTask, ledgers: Ledgers, chosen: Booleans) -> Booleans:
    inside = np.zeros(len(records), np.bool_)
    for log in records.logs():
        of_log = chosen & (records.log == log)
        of_log[of_log] = ledgers[task.works[log].partition].in_spans(records.offset[of_log])
        inside |= of_log
    return inside


Guards = Mapping[int, np.ndarray[Any, Any]]
"""Number of a file among the task's -> the positions of its tombstones that guard a key."""


def guarding(task: LogTask, io: FileIO, numbers: TaskKeys, ledgers: Ledgers) -> Guards:
    """Return the tombstones that guard a key, because a record above the first dirty offset has a lower rank."""
    if not versioned(task):
        return {}

    touched = numbers.number(
        pa.RecordBatch.from_arrays([records.key, pa.array(records.offset)], schema=KEY_AND_OFFSET)
        for _, records in tombstones_of(task, io, ledgers)
    )
    lowest = _lowest_above(task, io, numbers, touched.count)
    batches = (
        batch_of(task, number, records, np.zeros(len(records), np.uint8), records.versions(task))
        for number, records in tombstones_of(task, io, ledgers)
    )
    tombstones = touched_records(task, numbers, batches)
    own = record_ranks(tombstones.versions, tombstones.offset)
    guards = beaten(ranks_of(tombstones.number, lowest), own)
    return {
        place % len(task.files): np.array(positions.to_array(), np.int64)
        for place, positions in positions_by_place(
            tombstones.place[guards] % max(len(task.files), 1), tombstones.pos[guards]
        ).items()
    }


def _lowest_above(task: LogTask, io: FileIO, numbers: TaskKeys, count: int) -> Ranks:
    """Return the lowest rank of each numbered key among the records above the first dirty offset."""
    bounds = Bounds.of(task)

    def above() -> Iterator[pa.RecordBatch]:
        # files of all shares, because a tombstone guards its key against each of their records
        for number, file in enumerate(task.files):
            if file.upper_offset is None or file.upper_offset >= int(bounds.end.min()):
                keep = live_before(io, file)
                for records in records_of(io, task, file, keep, versions=True):
                    chosen = (records.offset >= bounds.end[records.log]) & ~records.keyless
                    rest = records.where(chosen)
                    yield batch_of(task, number, rest, np.zeros(len(rest), np.uint8), rest.versions(task))

    waiting = touched_records(task, numbers, above())
    return worst_ranks(waiting.number, waiting.versions, waiting.offset, count)


def held_by(guards: Guards, task: LogTask, file_number: int, records: Records) -> Booleans:
    positions = guards.get(file_number)
    if positions is None:
        return np.zeros(len(records), np.bool_)
    return np.isin(records.pos, positions)


def judge_expiry(properties: Mapping[str, str], task: LogTask, ledgers: Ledgers) -> list[LogCounts]:
    """Return the counts of LogMeasure: an expiry may remove only due tombstones. `copies` is 1 if an
    offset repeats among the records below the end and in the ledger's spans, which include all due tombstones."""
    io = load_file_io(dict(properties), task.location)
    tally, bounds, offsets = Tally(task, ledgers), Bounds.of(task), DirtyOffsets()
    with task_keys(task) as numbers:
        guards = guarding(task, io, numbers, ledgers)
    for number, file in task.numbered_files():
        before = live_before(io, file)
        after = live_after(io, file)
        for records in records_of(io, task, file, before | after, keys=False, tombstones=True):
            in_spans = _in_spans(records, task, ledgers, before[records.pos])
            offsets.add(file, records.where(in_spans & (records.offset < bounds.end[records.log])))
            _count_records(tally, bounds, records, before, after, in_spans, held_by(guards, task, number, records))
    for log in offsets.copies(task.files).logs:
        tally.logs[log].counts[COPIES] = 1
    return tally.result()


def _count_records(
    tally: Tally,
    bounds: Bounds,
    records: Records,
    before: Booleans,
    after: Booleans,
    in_spans: Booleans,
    guards: Booleans,
) -> None:
    """Add the counts that depend only on a single record. `in_spans`: records of the base in the ledgers' spans."""
    assert records.tombstone is not None, "tombstones were requested"
    base, live = before[records.pos], after[records.pos]
    head = records.offset >= bounds.end[records.log]
    tombstone = records.tombstone & in_spans
    past = np.zeros(len(records), np.bool_)
    for log in records.logs():
        of_log = records.log == log
        ledger = tally.ledgers[tally.task.works[log].partition]
        past[of_log] = ledger.past_horizon(records.offset[of_log], tally.task.now_ms)
    due = past & tombstone
    gone = base & ~live
    tally.add(
        records,
        {
            "records_in": base,
            "records_out": live,
            "foreign_records": live & ~base,
            "head_changed": (base != live) & head,
            "missing_winners": gone & ~head & ~tombstone,
            "early_tombstones": gone & ~head & tombstone & ~(due & ~guards),
            "overdue_tombstones": live & due & ~guards,
        },
    )
    tally.add_tombstones(records.where(base), live[base], (due & guards)[base])

"""What one task does for one log: it finds what a round removes, or counts what the round has done.

Only for the `offset` strategy (semantics.md 1.4), and by columns, in a DuckDB of the task:

1. The offset map has of every key in the dirty part, [first dirty offset, end), the highest offset: its winner.
2. A record goes by the first reason that it has: it is below the log start (`retention`), it has no key and is below
   the end (`invalid`), or it is below the end and the map has a higher offset for its key (`superseded`).
3. A file is read only where its metadata say that it can hold such a record.
4. A round is judged by finding the winners anew, on the base, and by reading every record of the base: whether the
   branch has it, and whether it should. Files that could not change, and have not, are counted by their metadata.
5. A log in which an offset occurs twice, or a file without field ids, is refused: Spark's own plan does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyroaring import BitMap64

from cleantail.log.work_units import PartitionWork
from spark_jobs.engine.log_task import LogCounts, LogRemovals, LogTask, Refusal
from spark_jobs.engine.task_database import reading, task_database
from spark_jobs.iceberg.log_files import (
    BATCH_RECORDS,
    LogFile,
    UnknownLayoutError,
    alive,
    all_of,
    in_offset_order,
    read_deletes,
    record_batches,
)

KEYS = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("pos", pa.int64())])
REASONS = ("retention", "invalid", "superseded")
NOTHING = -1
"""Below every offset."""


R = TypeVar("R")


class CopiesError(Exception):
    """An offset occurs more than once. Of such copies the first that was appended survives (semantics.md 3.5), and
    Spark's plan finds out which that is."""


def find_removals(properties: Mapping[str, str], task: LogTask) -> LogRemovals | Refusal:
    """Returns the records that the round removes from the log. A record with two reasons goes by the first of REASONS.

    `properties`: of PyIceberg's FileIO, with the store's secrets.
    """
    return _with_database(properties, task, _removals)


def judge(properties: Mapping[str, str], task: LogTask) -> LogCounts | Refusal:
    """Returns the counts of rounds.last_compaction, and the violations of a round's rules (cleantail.log.rules).

    It reads every record of the base and finds the winners anew; `task.files` know what base and branch have deleted.
    """
    return _with_database(properties, task, _measures)


def _with_database(
    properties: Mapping[str, str], task: LogTask, work: Callable[[LogTask, FileIO, Any], R]
) -> R | Refusal:
    """Does the work with the store's file IO and a DuckDB of its own, unless the log is not one for a task."""
    io = load_file_io(dict(properties), task.location)
    try:
        with task_database(task.threads) as database:
            return work(task, io, database)
    except CopiesError:
        return Refusal("an offset occurs more than once")
    except UnknownLayoutError:
        return Refusal("a file has columns without field ids")


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Numbers of the table `winner`: its lowest and highest key, how many keys, and of how many dirty records."""

    low: bytes | None
    high: bytes | None
    keys: int
    records: int


def _winners(task: LogTask, io: FileIO, database: Any) -> OffsetMap:
    """Makes the table `winner` (key, keep): of every key in the dirty part its highest offset. Raises CopiesError."""
    work, seen = task.work, list[npt.NDArray[np.int64]]()

    def dirty() -> Iterator[pa.RecordBatch]:
        for file in in_offset_order(task.files):
            if file.may_hold(work.first_dirty_offset, work.end_offset):
                keep = alive(file.records, read_deletes(io, file.before, file.records))
                for batch in record_batches(io, file, task.columns, keep, {}):
                    offsets = batch.column("offset").to_numpy()
                    inside = (offsets >= work.first_dirty_offset) & (offsets < work.end_offset)
                    seen.append(offsets[inside])
                    yield batch.cast(KEYS)

    with reading(database, "dirty", KEYS, dirty()):
        database.execute(WINNERS, {"first": work.first_dirty_offset, "end": work.end_offset}).fetchall()
    offsets = np.sort(np.concatenate([np.empty(0, np.int64), *seen]))
    if (offsets[1:] == offsets[:-1]).any():
        raise CopiesError
    [(low, high, keys)] = database.execute("SELECT min(key), max(key), count(*) FROM winner").fetchall()
    return OffsetMap(low, high, keys, len(offsets))


WINNERS = """
CREATE TEMP TABLE winner AS SELECT key, max("offset") AS keep FROM dirty
WHERE "offset" >= $first AND "offset" < $end AND key IS NOT NULL GROUP BY key
"""


def _removals(task: LogTask, io: FileIO, database: Any) -> LogRemovals:
    work = task.work
    winners = _winners(task, io, database)
    retained_below = work.log_start_offset if task.retained else NOTHING
    schema = KEYS.append(pa.field("file", pa.int32()))

    def records() -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(task.files):
            if file.may_hold(0, retained_below) or (
                file.may_hold(0, work.end_offset)
                and (file.may_hold_keys(winners.low, winners.high) or file.null_keys != 0)
            ):
                keep = alive(file.records, read_deletes(io, file.before, file.records))
                numbers = {"file": pa.array(np.full(file.records, number, np.int32))}
                for batch in record_batches(io, file, task.columns, keep, numbers):
                    yield batch.cast(schema)

    removed: dict[tuple[str, int], BitMap64] = {}
    with reading(database, "record", schema, records()):
        rows = database.sql(REMOVALS, params={"retained": retained_below, "end": work.end_offset})
        for batch in rows.to_arrow_reader(BATCH_RECORDS):
            kinds, positions = batch.column("kind").to_numpy(), batch.column("pos").to_numpy()
            for kind in np.flatnonzero(np.bincount(kinds)).tolist():
                name = (REASONS[kind % len(REASONS)], task.files[kind // len(REASONS)].hash)
                of_kind = BitMap64(positions[kinds == kind].astype(np.uint64))
                removed[name] = removed[name] | of_kind if name in removed else of_kind
    by_reason: dict[str, dict[int, bytes]] = {}
    for (reason, file), bitmap in removed.items():
        by_reason.setdefault(reason, {})[file] = bitmap.serialize()
    return LogRemovals(work.partition, by_reason)


REMOVALS = f"""
SELECT pos, file * {len(REASONS)} + CASE WHEN r."offset" < $retained THEN 0 WHEN r.key IS NULL THEN 1 ELSE 2 END AS kind
FROM record r LEFT JOIN winner w ON r.key = w.key
WHERE r."offset" < $retained OR (r."offset" < $end AND (r.key IS NULL OR r."offset" < w.keep))
"""


def _measures(task: LogTask, io: FileIO, database: Any) -> LogCounts:
    work = task.work
    winners = _winners(task, io, database)
    schema = KEYS.append(pa.field("live", pa.bool_()))
    untouched, foreign = [0], [0]

    def records() -> Iterator[pa.RecordBatch]:
        for file in task.files:
            before = read_deletes(io, file.before, file.records)
            if _as_it_was(file, work, winners):
                untouched[0] += file.records - len(before)
                continue
            after = all_of(file.records) if file.lost else read_deletes(io, file.after, file.records)
            foreign[0] += len(before - after)
            live = {"live": pa.array(alive(file.records, after))}
            for batch in record_batches(io, file, task.columns, alive(file.records, before), live):
                yield batch.cast(schema)

    with reading(database, "record", schema, records()):
        row = database.sql(MEASURES, params={"start": work.log_start_offset, "end": work.end_offset})
        counts = dict(zip(row.columns, row.fetchall()[0], strict=True))
    for name in ("records_in", "records_out", "records_read", "records_kept"):
        counts[name] += untouched[0]
    counts["records_out"] += foreign[0]
    of_map = {"foreign_records": foreign[0], "map_keys": winners.keys, "map_records": winners.records}
    return LogCounts(work.partition, counts | of_map)


MEASURES = """
WITH flagged AS (
    SELECT live, r."offset" >= $end AS head, r."offset" < $start AS past, NOT head AND r.key IS NULL AS keyless,
        NOT head AND w.keep IS NOT NULL AS touched, touched AND r."offset" = w.keep AS winner
    FROM record r LEFT JOIN winner w ON r.key = w.key
)
SELECT count(*) AS records_in, count_if(live) AS records_out, count_if(NOT (head OR past)) AS records_read,
    count_if(live AND NOT (head OR past)) AS records_kept, count_if(NOT live AND head) AS head_changed,
    count_if(NOT live AND NOT past AND (winner OR NOT (head OR touched OR keyless))) AS missing_winners,
    count_if(live AND touched AND NOT winner AND NOT past) AS duplicate_keys, count_if(live AND keyless) AS invalid_left
FROM flagged
"""


def _as_it_was(file: LogFile, work: PartitionWork, winners: OffsetMap) -> bool:
    """Returns whether the metadata show that the round has changed nothing in the file, and had nothing to change."""
    return (
        file.before == file.after
        and not file.lost
        and file.null_keys == 0
        and file.lies_in(work.log_start_offset, work.first_dirty_offset)
        and not file.may_hold_keys(winners.low, winners.high)
    )

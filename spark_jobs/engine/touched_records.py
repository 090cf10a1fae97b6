"""The records that have a touched key, and which of them win: the second half of a round, and of its check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from cleantail.config.topic_table import KEY, OFFSET, PARTITION
from cleantail.lake.position_deletes import bitmap_of
from cleantail.log.winners import (
    Booleans,
    Longs,
    Numbers,
    Ranks,
    Versions,
    beaten,
    best_ranks,
    no_versions,
    remembered_units,
)
from spark_jobs.engine.columns.key_numbers import KeyNumbers, Rows
from spark_jobs.engine.columns.records import Records, with_log
from spark_jobs.engine.log_task import LogTask
from spark_jobs.iceberg.log_files import alive, column_batches, read_deletes_in_task

COMPETES, LIVE, PAST, DIRTY = 1, 2, 4, 8
"""Bits of a record's flags: it may win; the branch has it; it is below the log start; it lies in the dirty part."""
FIELDS = [
    ("key", pa.binary()),
    ("offset", pa.int64()),
    ("place", pa.int32()),
    ("pos", pa.int64()),
    ("flags", pa.uint8()),
]
VERSION_FIELDS = [("has", pa.bool_()), ("version", pa.int64())]
REMEMBERED = pa.schema([FIELDS[0], FIELDS[1], *VERSION_FIELDS])


def schema_of(task: LogTask) -> pa.Schema:
    """Returns the columns of records that are compared with the touched keys: without versions where the strategy has
    none."""
    return pa.schema(FIELDS + (VERSION_FIELDS if versioned(task) else []))


def versioned(task: LogTask) -> bool:
    return task.configs.compaction_strategy != "offset"


def batch_of(task: LogTask, file_number: int, records: Records, flags: Numbers, versions: Versions) -> pa.RecordBatch:
    """Returns the records as a batch of schema_of. `place` says log and file in one number."""
    place = records.log * len(task.files) + file_number
    arrays = [records.key, records.offset, place.astype(np.int32), records.pos, flags.astype(np.uint8)]
    if versioned(task):
        arrays += [versions.has, versions.version]
    return pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], schema=schema_of(task))


def flags_of(task: LogTask, past: Booleans) -> Numbers:
    """Returns which records compete for their key. By offset all do, as what is dirty is above all else; by a version
    those below the log start do not."""
    return np.where(past & versioned(task), 0, COMPETES)


@dataclass(frozen=True, slots=True)
class TouchedRecords:
    """Holds the records of touched keys, one entry for each.

    number   of the key, among the touched ones
    place    in which log and file the record is: number of the log x files of the task + number of the file
    pos      row in that file
    flags    COMPETES, LIVE, PAST and DIRTY, as bits
    """

    number: Numbers
    offset: Longs
    place: Numbers
    pos: Longs
    flags: Numbers
    versions: Versions

    def has(self, flag: int) -> Booleans:
        flagged: Booleans = (self.flags & flag) != 0
        return flagged


def touched_records(task: LogTask, keys: KeyNumbers, batches: Iterable[pa.RecordBatch]) -> TouchedRecords:
    """Returns those of the records whose key is touched. `batches`: of schema_of."""
    return collected(list(keys.numbered(schema_of(task), batches)))


def collected(parts: Sequence[Rows]) -> TouchedRecords:
    """Puts columns together that came in parts."""

    def column(name: str, kind: Any) -> Any:
        arrays = [part[name] for part in parts]
        return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.empty(0, kind)

    offset = column("offset", np.int64)
    versions = no_versions(len(offset))
    if parts and "version" in parts[0]:
        versions = Versions(column("has", np.bool_), column("version", np.int64), versions.unusable)
    return TouchedRecords(
        column("number", np.int64), offset, column("place", np.int32), column("pos", np.int64),
        column("flags", np.uint8), versions,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """Says of each touched record whether its key has a winner at all, whether it has the winner's rank, and whether a
    remembered deletion beats that, so that the key keeps no record."""

    known: Booleans
    best: Booleans
    buried: Booleans

    @property
    def winner(self) -> Booleans:
        """Returns which records survive."""
        return self.best & ~self.buried


def verdict_of(records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None) -> Verdict:
    """Says which of the records win (cleantail.log.winners).

    `count`: of keys. `remembered`: rank by key, where some are. `best`: the best rank of each key, where it is known
    already, and every key is touched.
    """
    touched = np.ones(count, np.bool_)
    if best is None:
        competes, touched = records.has(COMPETES), np.zeros(count, np.bool_)
        touched[records.number[records.has(DIRTY)]] = True
        best = best_ranks(records.number[competes], records.versions.where(competes), records.offset[competes], count)
    known = (best.known & touched)[records.number]
    none = np.zeros(len(records.offset), np.bool_)
    buried = none if remembered is None else known & beaten(best, remembered)[records.number]
    return Verdict(known, known & (records.offset == best.offset[records.number]), buried)


def remembered_ranks(task: LogTask, io: FileIO, keys: KeyNumbers, count: int) -> Ranks | None:
    """Returns the highest remembered rank of each touched key; None where nothing is remembered of these logs."""
    if not task.remembered.files or not count:
        return None
    parts = list(keys.numbered(REMEMBERED, remembered_batches(task, io)))
    return ranks_of_parts(parts, count) if parts else None


def ranks_of_parts(parts: Sequence[Rows], count: int) -> Ranks:
    """Returns the highest rank of each key among `parts`: columns number, offset, has and version."""
    names = ("number", "offset", "has", "version")
    number, offset, has, version = (np.concatenate([part[name] for part in parts]) for name in names)
    return best_ranks(number, Versions(has.astype(np.bool_), version, np.zeros(len(has), np.bool_)), offset, count)


def remembered_batches(task: LogTask, io: FileIO) -> Iterator[pa.RecordBatch]:
    """Yields the remembered ranks of the task's logs that are in force (key, offset, has, version)."""
    columns = (PARTITION, KEY, "strategy", "has_version", "version", OFFSET, "forget_at_ms")
    known = {work.partition: place for place, work in enumerate(task.works)}
    units = remembered_units(task.configs)
    for file in task.remembered.files:
        if file.log not in known:
            continue
        keep = alive(file.records, read_deletes_in_task(io, file.before, file))
        for at, arrays in column_batches(io, file, task.remembered.layout, columns):
            rows = pa.table({name: arrays[name] for name in columns})
            inside = pc.and_(
                pc.greater(rows["forget_at_ms"], task.now_ms), pc.is_in(rows["strategy"], pa.array(units.keys()))
            )
            rows = rows.filter(pc.and_(inside, pa.array(keep[at : at + len(rows)])))
            unit = np.array([units[text] for text in rows["strategy"].to_pylist()], np.int64)
            key = rows[KEY].combine_chunks()
            if len(task.works) > 1:
                key = with_log(np.full(len(rows), known[file.log], np.int32), key)
            ranks = [key, rows[OFFSET], rows["has_version"], pc.multiply(rows["version"], unit)]
            yield from pa.table(ranks, schema=REMEMBERED).to_batches()


def positions_by_place(place: Numbers, pos: Longs) -> dict[int, BitMap64]:
    """Returns the positions of each log and file."""
    if not len(place):
        return {}
    order = np.argsort(place, kind="stable")
    names, starts = np.unique(place[order], return_index=True)
    parts = np.split(pos[order], starts[1:])
    return {int(name): bitmap_of(part) for name, part in zip(names, parts, strict=True)}

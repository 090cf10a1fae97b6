"""The records of a task's files as columns, and the task's touched keys, each with a number.

    with task_keys(task) as keys:
        touched = keys.number(batches_of_the_dirty_part)
        for rows in keys.numbered(schema, batches_of_all_records): ...

A round, and its check, decide by these columns which records of touched keys win. Keys are compared byte by byte, never
only by a hash (semantics.md 3.11). A few keys are numbered in memory, which takes less time than opening a database.

The database of a task is DuckDB in a separate folder. It opens no other files, and spills to disk if keys do not fit
into its memory. The task closes the database at its end, because DuckDB returns memory to the system only then. The
folder exists while the task runs, and other users cannot read it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, ORDER, PARTITION, TIMESTAMP, TOMBSTONE, VALUE
from cleantail.errors import TableError
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
    versions_of,
)
from spark_jobs.engine.log_task import LogTask
from spark_jobs.iceberg.log_files import (
    BATCH_RECORDS,
    LogFile,
    column_batches,
    live_before,
)

KEY_AND_OFFSET = pa.schema([("key", pa.binary()), ("offset", pa.int64())])
Rows = Mapping[str, np.ndarray[Any, Any]]
"""Column -> its values, an entry for each record."""


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """The number of touched keys, and the lowest and highest key, or None."""

    count: int
    low: bytes | None
    high: bytes | None


PORTION_BYTES = 8 << 20
"""Size of a portion of records that is compared with the keys at a time."""


class KeysInMemory:
    """Each key once, with its lowest and highest offset. A key's place is its number."""

    def __init__(self, keys: pa.Array, first: Longs, last: Longs) -> None:
        self._keys, self._first, self._last = keys, first, last

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> KeysInMemory:
        """Return the keys of the batches (KEY_AND_OFFSET), without null keys."""
        rows = pa.Table.from_batches(batches, KEY_AND_OFFSET)
        rows = rows.filter(pc.is_valid(rows["key"])) if rows["key"].null_count else rows
        keys = rows["key"].combine_chunks().dictionary_encode()
        offset, number = rows["offset"].to_numpy(), keys.indices.to_numpy()
        first = np.full(len(keys.dictionary), np.iinfo(np.int64).max)
        last = np.full(len(keys.dictionary), np.iinfo(np.int64).min)
        np.minimum.at(first, number, offset)
        np.maximum.at(last, number, offset)
        return cls(keys.dictionary, first, last)

    def touched(self) -> TouchedKeys:
        ends = pc.min_max(self._keys).as_py()
        return TouchedKeys(len(self._keys), ends["min"], ends["max"])

    def offset_of_key(self, nth: int) -> int | None:
        return int(np.sort(self._first)[nth - 1]) if nth <= len(self._first) else None

    def below(self, offset: int) -> KeysInMemory:
        chosen = self._first < offset
        return KeysInMemory(self._keys.filter(pa.array(chosen)), self._first[chosen], self._last[chosen])

    def last_offsets(self) -> Longs:
        return self._last

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        waiting, waiting_bytes = list[pa.RecordBatch](), 0
        for batch in batches:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
            if waiting_bytes >= PORTION_BYTES:
                yield self._matching(pa.Table.from_batches(waiting, schema))
                waiting, waiting_bytes = [], 0
        if waiting:
            yield self._matching(pa.Table.from_batches(waiting, schema))

    def _matching(self, records: pa.Table) -> Rows:
        number = pc.index_in(records["key"], value_set=self._keys)
        matches = pc.is_valid(number)
        rows = records.drop_columns("key").filter(matches)
        columns = {name: rows[name].to_numpy() for name in rows.schema.names}
        return {"number": number.filter(matches).to_numpy().astype(np.int64), **columns}


CLOSED = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")
"""Settings to set to false, in this order, because the last one locks the others. Then the database opens no address,
and no file outside its own folder."""


@contextmanager
def task_database(threads: int, memory_bytes: int) -> Iterator[Any]:
    """Open a database that takes at most `memory_bytes`, and then spills to disk."""
    import duckdb  # here, because most drivers import this module and open no database

    folder = Path(tempfile.mkdtemp(prefix="cleantail-"))  # only this user can read it
    settings: dict[str, Any] = {"threads": threads, "memory_limit": f"{memory_bytes >> 10}KiB"}
    try:
        with duckdb.connect(config=settings | {"temp_directory": str(folder)}) as connection:
            for name in CLOSED:
                connection.execute(f"SET {name} = false")
            # DuckDB cannot estimate the length of a stream; the map is always the small side
            connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            connection.execute("SET preserve_insertion_order = false")
            yield connection
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Batches:
    """Batches for threads of the database, one thread at a time. `failed`: the error that ended them."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches, self._lock = iter(batches), Lock()
        self.failed: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            try:
                return next(self._batches)
            except StopIteration:
                raise
            except Exception as e:
                self.failed = e
                raise


@contextmanager
def reading(database: Any, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[None]:
    """Make the batches a table that can be read once. An error of the batches is raised without DuckDB's wrapper.

    The remaining batches are read at the end, because reading counts the records. The database itself stops early if it
    has its result, for example of a join with an empty table.
    """
    import duckdb

    stream = _Batches(batches)
    database.register(name, pa.RecordBatchReader.from_batches(schema, stream))
    try:
        yield
        for _ in stream:
            pass
    except duckdb.Error:
        if stream.failed:
            raise stream.failed from None
        raise
    finally:
        database.unregister(name)


class KeysInDatabase:
    """The keys in the database's table `touched`. `column`: the column with a key's number."""

    def __init__(self, database: Any, column: Literal["rowid", "number"] = "rowid") -> None:
        self._database, self._column = database, column

    @classmethod
    def of(cls, database: Any, batches: Iterable[pa.RecordBatch]) -> KeysInDatabase:
        """Create the table `touched` of the batches' keys, with their lowest and highest offsets, without null keys."""
        with reading(database, "dirty", KEY_AND_OFFSET, batches):
            database.execute(
                'CREATE OR REPLACE TEMP TABLE touched AS SELECT key, min("offset") AS first, '
                'max("offset") AS last FROM dirty WHERE key IS NOT NULL GROUP BY key'
            )
        return cls(database)

    def touched(self) -> TouchedKeys:
        [(low, high, count)] = self._database.execute("SELECT min(key), max(key), count(*) FROM touched").fetchall()
        return TouchedKeys(count, low, high)

    def offset_of_key(self, nth: int) -> int | None:
        ordered = "SELECT first FROM touched ORDER BY first LIMIT 1 OFFSET ?"
        rows = self._database.execute(ordered, [nth - 1]).fetchall()
        return int(rows[0][0]) if rows else None

    def below(self, offset: int) -> KeysInDatabase:
        self._database.execute("CREATE TEMP TABLE fewer AS SELECT * FROM touched WHERE first < ?", [offset])
        self._database.execute("DROP TABLE touched")
        self._database.execute("ALTER TABLE fewer RENAME TO touched")
        return self

    def last_offsets(self) -> Longs:
        rows = self._database.sql("SELECT rowid AS number, last FROM touched").to_arrow_table()
        last: Longs = np.empty(len(rows), np.int64)
        last[rows["number"].to_numpy()] = rows["last"].to_numpy()
        return last

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        with reading(self._database, "record", schema, batches):
            joined = f"SELECT t.{self._column} AS number, r.* EXCLUDE (key) FROM record r JOIN touched t USING (key)"
            for batch in self._database.sql(joined).to_arrow_reader(BATCH_RECORDS):
                if batch.num_rows:
                    yield rows_of(batch)


def rows_of(batch: pa.RecordBatch) -> Rows:
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}


HELD_BYTES = 32 << 20
"""Maximum size of a small task's keys in memory. The sizes in its files' metadata are compressed."""
TIMES_HELD = 8
"""Divisor of a task's memory for keys. Numbering takes up to six times their size (measured with different keys)."""


class TaskKeys:
    """Numbers keys, and finds records that have one of them. `open_database` is called if keys exceed `held_bytes`."""

    def __init__(self, held_bytes: int, open_database: Callable[[], Any]) -> None:
        self._held_bytes, self._open_database = held_bytes, open_database
        self._keys: KeysInMemory | KeysInDatabase = KeysInMemory.of([])

    def number(self, batches: Iterable[pa.RecordBatch]) -> TouchedKeys:
        """Give each key of the batches (KEY_AND_OFFSET) a number. Null keys get none."""
        held, more = held_batches(batches, self._held_bytes)
        if more is None:
            self._keys = KeysInMemory.of(held)
        else:
            self._keys = KeysInDatabase.of(self._open_database(), chain(held, more))
        return self._keys.touched()

    def offset_of_key(self, nth: int) -> int | None:
        """Return the offset of the record with which the nth key first occurs; None if there are fewer keys."""
        return self._keys.offset_of_key(nth)

    def leave_below(self, offset: int) -> TouchedKeys:
        """Keep only the keys that occur below the offset, numbered again."""
        self._keys = self._keys.below(offset)
        return self._keys.touched()

    def last_offsets(self) -> Longs:
        """Return the highest offset of each key, by the key's number."""
        return self._keys.last_offsets()

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        """Yield the records whose key is touched: their columns without the key, and `number`, the number of their key.

        All batches are read, even if no key is touched, because reading counts the records. `schema`: of the batches,
        with `key`.
        """
        return self._keys.numbered(schema, batches)


Numbered = TaskKeys | KeysInDatabase


@contextmanager
def task_keys(task: LogTask) -> Iterator[TaskKeys]:
    with ExitStack() as stack:
        yield TaskKeys(held_bytes(task), lambda: stack.enter_context(task_database(task.threads, task.memory_bytes)))


def held_bytes(task: LogTask) -> int:
    return min(HELD_BYTES, task.memory_bytes // TIMES_HELD) if task.is_small else 0


def held_batches(
    batches: Iterable[pa.RecordBatch], most_bytes: int
) -> tuple[Sequence[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """Return the first batches, and an iterator of the others, or None if all have at most `most_bytes`."""
    held, size, more = list[pa.RecordBatch](), 0, iter(batches)
    while size <= most_bytes:
        batch = next(more, None)
        if batch is None:
            return held, None
        held.append(batch)
        size += batch.nbytes
    return held, more


VERSION_COLUMN = {"timestamp": (TIMESTAMP,), "header": (HEADERS,), "order": (ORDER,), "offset": ()}


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of one file. `log`: the place of each record's log among the task's works. `key`: None if not
    read. If a task has several logs, each key begins with its log, so that equal keys of two logs differ.
    """

    log: Numbers
    offset: Longs
    pos: Longs
    key: pa.Array | None
    tombstone: Booleans | None
    timestamps: pa.Array | None
    headers: pa.Array | None
    orders: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.offset)

    def where(self, chosen: Booleans) -> Records:
        if chosen.all():
            return self
        mask = pa.array(chosen)
        arrays = (self.timestamps, self.headers, self.orders)
        key, *more = (None if array is None else array.filter(mask) for array in (self.key, *arrays))
        tombstone = None if self.tombstone is None else self.tombstone[chosen]
        return Records(self.log[chosen], self.offset[chosen], self.pos[chosen], key, tombstone, *more)

    def logs(self) -> list[int]:
        if not len(self):
            return []
        low, high = int(self.log.min()), int(self.log.max())
        return [low] if low == high else np.unique(self.log).tolist()

    @property
    def keyless(self) -> Booleans:
        assert self.key is not None, "keys were not requested"
        if not self.key.null_count:
            return np.zeros(len(self), np.bool_)
        null: Booleans = pc.is_null(self.key).to_numpy(zero_copy_only=False)
        return null

    def versions(self, task: LogTask) -> Versions:
        return versions_of(self.timestamps, self.headers, len(self), task.configs, task.now_ms, self.orders)


def records_of(
    io: FileIO,
    task: LogTask,
    file: LogFile,
    keep: Booleans,
    keys: bool = True,
    versions: bool = False,
    tombstones: bool = False,
    plain_keys: bool = False,
) -> Iterator[Records]:
    """Yield the records of a file that `keep` has, and that belong to the task's logs. `plain_keys`: keys never begin
    with their log. Raises TableError if a file contradicts its metadata."""
    columns = [*(() if file.log is not None else (PARTITION,)), OFFSET, *((KEY,) if keys else ())]
    columns += VERSION_COLUMN[task.configs.compaction_strategy] if versions else ()
    columns += _tombstone_columns(file, tombstones)
    for at, arrays in column_batches(io, file, task.layout, columns):
        require_place(arrays, file)
        records = _records(task, file, at, arrays, keys, tombstones, plain_keys)
        ours = keep[at : at + len(records)] & (records.log >= 0)
        yield records.where(ours)


def require_place(arrays: Mapping[str, pa.Array], file: LogFile) -> None:
    """Raise TableError if the file has no column for a record's log or offset."""
    read = (OFFSET,) if file.log is not None else (OFFSET, PARTITION)
    if any(name not in arrays or (len(arrays[name]) and arrays[name].null_count == len(arrays[name])) for name in read):
        raise TableError(f"{file.path} has no column for the offset or the partition, by the table's field ids")


def _tombstone_columns(file: LogFile, tombstones: bool) -> Sequence[str]:
    """Return the columns that identify tombstones, empty if the file has none. The value only without marks."""
    if not tombstones or file.null_values == 0:
        return ()
    return (TOMBSTONE,) if file.marked else (VALUE,)


def _records(
    task: LogTask,
    file: LogFile,
    at: int,
    arrays: dict[str, pa.Array],
    keys: bool,
    tombstones: bool,
    plain_keys: bool,
) -> Records:
    offset = _numbers(arrays[OFFSET])
    log = _logs(task, file, arrays.get(PARTITION), len(offset))
    key = arrays.get(KEY, pa.nulls(len(offset), pa.binary())) if keys else None
    if key is not None and len(task.works) > 1 and not plain_keys:
        key = with_log(log, key)
    pos = np.arange(at, at + len(offset), dtype=np.int64)
    flags = _tombstones(file, arrays, len(offset)) if tombstones else None
    more = (arrays.get(name) for name in (TIMESTAMP, HEADERS, ORDER))
    return Records(log, offset, pos, key, flags, *more)


def _logs(task: LogTask, file: LogFile, partitions: pa.Array | None, records: int) -> Any:
    """Return the place of each record's log among the works, -1 for a log of another task."""
    known: Longs = np.array([work.partition for work in task.works], np.int64)
    if partitions is None:
        [place] = np.flatnonzero(known == file.log)
        return np.broadcast_to(np.int32(place), records)
    numbers = _numbers(partitions)
    nearest: Longs = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[nearest] == numbers, nearest, -1).astype(np.int32)


def _numbers(array: pa.Array) -> Longs:
    numbers: Longs = (array if not array.null_count else pc.fill_null(array, -1)).to_numpy(zero_copy_only=False)
    return numbers


def with_log(log: Numbers, key: pa.Array) -> pa.Array:
    """Return the keys, each with four bytes of its log in front. Null stays null."""
    prefixes = _prefixes(log)
    return pc.binary_join_element_wise(prefixes, key, pa.scalar(b"", pa.binary()))


def _prefixes(log: Numbers) -> pa.Array:
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(4), len(log), [None, pa.py_buffer(np.ascontiguousarray(log, dtype=">i4").tobytes())]
    )
    return fixed.cast(pa.binary())


def _tombstones(file: LogFile, arrays: dict[str, pa.Array], records: int) -> Booleans:
    """Return, for each record, whether it is a tombstone: by the column that marks them, else by null values."""
    if file.null_values == 0:
        return np.zeros(records, np.bool_)
    if TOMBSTONE in arrays:
        marks: Booleans = arrays[TOMBSTONE].to_numpy(zero_copy_only=False)
        return marks
    if VALUE in arrays:
        null: Booleans = pc.is_null(arrays[VALUE]).to_numpy(zero_copy_only=False)
        return null
    return np.zeros(records, np.bool_)


COMPETES, LIVE, PAST, DIRTY = 1, 2, 4, 8
"""Bits of a record's flags: it may win; the branch has it; it is below the log start; the dirty part has it."""
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
    """Return the columns for the comparison with the touched keys, without versions if the strategy has none."""
    return pa.schema(FIELDS + (VERSION_FIELDS if versioned(task) else []))


def versioned(task: LogTask) -> bool:
    return task.configs.compaction_strategy != "offset"


def batch_of(task: LogTask, file_number: int, records: Records, flags: Numbers, versions: Versions) -> pa.RecordBatch:
    """Return the records as a batch of schema_of. `place` combines log and file in one number."""
    place = records.log * len(task.files) + file_number
    arrays = [records.key, records.offset, place.astype(np.int32), records.pos, flags.astype(np.uint8)]
    if versioned(task):
        arrays += [versions.has, versions.version]
    return pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], schema=schema_of(task))


def flags_of(task: LogTask, past: Booleans) -> Numbers:
    """Return the flags of the records, with COMPETES for records that may win their key.

    By offset all records compete, because dirty records have the highest offsets. By timestamp or header, records below
    the log start do not compete.
    """
    return np.where(past & versioned(task), 0, COMPETES)


@dataclass(frozen=True, slots=True)
class TouchedRecords:
    """The records of touched keys, one entry for each.

    number   number of the key
    place    log and file of the record: number of the log x files of the task + number of the file
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


def touched_records(task: LogTask, keys: Numbered, batches: Iterable[pa.RecordBatch]) -> TouchedRecords:
    """Return the records whose key is touched. `batches`: of schema_of."""
    return collected(list(keys.numbered(schema_of(task), batches)))


def collected(parts: Sequence[Rows]) -> TouchedRecords:
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
class TouchedVerdict:
    """For each touched record: whether its key has a winner, whether the record has the winner's rank, and whether a
    deletion in the ledger beats that rank. In the last case the key keeps no record."""

    known: Booleans
    best: Booleans
    buried: Booleans

    @property
    def winner(self) -> Booleans:
        return self.best & ~self.buried


def verdict_of(
    records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None
) -> TouchedVerdict:
    """Return which of the records win (cleantail.log.winners).

    `count`: number of keys. `remembered`: rank in the ledger by key, if any. `best`: the best rank of each key, if
    already known. Then every key is touched.
    """
    touched = np.ones(count, np.bool_)
    if best is None:
        competes, touched = records.has(COMPETES), np.zeros(count, np.bool_)
        touched[records.number[records.has(DIRTY)]] = True
        best = best_ranks(records.number[competes], records.versions.where(competes), records.offset[competes], count)
    known = (best.known & touched)[records.number]
    none = np.zeros(len(records.offset), np.bool_)
    buried = none if remembered is None else known & beaten(best, remembered)[records.number]
    return TouchedVerdict(known, known & (records.offset == best.offset[records.number]), buried)


def remembered_ranks(task: LogTask, io: FileIO, keys: Numbered, count: int) -> Ranks | None:
    """Return the highest rank in the ledger of each touched key. None if the ledger has no entry of these logs."""
    if not task.remembered.files or not count:
        return None
    parts = list(keys.numbered(REMEMBERED, remembered_batches(task, io)))
    return ranks_of_parts(parts, count) if parts else None


def ranks_of_parts(parts: Sequence[Rows], count: int) -> Ranks:
    """Return the highest rank of each key among `parts`: columns number, offset, has and version."""
    names = ("number", "offset", "has", "version")
    number, offset, has, version = (np.concatenate([part[name] for part in parts]) for name in names)
    return best_ranks(number, Versions(has.astype(np.bool_), version, np.zeros(len(has), np.bool_)), offset, count)


def remembered_batches(task: LogTask, io: FileIO) -> Iterator[pa.RecordBatch]:
    """Yield the ranks in the ledger of the task's logs that are in force (key, offset, has, version)."""
    columns = (PARTITION, KEY, "strategy", "has_version", "version", OFFSET, "forget_at_ms")
    known = {work.partition: place for place, work in enumerate(task.works)}
    units = remembered_units(task.configs)
    for file in task.remembered.files:
        if file.log not in known:
            continue
        keep = live_before(io, file)
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
    if not len(place):
        return {}
    order = np.argsort(place, kind="stable")
    names, starts = np.unique(place[order], return_index=True)
    parts = np.split(pos[order], starts[1:])
    return {int(name): bitmap_of(part) for name, part in zip(names, parts, strict=True)}

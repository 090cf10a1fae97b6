"""The touched keys of one task: numbered in memory if they are small, else in the task's database.

    with task_keys(task) as keys:
        touched = keys.number(batches_of_the_dirty_part)
        for rows in keys.numbered(schema, batches_of_all_records): ...

Keys are compared byte by byte, never only by a hash (semantics.md 3.11). A few keys are numbered in memory, which takes
less time than opening a database.

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
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cleantail.log.winners import Longs
from spark_jobs.engine.log_task import LogTask
from spark_jobs.iceberg.log_files import BATCH_RECORDS

KEY_AND_OFFSET = pa.schema([("key", pa.binary()), ("offset", pa.int64())])
Rows = Mapping[str, np.ndarray[Any, Any]]
"""Column -> its values, an entry for each record."""


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """The number of touched keys, and the lowest and highest key, or None."""

    count: int
    low: bytes | None
    high: bytes | None


class KeyNumbers(Protocol):
    """The numbers of touched keys, from 0 to their count (exclusive)."""

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        """Yield the records whose key is touched: their columns without the key, and `number`, the number of their key.

        All batches are read, even if no key is touched, because reading counts the records. `schema`: of the batches,
        with `key`.
        """


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
        """Create the table `touched` from the keys of the batches (KEY_AND_OFFSET), with their lowest and highest
        offsets. Null keys are left out."""
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
        return self._keys.numbered(schema, batches)


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

"""The database of one task: DuckDB in a folder of its own, which opens nothing that it is not handed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa

CLOSED = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")
"""Set to false, in this order, as nothing of it can be changed after the last. The database reads what it is handed,
and opens no file and no address but what it spills into its own folder."""


@contextmanager
def task_database(threads: int, memory_bytes: int) -> Iterator[Any]:
    """Opens a database that takes `memory_bytes` at most, and goes to disk beyond it."""
    with tempfile.TemporaryDirectory(prefix="cleantail-") as folder:
        memory = f"{memory_bytes >> 10}KiB"
        settings: dict[str, Any] = {"threads": threads, "memory_limit": memory, "temp_directory": folder}
        with duckdb.connect(config=settings) as database:
            for name in CLOSED:
                database.execute(f"SET {name} = false")
            # a stream's length is not known: the map is the small side, whatever is guessed
            database.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            database.execute("SET preserve_insertion_order = false")
            yield database


class _Batches:
    """Batches that threads of the database ask for, one thread at a time. `failed`: the error that ended them."""

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
    """Makes the batches a table that can be read once. An error of the batches is raised as it is, not as DuckDB wraps
    it.

    All of them are read: records are counted as they are read, and the database asks for no more of them where it knows
    the result, as that of a join with a table without rows.
    """
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

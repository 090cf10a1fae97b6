"""The database of one task: DuckDB in a folder of its own, which opens nothing that it is not handed.

It is closed with the task, since DuckDB gives its memory back to the system only then. The folder is there while the
task runs, and nobody else may look into it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

CLOSED = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")
"""Set to false, in this order, as nothing of it can be changed after the last. The database reads what it is handed,
and opens no file and no address but what it spills into its own folder."""


@contextmanager
def task_database(threads: int, memory_bytes: int) -> Iterator[Any]:
    """Opens a database that takes `memory_bytes` at most, and goes to disk beyond it."""
    import duckdb  # here, since most drivers import this module and open no database

    folder = Path(tempfile.mkdtemp(prefix="cleantail-"))  # which nobody else may look into
    settings: dict[str, Any] = {"threads": threads, "memory_limit": f"{memory_bytes >> 10}KiB"}
    try:
        with duckdb.connect(config=settings | {"temp_directory": str(folder)}) as connection:
            for name in CLOSED:
                connection.execute(f"SET {name} = false")
            # a stream's length is not known: the map is the small side, whatever is guessed
            connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            connection.execute("SET preserve_insertion_order = false")
            yield connection
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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

"""The database of one task: DuckDB in a folder of its own, which opens nothing that it is not handed.

1. What a task puts into it is in temporary tables of one connection, and is gone with that.
2. To open a database takes longer than all the work of a small task. So a process keeps the one of its last small task
   for its next one. That of a large task is closed, since DuckDB gives its memory back to the system only then; so is
   one in which a task failed, or which went to disk.
3. The folder is there while a task runs, and nobody else may look into it. A worker that Spark ends between two tasks
   leaves none behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

CLOSED = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access")
"""Set to false, in this order, as nothing of it can be changed after the last. The database reads what it is handed,
and opens no file and no address but what it spills into its own folder."""


@dataclass(frozen=True, slots=True)
class _Database:
    """An open database, and the folder into which it spills: it is made for each task anew."""

    connection: duckdb.DuckDBPyConnection
    folder: Path

    def close(self) -> None:
        self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)


_kept: dict[int, _Database] = {}
"""Process id -> the database that waits for the next small task of the process. A process that was forked while one
waited has it as well, and must not touch it."""


@contextmanager
def task_database(threads: int, memory_bytes: int, small: bool = False) -> Iterator[Any]:
    """Opens a database that takes `memory_bytes` at most, and goes to disk beyond it. `small`: little is put into it,
    so that the next small task may have it as well."""
    database = (_kept.pop(os.getpid(), None) if small else None) or _opened(memory_bytes)
    database.folder.mkdir(mode=0o700)
    try:
        with database.connection.cursor() as connection:
            connection.execute(f"SET threads = {threads:d}")
            connection.execute(f"SET memory_limit = '{memory_bytes >> 10:d}KiB'")
            yield connection
    except BaseException:
        database.close()
        raise
    if not small or any(database.folder.iterdir()):
        database.close()
        return
    database.folder.rmdir()
    if _kept.setdefault(os.getpid(), database) is not database:  # another thread's task has ended meanwhile
        database.close()


def _opened(memory_bytes: int) -> _Database:
    import duckdb  # here, since most drivers import this module and open no database

    folder = Path(tempfile.gettempdir()) / f"cleantail-{uuid4().hex}"
    settings: dict[str, Any] = {"memory_limit": f"{memory_bytes >> 10}KiB", "temp_directory": str(folder)}
    connection = duckdb.connect(config=settings)
    for name in CLOSED:
        connection.execute(f"SET {name} = false")
    # a stream's length is not known: the map is the small side, whatever is guessed
    connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    connection.execute("SET preserve_insertion_order = false")
    return _Database(connection, folder)


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

"""The touched keys of one task: in memory where there is little of them, else in the task's database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from cleantail.log.winners import Longs
from spark_jobs.engine.columns.key_numbers import Rows, TouchedKeys
from spark_jobs.engine.columns.keys_in_database import KeysInDatabase
from spark_jobs.engine.columns.keys_in_memory import KeysInMemory
from spark_jobs.engine.columns.task_database import task_database
from spark_jobs.engine.log_task import LogTask

HELD_BYTES = 32 << 20
"""Of the keys of a small task at most so many bytes are held in memory. By its files' metadata it has less of them; but
there they are compressed."""
TIMES_HELD = 8
"""To number keys takes up to six times what they take (measured with keys that all differ)."""


class TaskKeys:
    """Numbers keys, and knows which records have one of them. `open_database` is called where keys do not stay in
    memory."""

    def __init__(self, held_bytes: int, open_database: Callable[[], Any]) -> None:
        self._held_bytes, self._open_database = held_bytes, open_database
        self._keys: KeysInMemory | KeysInDatabase = KeysInMemory.of([])

    def number(self, batches: Iterable[pa.RecordBatch]) -> TouchedKeys:
        """Gives each key of the batches (KEY_AND_OFFSET) a number. Records without a key are passed over."""
        held, more = held_batches(batches, self._held_bytes)
        if more is None:
            self._keys = KeysInMemory.of(held)
        else:
            self._keys = KeysInDatabase.of(self._open_database(), chain(held, more))
        return self._keys.touched()

    def offset_of_key(self, nth: int) -> int | None:
        """Returns the offset of the record that brings the nth key; None where there are fewer keys."""
        return self._keys.offset_of_key(nth)

    def leave_below(self, offset: int) -> TouchedKeys:
        """Leaves only the keys that occur below the offset, numbered anew."""
        self._keys = self._keys.below(offset)
        return self._keys.touched()

    def last_offsets(self) -> Longs:
        """Returns the highest offset of each key, by the key's number."""
        return self._keys.last_offsets()

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        return self._keys.numbered(schema, batches)


@contextmanager
def task_keys(task: LogTask) -> Iterator[TaskKeys]:
    """Yields the keys of the task, which are forgotten with it."""
    with ExitStack() as stack:
        yield TaskKeys(held_bytes(task), lambda: stack.enter_context(task_database(task.threads, task.memory_bytes)))


def held_bytes(task: LogTask) -> int:
    """Returns how many bytes of its keys the task may hold in memory."""
    return min(HELD_BYTES, task.memory_bytes // TIMES_HELD) if task.is_small else 0


def held_batches(
    batches: Iterable[pa.RecordBatch], most_bytes: int
) -> tuple[Sequence[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """Returns the first batches, and an iterator of the others; None where the first are all, of `most_bytes` at
    most."""
    held, size, more = list[pa.RecordBatch](), 0, iter(batches)
    while size <= most_bytes:
        batch = next(more, None)
        if batch is None:
            return held, None
        held.append(batch)
        size += batch.nbytes
    return held, more

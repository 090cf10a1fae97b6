"""Reads tables in the background: each once for one commit and one policy, and nobody waits longer than asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.foreign_errors import explained

ERRORS_LIVE_S = 10.0
UNLISTED_LIVE_S = 10.0
"""How many seconds a read is right for a catalog that does not list where its tables' metadata is."""


class Read(Protocol):
    """Says what a read gives: `error` is empty where it went well."""

    @property
    def error(self) -> str: ...


R = TypeVar("R", bound=Read)
REST_S = 2.0
"""How long a read waits at most for those who make a page of what is read."""


@dataclass(slots=True)
class _Entry(Generic[R]):
    """Holds the newest read of a topic's table, and what is known meanwhile: the result of the read before it."""

    policy: str
    location: str
    began_s: float
    read: Future[R]
    before: R | None


class TableReads(Generic[R]):
    """Keeps the newest read of each table, of `most` tables where that is given."""

    def __init__(
        self,
        read: Callable[[Topic, str], R],
        failed: Callable[..., R],
        pool: ThreadPoolExecutor,
        clock: Callable[[], float],
        most: int | None = None,
    ) -> None:
        """Takes how a table is read: `read` gets a topic and the location of its metadata, empty where the catalog
        lists none; `failed` makes the result of a read that raised, from its `error`."""
        self._read, self._failed, self._pool, self._clock, self._most = read, failed, pool, clock, most
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry[R]] = {}
        self._resting, self._may_read = 0, threading.Event()
        self._may_read.set()

    def of(
        self, topics: Iterable[Topic], key_of: Callable[[Topic], tuple[str, str]], within_s: float
    ) -> dict[str, R | None]:
        """Returns topic name -> what was read, by the key (policy, location) of each; of a read that takes longer the
        one before it, None where there is none."""
        keys = [(topic, *key_of(topic)) for topic in topics]
        with self.at_rest(), self._lock:  # the first of many reads would hold up the beginning of the others
            entries = {topic.topic: self._current(topic, policy, location) for topic, policy, location in keys}
        wait([entry.read for entry in entries.values()], timeout=within_s)
        return {name: e.read.result() if e.read.done() else e.before for name, e in entries.items()}

    def forget(self, name: str) -> None:
        """Makes the next call read the topic's table anew, and wait for that."""
        with self._lock:
            self._entries.pop(name, None)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Lets the block go first: no read begins meanwhile. They would take turns with it, since all of them compute
        in one interpreter."""
        self._rest(1)
        try:
            yield
        finally:
            self._rest(-1)

    def _rest(self, more: int) -> None:
        with self._lock:
            self._resting += more
            if self._resting:
                self._may_read.clear()
            else:
                self._may_read.set()

    def _current(self, topic: Topic, policy: str, location: str) -> _Entry[R]:
        """Returns the read of a table at this location, begun where there is none; called with the lock held."""
        entry = self._entries.pop(topic.topic, None)
        if entry is None or (entry.policy, entry.location) != (policy, location) or self._is_stale(entry):
            before = entry if entry is not None and entry.policy == policy else None
            known = None if before is None else before.read.result() if before.read.done() else before.before
            entry = _Entry(policy, location, self._clock(), self._pool.submit(self._try, topic, location), known)
        while self._most is not None and len(self._entries) >= self._most:
            self._entries.pop(next(iter(self._entries)))
        self._entries[topic.topic] = entry  # the last that was asked for is the last to go
        return entry

    def _is_stale(self, entry: _Entry[R]) -> bool:
        """Returns whether to read again: errors are tried again after a while, and so are tables of a catalog that
        lists no locations."""
        if not entry.read.done():
            return False
        done = entry.read.result()
        keep_s = ERRORS_LIVE_S if done.error else float("inf") if entry.location else UNLISTED_LIVE_S
        return self._clock() - entry.began_s >= keep_s

    def _try(self, topic: Topic, location: str) -> R:
        self._may_read.wait(REST_S)
        try:
            return self._read(topic, location)
        except Exception as e:  # one table that cannot be read never hides the others
            return self._failed(error=error_text(e))


def error_text(error: Exception) -> str:
    """Returns what to say of a table that cannot be read."""
    return str(error if isinstance(error, CleantailError) else explained(error) or f"{type(error).__name__}: {error}")

"""Records as Kafka's clients take and give them, some at a time, and how two of them differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.kafka.client_messages import headers_of

if TYPE_CHECKING:
    from confluent_kafka import Message

NO_TIMESTAMP_MS = -1
"""Kafka's own word for a record without a timestamp."""
CREATE_TIME, LOG_APPEND_TIME = 1, 2
"""What librdkafka calls a timestamp of the producer's, and one that the broker has set."""
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Holds neighbouring records of one log as columns. `offsets` are those of the archive; `headers` is None for a
    record without any."""

    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    stamps_ms: Sequence[int]
    headers: Sequence[Headers | None]

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, end: int) -> Rows:
        """Returns the records [start, end) of these."""
        if start <= 0 and end >= len(self):
            return self
        return Rows(
            self.offsets[start:end],
            self.keys[start:end],
            self.values[start:end],
            self.stamps_ms[start:end],
            self.headers[start:end],
        )


class Feed:
    """Hands rows out in the sizes that are asked for."""

    def __init__(self, rows: Iterable[Rows]) -> None:
        self._rows = iter(rows)
        self._now: Rows | None = None
        self._at = 0

    def some(self, most: int) -> Rows | None:
        """Returns the next records, `most` at most; None where there are no more."""
        while self._now is None or self._at >= len(self._now):
            self._now, self._at = next(self._rows, None), 0
            if self._now is None:
                return None
        part = self._now.part(self._at, self._at + most)
        self._at += len(part)
        return part

    def skip(self, records: int) -> int:
        """Passes records over; returns how many there were."""
        passed = 0
        while passed < records and (part := self.some(records - passed)) is not None:
            passed += len(part)
        return passed

    def rest(self, most: int) -> Iterator[Rows]:
        """Yields what is left, `most` records at a time."""
        while (part := self.some(most)) is not None:
            yield part


@dataclass(frozen=True, slots=True)
class Difference:
    """Says which of some rows differs from its message, by its place among them, and in what."""

    place: int
    field: str


def first_difference(rows: Rows, messages: Sequence[Message]) -> Difference | None:
    """Returns the first difference between rows and as many messages; None where each is as its row."""
    stamps = [m.timestamp() for m in messages]
    as_created = [(CREATE_TIME, stamp_ms) for stamp_ms in rows.stamps_ms]
    columns: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        ("key", rows.keys, [m.key() for m in messages]),
        ("value", rows.values, [m.value() for m in messages]),
        ("headers", rows.headers, [_headers(m) for m in messages]),
        ("timestamp", as_created, stamps if stamps == as_created else [_as_created(stamp) for stamp in stamps]),
    )
    differences = [
        Difference(next(n for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other), name)
        for name, ours, theirs in columns
        if ours != theirs
    ]
    return min(differences, key=lambda d: d.place, default=None)


def _headers(message: Message) -> object:
    """Returns a message's headers, None without any; what no row has where the client cannot read them."""
    headers = headers_of(message)
    return "not readable" if headers is None else headers or None


def _as_created(stamp: tuple[int, int]) -> tuple[int, int]:
    """Returns a record without a timestamp as one of the producer's; a timestamp of the broker's own stays another."""
    kind, stamp_ms = stamp
    return stamp if kind == LOG_APPEND_TIME else (CREATE_TIME, stamp_ms)

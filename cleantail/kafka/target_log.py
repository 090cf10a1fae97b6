"""Adapter: one partition of the topic that a restore writes into. A task compares it with the archive, and writes it.

The producer is idempotent: the broker stores a batch only once, even if it is sent again. The producer uses no
transactions, because a killed run would leave aborted records and markers. They would have offsets, and
read_uncommitted consumers would see them. Offsets show the writes of other producers: at regular intervals the
partition's end must equal this restore's progress.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cleantail.errors import CleantailError, RestoreMismatchError, TargetUnreachableError
from cleantail.kafka.broker_clients import Complaint, client_of, headers_of
from cleantail.kafka.target_client import AGAIN, TIMEOUT_MS, consumer, lasting, problem, producer

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


NO_TIMESTAMP_MS = -1
"""Kafka's value for a record without a timestamp."""
CREATE_TIME, LOG_APPEND_TIME = 1, 2
"""librdkafka's codes for a timestamp of the producer and for a timestamp of the broker."""
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Neighbouring records of one log as columns. `offsets` are the archive's. `headers` is None without headers."""

    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    stamps_ms: Sequence[int]
    headers: Sequence[Headers | None]

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, end: int) -> Rows:
        """Return the records [start, end) of these rows."""
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
    """Returns rows in the requested sizes."""

    def __init__(self, rows: Iterable[Rows]) -> None:
        self._rows = iter(rows)
        self._now: Rows | None = None
        self._at = 0

    def some(self, most: int) -> Rows | None:
        """Return the next records, `most` at most; None if there are no more."""
        while self._now is None or self._at >= len(self._now):
            self._now, self._at = next(self._rows, None), 0
            if self._now is None:
                return None
        part = self._now.part(self._at, self._at + most)
        self._at += len(part)
        return part

    def skip(self, records: int) -> int:
        """Skip up to `records` records, and return how many were skipped."""
        passed = 0
        while passed < records and (part := self.some(records - passed)) is not None:
            passed += len(part)
        return passed

    def rest(self, most: int) -> Iterator[Rows]:
        """Yield the remaining records, `most` at a time."""
        while (part := self.some(most)) is not None:
            yield part


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """The index of the first row that differs from its message, and the field that differs."""

    place: int
    field: str


def first_difference(rows: Rows, messages: Sequence[Message]) -> FieldDifference | None:
    """Return the first difference between rows and the same number of messages; None if all are equal."""
    stamps = [m.timestamp() for m in messages]
    as_created = [(CREATE_TIME, stamp_ms) for stamp_ms in rows.stamps_ms]
    columns: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        ("key", rows.keys, [m.key() for m in messages]),
        ("value", rows.values, [m.value() for m in messages]),
        ("headers", rows.headers, [_headers(m) for m in messages]),
        ("timestamp", as_created, stamps if stamps == as_created else [_as_created(stamp) for stamp in stamps]),
    )
    differences = [
        FieldDifference(next(n for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other), name)
        for name, ours, theirs in columns
        if ours != theirs
    ]
    return min(differences, key=lambda d: d.place, default=None)


def _headers(message: Message) -> object:
    """Return a message's headers, None if it has no headers. Unreadable headers give a value that no row has."""
    headers = headers_of(message)
    return "not readable" if headers is None else headers or None


def _as_created(stamp: tuple[int, int]) -> tuple[int, int]:
    """Treat a record without a timestamp as CreateTime. A timestamp of the broker stays LogAppendTime."""
    kind, stamp_ms = stamp
    return stamp if kind == LOG_APPEND_TIME else (CREATE_TIME, stamp_ms)


POLL_S, ANSWERED_WITHIN_S = 0.2, 20
FIRST_RECORDS, MOST_RECORDS, READ_BYTES, SAMPLE = 100, 10_000, 4 << 20, 100
"""Records of the first batch read back, maximum records of a batch, and approximate bytes of later batches."""


class TargetLog:
    """Reads and writes one partition of the target topic. A context manager: leaving it closes the clients."""

    def __init__(self, settings: Mapping[str, str], topic: str, partition: int) -> None:
        """Raise CleantailError for settings that librdkafka rejects."""
        from confluent_kafka import Consumer, TopicPartition

        self.topic, self.partition = topic, partition
        self.where = f"topic {topic}: partition {partition}"
        self._settings, self._place = settings, TopicPartition(topic, partition)
        self._complaint = Complaint(settings)
        self._records = FIRST_RECORDS
        self._consumer = client_of(Consumer, settings, **consumer(settings), error_cb=self._complaint.note)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._consumer.close()

    def end(self) -> int:
        """Return the partition's next offset. Raises RestoreMismatchError if it does not begin at 0."""
        from confluent_kafka import KafkaException

        try:
            start, end = self._consumer.get_watermark_offsets(self._place, timeout=ANSWERED_WITHIN_S, cached=False)
        except KafkaException as e:
            raise self.problem(self._complaint.error or e.args[0]) from None
        if start > 0:
            raise RestoreMismatchError(f"{self.where} begins at offset {start}: restored records were deleted")
        return int(end)

    def messages(self, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the records [start, end) in batches.

        Raises RestoreMismatchError if one is missing, and TargetUnreachableError if the read makes no progress.
        """
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(self.topic, self.partition, start)])
        at, progressed_s = start, time.monotonic()
        while at < end:
            records = self._records_of(self._consumer.consume(min(self._records, end - at), POLL_S), at, end)
            if records:
                yield records
                at, progressed_s = at + len(records), time.monotonic()
                self._fit(records)
            elif time.monotonic() - progressed_s > TIMEOUT_MS / 1000:
                why = f" ({self._complaint.text})" if self._complaint.error else ""
                raise TargetUnreachableError(f"{self.where}: no record arrived from offset {at} on{why}; {AGAIN}")
        self._consumer.unassign()

    def _records_of(self, batch: list[Message], at: int, end: int) -> list[Message]:
        """Return the records of a batch, which must begin at offset `at` without gaps."""
        from confluent_kafka import KafkaError as Codes

        records = [message for message in batch if message.error() is None]
        if records and (records[-1].offset() or 0) - at + 1 != len(records):
            offsets = [message.offset() for message in records]
            raise self._missing(next(at + n for n, offset in enumerate(offsets) if offset != at + n))
        if len(records) == len(batch):
            return records
        for message in batch:
            error = message.error()
            if error is None:
                continue
            if error.code() == Codes._PARTITION_EOF:
                if not records and (message.offset() or 0) >= end:  # offsets in between have no record
                    raise self._missing(at)
            elif stays := lasting(f"{self.where}, offset {at}", self.topic, error, self._settings):
                raise stays
            else:  # for example no permission on the consumer group, which is not used
                self._complaint.error = error
        return records

    def _missing(self, offset: int) -> RestoreMismatchError:
        return RestoreMismatchError(f"{self.where} has no record at offset {offset}: another writer wrote into it")

    def _fit(self, records: list[Message]) -> None:
        some = records[:: len(records) // SAMPLE + 1]
        size = sum(map(len, some)) // len(some) + 1
        self._records = min(max(READ_BYTES // size, 1), MOST_RECORDS)

    def problem(self, error: KafkaError, where: str = "") -> CleantailError:
        """Return the error for the problem that ended the restore. `where`: its subject, if not the whole partition."""
        return problem(where or self.where, self.topic, error, self._settings)

    def writer(self, max_message_bytes: int) -> Writer:
        return Writer(self, self._settings, max_message_bytes)


class Writer:
    """An idempotent producer of one partition."""

    def __init__(self, log: TargetLog, settings: Mapping[str, str], max_message_bytes: int) -> None:
        """Raise CleantailError for settings that librdkafka rejects."""
        from confluent_kafka import Producer

        self._log, self._max_message_bytes = log, max_message_bytes
        self._failure: KafkaError | None = None
        self._fatal: KafkaError | None = None
        self._producer = client_of(
            Producer, settings, **producer(settings, max_message_bytes), error_cb=self._note_fatal
        )

    def send(self, rows: Rows) -> None:
        """Queue the records in order. Raises the brokers' error for an earlier record."""
        topic, partition, produce, failed = self._log.topic, self._log.partition, self._producer.produce, self._failed
        columns = (rows.offsets, rows.keys, rows.values, rows.stamps_ms, rows.headers)
        for offset, key, value, stamp_ms, headers in zip(*columns, strict=True):
            while True:
                try:
                    produce(topic, value, key, partition, on_delivery=failed, timestamp=stamp_ms, headers=headers)
                    break
                except BufferError:  # the queue is full
                    self._producer.poll(POLL_S)
                    self._require_taken()
                except Exception as e:
                    raise self._refused(e, offset, len(key or b"") + len(value or b"")) from None
        self._producer.poll(0)
        self._require_taken()

    def settle(self) -> None:
        """Wait until the brokers have all queued records. Raises TargetUnreachableError or TargetError."""
        while self._producer.flush(POLL_S):
            self._require_taken()
        self._require_taken()

    def discard(self) -> None:
        """Drop records that were not sent yet."""
        self._producer.purge()
        self._producer.flush(0)

    def _failed(self, error: KafkaError | None, _: Message) -> None:
        """Store the error of a failed record. librdkafka calls this only for failures (delivery.report.only.error)."""
        self._failure = self._failure or error

    def _note_fatal(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = self._fatal or error

    def _require_taken(self) -> None:
        failure = self._fatal or self._failure  # after a fatal error every record fails without a further reason
        if failure is not None:
            raise self._log.problem(failure)

    def _refused(self, error: Exception, offset: int, size: int) -> CleantailError:
        from confluent_kafka import KafkaError as Codes

        self._producer.poll(0)
        cause = self._fatal or (error.args[0] if error.args else None)
        where = f"{self._log.where}: the archive's record at offset {offset}, of {size} bytes"
        if not isinstance(cause, Codes):
            return CleantailError(f"{where}: {type(error).__name__}")
        return self._log.problem(cause, where)

"""A topic at its brokers: its description, reads of ranges of offsets, and the check before a reconciliation.

A range is read to its end through confluent-kafka. No offset is committed.

1. A range ends at a record at or behind its last offset, or at the end of the partition. Under read_committed, the end
   of the partition is the last stable offset.
2. Missing offsets in between are not an error. Markers, aborted records, and records that the broker's cleaner has
   removed have offsets, but consumers never get them.
3. A read without progress is an error. librdkafka's statistics of fetched data count as progress. Returned records do
   not, because librdkafka skips a long run of aborted records silently.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

from cleantail.config.input_limits import INGEST_MS, limit_text
from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS
from cleantail.errors import CleantailError, SilentBrokersError, SourceError, SourceUnreachableError
from cleantail.kafka.broker_clients import ANSWERED_WITHIN_S, Administrator, Complaint, client_of, without_values
from cleantail.kafka.read_plan import (
    BrokerPolicy,
    BrokerTopic,
    LogOffsets,
    Range,
    changed_while_read,
    hindrance_of,
    plan_read,
    without_outcome,
)
from cleantail.log.source_position import SourcePosition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


Answer = TypeVar("Answer")


class Brokers:
    """Queries the brokers about topics. Waits up to ANSWERED_WITHIN_S for an answer, or `stall_ms` if that is less."""

    def __init__(self, settings: Mapping[str, str], stall_ms: int = ANSWERED_WITHIN_S * 1000) -> None:
        """Raise CleantailError for settings that librdkafka rejects."""
        self._settings, self._address = settings, settings[ADDRESS]
        self._answered_once = False
        self._admin = Administrator(settings, min(stall_ms / 1000, ANSWERED_WITHIN_S))

    def describe(self, topic: str) -> BrokerTopic:
        """Return the topic's id and the offsets of its partitions.

        Raises SourceError if the topic does not exist or may not be read. Raises SourceUnreachableError without an
        answer about the topic, and SilentBrokersError if the brokers do not answer at all.
        """
        return self._answered(topic, self._ask)

    def cleaner_configs(self, topic: str) -> BrokerPolicy | None:
        """Return the topic's configs for cleaning. None if this login may not describe configs.

        Raises as describe does.
        """
        return self._answered(topic, self._cleaner_configs)

    def _answered(self, topic: str, ask: Callable[[str], Answer]) -> Answer:
        return self._admin.answer(
            partial(ask, topic), partial(broker_problem, self._settings, topic), partial(self._silence, topic)
        )

    def _cleaner_configs(self, topic: str) -> BrokerPolicy | None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            configs = self._admin.configs(topic)
        except KafkaException as e:
            if e.args[0].code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                return None
            raise
        policy = frozenset(word.strip() for word in configs["cleanup.policy"].split(","))
        return BrokerPolicy(policy, int(configs["delete.retention.ms"]))

    def _ask(self, topic: str) -> BrokerTopic:
        from confluent_kafka.admin import AclOperation

        cluster_id = self._admin.cluster_id()
        self._answered_once = True
        described = self._admin.described(topic)
        rights = described.authorized_operations
        if rights and not {AclOperation.READ, AclOperation.ALL} & set(rights):
            raise SourceError(f"{self._address}: this login may describe topic {topic} but not read it; {_NOTHING}")
        logs = self._log_offsets(topic, [partition.id for partition in described.partitions])
        return BrokerTopic(cluster_id, topic, str(described.topic_id).translate(_AS_KAFKA_SPELLS), logs)

    def _log_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        spec: Any = OffsetSpec
        questions = (
            (spec.earliest(), IsolationLevel.READ_UNCOMMITTED),
            (spec.latest(), IsolationLevel.READ_COMMITTED),
            (spec.latest(), IsolationLevel.READ_UNCOMMITTED),
        )
        starts, stable, ends = (self._admin.offsets(topic, partitions, *each) for each in questions)
        # the queries run one after another: the stable end of a log that grew meanwhile must not be above its end
        return {p: LogOffsets(starts[p], min(stable[p], ends[p]), ends[p]) for p in starts}

    def _silence(self, topic: str, why: str) -> SourceUnreachableError:
        reason = f" ({why})" if why else ""
        error = SourceUnreachableError if self._answered_once else SilentBrokersError
        return error(f"{self._address}: the brokers do not answer for topic {topic}{reason}; {_NOTHING}")


_AS_KAFKA_SPELLS = str.maketrans("+/", "-_", "=")
"""Translates ids of librdkafka's variant of base64 to Kafka's."""
_NOTHING = "nothing was appended"


def broker_problem(settings: Mapping[str, str], topic: str, error: KafkaError) -> SourceError | None:
    """Return the error to raise for a permanent answer, or None if a later answer may differ."""
    from confluent_kafka import KafkaError as Codes

    refused = f"the login was refused: {without_values(error.str(), settings)}"
    texts = {
        Codes.UNKNOWN_TOPIC_OR_PART: f"there is no topic {topic}, or this login may not describe it",
        Codes._UNKNOWN_TOPIC: f"there is no topic {topic}",
        Codes.UNKNOWN_TOPIC_ID: f"topic {topic} was deleted, or recreated, while it was read",
        Codes.TOPIC_AUTHORIZATION_FAILED: f"this login may not read topic {topic} (Kafka's ACL: Read and Describe)",
        Codes.CLUSTER_AUTHORIZATION_FAILED: "this login may not describe the cluster",
        Codes.SASL_AUTHENTICATION_FAILED: refused,
        Codes._AUTHENTICATION: refused,
        Codes.UNSUPPORTED_VERSION: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes._UNSUPPORTED_FEATURE: "the brokers are too old: topic ids need Kafka 2.8 or newer",
    }
    text = texts.get(error.code())
    return SourceError(f"{settings[ADDRESS]}: {text}; {_NOTHING}") if text else None


POLL_S = 0.2
STATISTICS_MS = 1000
FIRST_RECORDS, RECORDS_MAX, BATCH_BYTES = 100, 10_000, 8 << 20
"""Number of records of the first batch, maximum number of any batch, and approximate size of a batch in bytes."""
READER_GROUP = "cleantail"
"""The group of every consumer. A consumer must have a group, but no offsets are committed for it."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time (Unix ms) until which all tasks of a read may read: `within_ms` after the read began.

    A deadline is a point in time and not a budget, because a task may wait for a core, or Spark may start it again. If
    the clock of a task's host is behind, the task gets at most `within_ms` from its start.
    """

    within_ms: int
    until_ms: int

    @classmethod
    def after(cls, within_ms: int) -> Deadline:
        return cls(within_ms, int(time.time() * 1000) + within_ms)

    def left_ms(self) -> int:
        """Return the remaining time, at least 0."""
        return min(max(self.until_ms - int(time.time() * 1000), 0), self.within_ms)


class RangeReader:
    """One consumer of one topic. The caller must close it."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        isolation: str,
        stall_ms: int,
        deadline: Deadline | None = None,
    ) -> None:
        """Raise CleantailError for settings that librdkafka rejects.

        `deadline`: deadline of the read, if other topics wait.
        """
        from confluent_kafka import Consumer

        self._topic, self._stall_s = topic, stall_ms / 1000
        self._deadline = deadline
        self._ends_s = time.monotonic() + deadline.left_ms() / 1000 if deadline else None
        self._settings = settings
        self._fetched_to: dict[int, int] = {}
        self._complaint = Complaint(settings)
        self._records = FIRST_RECORDS
        fixed: dict[str, Any] = {
            "group.id": READER_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._note_progress,
            "error_cb": self._complaint.note,
        }
        self._consumer = client_of(Consumer, settings, **{**settings, **fixed})

    def close(self) -> None:
        self._consumer.close()

    def batches(self, each: Range) -> Iterator[list[Message]]:
        """Yield the records of the range in batches, in the order of their offsets.

        Raises SourceError or SourceUnreachableError, which name partition and offset.
        """
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(self._topic, each.partition, each.start)])
        position, fetched_to, progressed_s = each.start, -1, time.monotonic()
        while position < each.end:
            self._require_time_left(each.partition, position)
            messages = self._consumer.consume(self._records, POLL_S)
            records, position_after = self._records_of(messages, each, position)
            if records:
                self._fit(records)
                yield records
            now_fetched = self._fetched_to.get(each.partition, -1)
            if position_after > position or now_fetched != fetched_to:
                position, fetched_to, progressed_s = max(position, position_after), now_fetched, time.monotonic()
            elif time.monotonic() - progressed_s > self._stall_s:
                why = f": {self._complaint.text}" if self._complaint.error else ""
                raise SourceUnreachableError(
                    f"topic {self._topic}: no record of partition {each.partition} arrived from offset "
                    f"{max(position, fetched_to)} on within {self._stall_s:g} s (source.kafka.stall.timeout.ms){why}; "
                    f"{_NOTHING}"
                )
            # retries would get the same answer
            if "receive.message.max.bytes" in self._complaint.text:
                where = f"topic {self._topic}: partition {each.partition}, from offset {position} on"
                raise SourceError(f"{where}: a record beyond the fetch size: {_LARGER}; {_NOTHING}")

    def _require_time_left(self, partition: int, position: int) -> None:
        if self._deadline is not None and self._ends_s is not None and time.monotonic() >= self._ends_s:
            raise SourceError(
                f"topic {self._topic}: partition {partition} was read up to offset {position} within "
                f"{self._deadline.within_ms} ms, and the others of its pack wait; {_NOTHING}; {limit_text(INGEST_MS)}"
            )

    def _records_of(self, messages: Sequence[Message], each: Range, position: int) -> tuple[list[Message], int]:
        """Return the messages in the range, and the new position: the end of the range if a later message was met."""
        if any(map(methodcaller("error"), messages)):
            kept = []
            for message in messages:
                error = message.error()
                if error is None:
                    kept.append(message)
                elif self._is_end(error, message, each, kept):
                    return _below(each.end, kept), each.end
            messages = kept
        if not messages:
            return [], position
        last = messages[-1].offset() or 0
        if last < each.end:
            return list(messages), last + 1
        return _below(each.end, messages), each.end

    def _is_end(self, error: KafkaError, message: Message, each: Range, kept: Sequence[Message]) -> bool:
        """Return whether the partition ends at or behind the range. Raises the error if it is permanent."""
        from confluent_kafka import KafkaError as Codes

        if error.code() == Codes._PARTITION_EOF:
            offset = message.offset()
            return offset is not None and offset >= each.end
        known = message.offset()
        has_offset = known is not None and known >= 0
        after = (kept[-1].offset() or 0) + 1 if kept else each.start
        if problem := self._problem(error, each.partition, known or 0 if has_offset else after, has_offset):
            raise problem
        self._complaint.note(error)
        return False

    def _problem(self, error: KafkaError, partition: int, offset: int, of_record: bool) -> CleantailError | None:
        """Return the error to raise, or None for a temporary error: the client retries until the read counts as
        stalled.

        `of_record`: whether the error concerns records. Only then a damaged message means damaged records.
        """
        from confluent_kafka import KafkaError as Codes

        code, where = error.code(), f"topic {self._topic}: partition {partition}, offset {offset}"
        if code in (Codes.OFFSET_OUT_OF_RANGE, Codes._AUTO_OFFSET_RESET):
            return SourceUnreachableError(
                f"{where}: the brokers deleted it while it was read (retention, or deleted records): the next read "
                f"reports what is missing; {_NOTHING}"
            )
        if code == Codes.MSG_SIZE_TOO_LARGE:
            return SourceError(f"{where}: a record beyond the fetch size: {_LARGER}; {_NOTHING}")
        if code in (Codes._BAD_COMPRESSION, Codes._NOT_IMPLEMENTED):
            return SourceError(f"{where}: the records there cannot be decompressed ({error.str()}); {_NOTHING}")
        if code == Codes._BAD_MSG and of_record:
            return SourceError(f"{where}: the records there are damaged ({error.str()}); {_NOTHING}")
        if code == Codes._LOG_TRUNCATION:
            return SourceUnreachableError(f"{where}: the log was cut off while it was read; {_NOTHING}")
        return broker_problem(self._settings, self._topic, error)

    def _fit(self, records: Sequence[Message]) -> None:
        """Adapt the number of records of a batch so that it has about BATCH_BYTES.

        A record may have a few bytes or many megabytes.
        """
        size = sum(map(len, records)) // len(records) + 1
        self._records = min(max(BATCH_BYTES // size, 1), RECORDS_MAX)

    def _note_progress(self, text: str) -> None:
        partitions = json.loads(text).get("topics", {}).get(self._topic, {}).get("partitions", {})
        self._fetched_to |= {int(p): int(row["next_offset"]) for p, row in partitions.items() if int(p) >= 0}


def _below(end: int, messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if (message.offset() or 0) < end]


_LARGER = (
    "set receive.message.max.bytes in source.kafka.properties above the size of the largest batch, and fetch.max.bytes "
    "512 bytes below it"
)


CONTINUE = "continue"
"""The on_gap of a reconciliation, which leaves records at missing offsets unchanged."""
_NOT_COMPARED = "nothing was compared, and nothing removed"


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic at its brokers. `settings`: settings of the client, with its login. Do not log or show them."""

    topic: Topic
    brokers: Brokers
    settings: Mapping[str, str] = field(repr=False)
    deadline: Deadline | None = None

    @classmethod
    def of(cls, topic: Topic, settings: Mapping[str, str], within_ms: int | None = None) -> SourceTopic:
        """Raise CleantailError for settings that librdkafka rejects.

        `within_ms`: time limit for all of its tasks, if other topics wait.
        """
        deadline = Deadline.after(within_ms) if within_ms is not None else None
        stall_ms = topic.stall_timeout_ms if within_ms is None else min(topic.stall_timeout_ms, within_ms)
        return cls(topic, Brokers(settings, stall_ms), settings, deadline)

    def describe(self) -> BrokerTopic:
        """Query the brokers. Raises SourceError and SourceUnreachableError as Brokers.describe does."""
        return self.brokers.describe(self.topic.kafka_topic)

    def describe_again(self, before: BrokerTopic) -> BrokerTopic:
        """Query the brokers again. Raises SourceError if the topic was recreated since, or is in another cluster."""
        now = self.describe()
        if problem := changed_while_read(before, now):
            raise SourceError(f"{problem}; {_NOT_COMPARED}")
        return now

    def ends(self, broker: BrokerTopic) -> dict[int, int]:
        """Return partition -> end of reads: the last stable offset, or the log end under read_uncommitted."""
        return {p: log.end_for(self.topic.source.isolation) for p, log in broker.logs.items()}

    def open_reader(self) -> Callable[[], RangeReader]:
        """Return a function that opens a reader in a task. The settings are in its closure, not in the data."""
        settings, name = dict(self.settings), self.topic.kafka_topic
        isolation, stall_ms, deadline = self.topic.source.isolation, self.topic.stall_timeout_ms, self.deadline
        return lambda: RangeReader(settings, name, isolation, stall_ms, deadline)

    def require_comparable(self, position: SourcePosition | None) -> BrokerTopic:
        """Return the brokers' description of a topic that can be compared.

        Raises CleantailError if a key may be missing there for another reason than a delete. Raises SourceError or
        SourceUnreachableError if the table was read from another log, or if the log is incomplete.
        """
        topic = self.topic
        if topic.columns is not None:
            raise CleantailError(
                f"topic {topic.topic} has an adopted table, which its sink fills and not a read from Kafka; "
                f"{_NOT_COMPARED}"
            )
        if position is None:
            raise CleantailError(f"topic {topic.topic} was not read from Kafka yet: ingest it first; {_NOT_COMPARED}")
        broker = self.describe()
        try:
            plan_read(position, {}, broker, topic.source.isolation, CONTINUE, now_ms=0)
        except (SourceError, SourceUnreachableError) as e:
            raise type(e)(f"{without_outcome(e)}; {_NOT_COMPARED}") from None
        if why := hindrance_of(topic, self.brokers.cleaner_configs(topic.kafka_topic)):
            raise CleantailError(f"topic {topic.topic} cannot be reconciled: {why}; {_NOT_COMPARED}")
        return broker

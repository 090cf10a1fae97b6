"""Clients of Kafka's brokers, built on confluent-kafka. Their errors contain no setting's value.

Requests with a retriable error are repeated. If the brokers do not answer, the error quotes the last complaint of the
connections: after a refused login, an administrator's client gets no answer.

Brokers that have not answered are remembered, so that only one of many topics waits for them:

1. Brokers are identified by the settings of the client and its timeout: another login may get an answer.
2. Silent brokers are remembered for a minute. Then the next topic queries them again.
3. Brokers that answer with an error are queried again for every topic: the error may concern one topic only.

Cleantail commits the table's position to a consumer group, for tools that show lag by group. Cleantail never reads it
back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS, TUNING
from cleantail.errors import CleantailError, OutsideError, SilentBrokersError
from cleantail.retries import answered

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


REMEMBERED_S = 60
ClientKey = tuple[object, ...]
"""The settings of a client, sorted, and its timeout (ms)."""


@dataclass(slots=True)
class SilentBrokers:
    """Stores which brokers do not answer. Shared by several threads. `now_s` is a monotonic clock (s)."""

    now_s: Callable[[], float] = time.monotonic
    _since_s: dict[ClientKey, float] = field(default_factory=dict)

    @contextmanager
    def asked(self, settings: Mapping[str, str], stall_timeout_ms: int) -> Iterator[None]:
        """Wrap the clients of these brokers.

        Raises SilentBrokersError at once if they have not answered within the last minute. The error names no topic.
        """
        asked = (*sorted(settings.items()), stall_timeout_ms)
        since_s = self._since_s.get(asked)
        if since_s is not None and self.now_s() - since_s < REMEMBERED_S:
            raise SilentBrokersError(
                f"{settings[ADDRESS]}: the brokers did not answer within the last minute; nothing was appended"
            )
        try:
            yield
        except SilentBrokersError:
            self._since_s[asked] = self.now_s()
            raise


Client = TypeVar("Client")
SHORTEST_MASKED = 3
"""A shorter value is not masked: it may be part of any word."""
_SHOWN = TUNING | {ADDRESS, "log_level"}
"""Settings whose values are not secret."""


Headers = Sequence[tuple[str, Any]]
_headers_of = methodcaller("headers")


def headers_of(message: Message) -> Headers | None:
    """Return the headers of a record; None if the name of one is not UTF-8. Call it once for each message.

    For such a name the client returns a list with holes, and leaves its exception pending. `methodcaller` raises the
    exception at once. A direct call of the method may not, and then a hole crashes the process. A second call returns
    holes too. The client silently cuts a name at its first NUL.
    """
    try:
        headers: Headers = _headers_of(message) or ()
    except (UnicodeDecodeError, SystemError):
        return None
    return headers


class Complaint:
    """Stores the last complaint of a client's connections. Its `note` is the client's `error_cb`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.error: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Store the error. `_ALL_BROKERS_DOWN` does not replace an earlier error, which is more specific."""
        from confluent_kafka import KafkaError as Codes

        if self.error is None or error.code() != Codes._ALL_BROKERS_DOWN:
            self.error = error

    @property
    def text(self) -> str:
        """Return the complaint without values of settings; empty without a complaint."""
        return without_values(self.error.str(), self._settings) if self.error else ""


def passes(error: KafkaError) -> bool:
    """Return whether the error is temporary, for example while brokers elect a leader or restart."""
    from confluent_kafka import KafkaError as Codes

    return error.retriable() or error.code() in (
        Codes.NOT_LEADER_FOR_PARTITION,
        Codes.LEADER_NOT_AVAILABLE,
        Codes.FENCED_LEADER_EPOCH,
        Codes.UNKNOWN_LEADER_EPOCH,
        Codes.BROKER_NOT_AVAILABLE,
        Codes.KAFKA_STORAGE_ERROR,
        Codes.REPLICA_NOT_AVAILABLE,
        Codes.REQUEST_TIMED_OUT,
        Codes.NETWORK_EXCEPTION,
        Codes._TRANSPORT,
        Codes._TIMED_OUT,
        Codes._ALL_BROKERS_DOWN,
    )


def client_of(kind: Callable[[dict[str, Any]], Client], settings: Mapping[str, str], **whole: Any) -> Client:
    """Return a client of librdkafka with the settings `whole`. Raises CleantailError for a setting that it rejects,
    without the values of the user's `settings`."""
    from confluent_kafka import KafkaException

    try:
        return kind(whole)
    except (KafkaException, TypeError, ValueError) as e:
        cause = e.args[0] if e.args else e
        text = cause.str() if hasattr(cause, "str") else str(cause)
        wrong = f"a setting of the Kafka client is wrong: {without_values(text, settings)}"
        raise CleantailError(wrong) from None


def without_values(text: str, settings: Mapping[str, str]) -> str:
    """Return the first line of librdkafka's text without any setting's value, which may be a secret.

    librdkafka may quote a whole value, and the end of `sasl.oauthbearer.config`.
    """
    line = text.partition("\n")[0]
    if "oauthbearer.config" in line:
        return "sasl.oauthbearer.config cannot be parsed"
    values = (value for name, value in settings.items() if name not in _SHOWN and len(value) >= SHORTEST_MASKED)
    for value in sorted(values, key=len, reverse=True):
        line = line.replace(value, "…")
    return line


Answer = TypeVar("Answer")
ANSWERED_WITHIN_S = 20
"""Maximum wait for an answer (s)."""
PAUSE_S = 0.2


class Administrator:
    """Queries the brokers of the settings, and waits up to `within_s` (s) for each answer."""

    def __init__(self, settings: Mapping[str, str], within_s: float = ANSWERED_WITHIN_S) -> None:
        """Raise CleantailError for settings that librdkafka rejects."""
        from confluent_kafka.admin import AdminClient

        self._settings, self._within_s = settings, within_s
        self._complaint = Complaint(settings)
        known = {name: value for name, value in settings.items() if name not in OF_CONSUMERS}
        self._client = client_of(AdminClient, settings, **{"log_level": "2", **known, "error_cb": self._complaint.note})

    def answer(
        self,
        ask: Callable[[], Answer],
        problem: Callable[[KafkaError], CleantailError | None],
        silence: Callable[[str], CleantailError],
    ) -> Answer:
        """Return the result of `ask`, which calls the methods below.

        `problem` makes the error to raise for a permanent answer, and returns None for an answer that may change. If
        the brokers do not answer, raises the error that `silence` makes of the reason.
        """
        from confluent_kafka import KafkaException

        def may_change(error: BaseException) -> bool:
            return isinstance(error, KafkaException) and problem(error.args[0]) is None and passes(error.args[0])

        try:
            return answered(ask, may_change, every_s=PAUSE_S, within_s=self._within_s)
        except KafkaException as e:
            error = e.args[0]
            raise problem(error) or self._silent(problem, silence, error.str()) from None
        except TimeoutError:
            raise self._silent(problem, silence) from None

    def cluster_id(self) -> str:
        """Return the id of the cluster; empty if the brokers give no id.

        This and the following methods raise KafkaException and TimeoutError.
        """
        cluster = self._client.describe_cluster(request_timeout=self._within_s).result(self._within_s)
        return str(cluster.cluster_id or "")

    def described(self, topic: str) -> Any:
        """Return confluent-kafka's TopicDescription, with the operations that this login is authorized for."""
        from confluent_kafka import TopicCollection

        answers = self._client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=self._within_s
        )
        return answers[topic].result(self._within_s)

    def offsets(self, topic: str, partitions: Iterable[int], spec: Any, isolation: Any) -> dict[int, int]:
        """Return partition -> the offset for an OffsetSpec at an IsolationLevel."""
        from confluent_kafka import TopicPartition

        questions = {TopicPartition(topic, p): spec for p in partitions}
        answers = self._client.list_offsets(questions, isolation_level=isolation, request_timeout=self._within_s)
        return {log.partition: int(answer.result(self._within_s).offset) for log, answer in answers.items()}

    def topics(self) -> set[str]:
        return set(self._client.list_topics(timeout=self._within_s).topics)

    def config_entries(self, topics: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Return topic -> confluent-kafka's ConfigEntry of each config, by the name of the config."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        if not (resources := [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]):
            return {}
        answers = self._client.describe_configs(resources, request_timeout=self._within_s)
        return {resource.name: answer.result(self._within_s) for resource, answer in answers.items()}

    def configs(self, topic: str) -> dict[str, str]:
        """Return the topic's configs, without those that have no value."""
        [entries] = self.config_entries([topic]).values()
        return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}

    def logs_of(self, group: str) -> list[Any]:
        """Return the partitions for which a consumer group has offsets, as TopicPartition without metadata."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        [answer] = self._client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=self._within_s
        ).values()
        return list(answer.result(self._within_s).topic_partitions)

    def _silent(
        self,
        problem: Callable[[KafkaError], CleantailError | None],
        silence: Callable[[str], CleantailError],
        said: str = "",
    ) -> CleantailError:
        self._client.poll(0)
        error = self._complaint.error
        lasting = problem(error) if error is not None else None
        return lasting or silence(self._complaint.text or without_values(said, self._settings))


OF_CONSUMERS = frozenset(
    {
        "check.crcs",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "max.partition.fetch.bytes",
        "queued.max.messages.kbytes",
        "queued.min.messages",
    }
)
"""Settings of consumers. An administrator's client would log a warning for each."""


logger = logging.getLogger("cleantail.kafka")

GROUP_WITHIN_S = 10


OURS = "cleantail "
"""Prefix of the metadata of each offset that Cleantail commits. The topic follows."""


def commit_group_offsets(settings: Mapping[str, str], topic: Topic, next_offsets: Mapping[int, int]) -> None:
    """Commit the offsets for source.kafka.group.id, if it is set. A failure is a warning: the table has the offsets.

    A group that has an offset of any topic without the metadata of Cleantail belongs to another application. Such a
    group gets no offsets, because that application would skip records. The brokers refuse an offset for a group that
    has members.
    """
    group = topic.source.kafka.group_id if topic.source.kafka else None
    if not group:
        return
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    name, mark = topic.kafka_topic, f"{OURS}{topic.topic}"
    consumer = Consumer({**settings, "group.id": group, "enable.auto.commit": False})
    try:
        admin = Administrator(settings, GROUP_WITHIN_S)
        logs = admin.answer(lambda: admin.logs_of(group), lambda _: None, OutsideError)
        there = consumer.committed([TopicPartition(log.topic, log.partition) for log in logs], GROUP_WITHIN_S)
        if any(one.offset >= 0 and not (one.metadata or "").startswith(OURS) for one in there):
            logger.warning(
                "the group %s has offsets that Cleantail did not commit: they stay unchanged, and the progress is "
                "not written. Name a separate group in source.kafka.group.id",
                group,
            )
            return
        offsets = [TopicPartition(name, p, offset, mark) for p, offset in sorted(next_offsets.items())]
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as e:
        logger.warning("the progress was not written to the group %s: %s", group, e.args[0])
    except CleantailError as e:
        logger.warning("the progress was not written to the group %s: %s", group, e)
    finally:
        consumer.close()

"""The clients of a restore: their settings, their errors, and the brokers' description of the topic. Writes nothing.

Producer, consumer and administrator share librdkafka settings; each gets only those that it supports. Settings that
make a restore exact are fixed here and override the user's. Errors show no values of settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_source import ADDRESS
from cleantail.errors import CleantailError, TargetError, TargetUnreachableError
from cleantail.kafka.broker_clients import OF_CONSUMERS, PAUSE_S, Administrator, without_values
from cleantail.kafka.restore_target import CONFIGS, NOTHING, TargetTopic
from cleantail.retries import answered

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


AGAIN = "the same command continues where it stopped"


def lasting(where: str, topic: str, error: KafkaError, settings: Mapping[str, str]) -> TargetError | None:
    """Return the error to raise for a permanent answer; None if it is temporary."""
    from confluent_kafka import KafkaError as Codes

    said = without_values(error.str(), settings)
    texts = {
        Codes.TOPIC_AUTHORIZATION_FAILED: f"this login may not do this with topic {topic} (Kafka's ACL: Read, Write, "
        "Describe, DescribeConfigs)",
        Codes.TOPIC_EXCEPTION: f"{topic} is not a topic name in Kafka: 1 to 249 of the characters a-z A-Z 0-9 . _ -",
        Codes.CLUSTER_AUTHORIZATION_FAILED: f"this login may not do this with topic {topic}, or with the cluster "
        "(Kafka's ACL: Write on the topic)",
        Codes.SASL_AUTHENTICATION_FAILED: f"the login was refused: {said}",
        Codes._AUTHENTICATION: f"the login was refused: {said}",
        Codes.UNSUPPORTED_VERSION: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes._UNSUPPORTED_FEATURE: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes.MSG_SIZE_TOO_LARGE: "a record is larger than the topic allows: raise its max.message.bytes (and "
        "replica.fetch.max.bytes of the brokers). Then the same command continues",
        Codes.INVALID_TIMESTAMP: "the broker refuses a timestamp: message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic",
        Codes.INVALID_RECORD: f"the broker refuses a record: {said}",
        Codes.POLICY_VIOLATION: f"the broker refuses a record: {said}",
    }
    text = texts.get(error.code())
    return TargetError(f"{where}: {text}") if text else None


def problem(where: str, topic: str, error: KafkaError, settings: Mapping[str, str]) -> CleantailError:
    """Return the error for the problem that ended a restore."""
    said = without_values(error.str(), settings)
    return lasting(where, topic, error, settings) or TargetUnreachableError(f"{where}: {said}; {AGAIN}")


OF_PRODUCERS = frozenset(
    {
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "linger.ms",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "sticky.partitioning.linger.ms",
    }
)
OURS = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "dr_msg_cb",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "on_delivery",
        "partition.assignment.strategy",
        "partitioner",
        "queuing.strategy",
        "request.required.acks",
        "retries",
        "transactional.id",
        "transaction.timeout.ms",
    }
)
"""Settings that Cleantail fixes for a restore."""
TIMEOUT_MS = 60_000
"""Maximum wait for brokers that do not answer, before the restore ends with an error."""
BATCH_BYTES, QUEUE_KBYTES, LINGER_MS = 1_000_000, 65_536, 20
"""Size of a sent batch (bytes), limit of the queue (kB), and how long a batch waits to fill (ms). The queue bounds the
memory of a task."""
FEWEST_MESSAGE_BYTES, MOST_MESSAGE_BYTES = 1000, 1_000_000_000
"""librdkafka's bounds of message.max.bytes."""
GROUP = "cleantail-restore"
"""The group of the consumer, which must have one. Nothing is committed for it."""


def administrator(settings: Mapping[str, str]) -> dict[str, Any]:
    return _without(settings, OURS | OF_CONSUMERS | OF_PRODUCERS)


def consumer(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a client that reads everything back, including uncommitted records."""
    return _without(settings, OURS | OF_PRODUCERS) | {
        "group.id": GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
    }


def producer(settings: Mapping[str, str], max_message_bytes: int) -> dict[str, Any]:
    """Return the settings of a client that writes each record once, in order.

    `max_message_bytes`: the topic's max.message.bytes, the maximum size of a batch.
    """
    bytes_ = min(max(max_message_bytes, FEWEST_MESSAGE_BYTES), MOST_MESSAGE_BYTES)
    tuned = {
        "batch.size": min(BATCH_BYTES, bytes_),
        "linger.ms": LINGER_MS,
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
    }
    allowed = _without(settings, OURS | OF_CONSUMERS)
    if int(allowed.get("batch.size", 0)) > bytes_:
        del allowed["batch.size"]
    return {
        **tuned,
        **allowed,
        "enable.idempotence": True,
        "acks": "all",
        "max.in.flight.requests.per.connection": 5,
        "message.max.bytes": bytes_,
        "message.timeout.ms": TIMEOUT_MS,
        "delivery.report.only.error": True,
    }


def _without(settings: Mapping[str, str], names: frozenset[str]) -> dict[str, Any]:
    return {"log_level": "2", **{name: value for name, value in settings.items() if name not in names}}


KNOWN_WITHIN_S = 2
"""Maximum wait until every broker has the metadata of a new topic (s)."""


class TargetBrokers:
    """Queries the brokers that a restore writes to."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Raise CleantailError for settings that librdkafka rejects."""
        self.address = settings[ADDRESS]
        self._settings = settings
        self._admin = Administrator(administrator(settings))

    def describe(self, topic: str) -> TargetTopic | None:
        """Return the topic; None if it does not exist.

        Raises TargetError if the login may not describe it, and TargetUnreachableError if no broker answers.
        """
        try:
            return answered(partial(self._answer, topic), _is_unknown, every_s=PAUSE_S, within_s=KNOWN_WITHIN_S)
        except _UnknownTopicError:
            return None

    def _answer(self, topic: str) -> TargetTopic:
        return self._admin.answer(
            partial(self._ask, topic), partial(self._problem, topic), partial(self._silence, topic)
        )

    def _ask(self, topic: str) -> TargetTopic:
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        spec: Any = OffsetSpec
        cluster_id, described = self._admin.cluster_id(), self._admin.described(topic)
        self._require_rights(topic, described.authorized_operations)
        partitions = [partition.id for partition in described.partitions]
        starts, ends = (
            self._admin.offsets(topic, partitions, end, IsolationLevel.READ_UNCOMMITTED)
            for end in (spec.earliest(), spec.latest())
        )
        configs = {name: value for name, value in self._admin.configs(topic).items() if name in CONFIGS and value}
        return TargetTopic(cluster_id, topic, str(described.topic_id), starts, ends, configs)

    def _require_rights(self, topic: str, rights: Iterable[Any] | None) -> None:
        """Raise TargetError if the brokers report that the login lacks a permission that a restore needs."""
        from confluent_kafka.admin import AclOperation

        names = {right.name for right in rights or ()}
        missing = sorted({AclOperation.READ.name, AclOperation.WRITE.name} - names)
        if names and AclOperation.ALL.name not in names and missing:
            raise TargetError(f"{self.address}: this login has no right to {missing[0]} topic {topic}; {NOTHING}")

    def _problem(self, topic: str, error: KafkaError) -> CleantailError | None:
        from confluent_kafka import KafkaError as Codes

        if error.code() in (Codes.UNKNOWN_TOPIC_OR_PART, Codes._UNKNOWN_TOPIC):
            return _UnknownTopicError(topic)
        return lasting(self.address, topic, error, self._settings)

    def _silence(self, topic: str, why: str) -> TargetUnreachableError:
        reason = f" ({why})" if why else ""
        return TargetUnreachableError(f"{self.address}: the brokers do not answer for topic {topic}{reason}; {NOTHING}")


class _UnknownTopicError(CleantailError):
    """Raised for a topic that does not exist at the brokers."""


def _is_unknown(error: BaseException) -> bool:
    return isinstance(error, _UnknownTopicError)

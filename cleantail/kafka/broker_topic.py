"""Adapter: a topic as its brokers describe it, for a read of it. Nothing is read, nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cleantail.config.topic_source import ADDRESS
from cleantail.errors import SilentBrokersError, SourceError, SourceUnreachableError
from cleantail.kafka.broker_clients import ANSWERED_WITHIN_S, Administrator, without_values
from cleantail.kafka.read_plan import BrokerTopic, CleanerConfigs, LogOffsets

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Answer = TypeVar("Answer")


class Brokers:
    """Asks the brokers about topics. An answer may take ANSWERED_WITHIN_S, or less where a read may stand still for
    less."""

    def __init__(self, settings: Mapping[str, str], stall_ms: int = ANSWERED_WITHIN_S * 1000) -> None:
        """Raises CleantailError for settings that librdkafka does not take."""
        self._settings, self._address = settings, settings[ADDRESS]
        self._answered_once = False
        self._admin = Administrator(settings, min(stall_ms / 1000, ANSWERED_WITHIN_S))

    def describe(self, topic: str) -> BrokerTopic:
        """Returns the topic's id and the offsets of its partitions. Raises SourceError where it is not there or may
        not be read, SourceUnreachableError where it is not answered for, and SilentBrokersError where no broker answers
        anything."""
        return self._answered(topic, self._ask)

    def cleaner_configs(self, topic: str) -> CleanerConfigs | None:
        """Returns how the brokers clean the topic; None where this login may not describe configs. Raises as describe
        does."""
        return self._answered(topic, self._cleaner_configs)

    def _answered(self, topic: str, ask: Callable[[str], Answer]) -> Answer:
        return self._admin.answer(
            partial(ask, topic), partial(broker_problem, self._settings, topic), partial(self._silence, topic)
        )

    def _cleaner_configs(self, topic: str) -> CleanerConfigs | None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            configs = self._admin.configs(topic)
        except KafkaException as e:
            if e.args[0].code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                return None
            raise
        policy = frozenset(word.strip() for word in configs["cleanup.policy"].split(","))
        return CleanerConfigs(policy, int(configs["delete.retention.ms"]))

    def _ask(self, topic: str) -> BrokerTopic:
        cluster_id = self._admin.cluster_id()
        self._answered_once = True
        described = self._admin.described(topic)
        self._require_read(topic, described.authorized_operations)
        logs = self._log_offsets(topic, [partition.id for partition in described.partitions])
        return BrokerTopic(cluster_id, topic, str(described.topic_id).translate(_AS_KAFKA_SPELLS), logs)

    def _require_read(self, topic: str, rights: Iterable[Any] | None) -> None:
        from confluent_kafka.admin import AclOperation

        if rights and not {AclOperation.READ, AclOperation.ALL} & set(rights):
            raise SourceError(f"{self._address}: this login may describe topic {topic} and not read it; {_NOTHING}")

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
        # asked one after another: a log that grew meanwhile must not seem to have a stable end above its end
        return {p: LogOffsets(starts[p], min(stable[p], ends[p]), ends[p]) for p in starts}

    def _silence(self, topic: str, why: str) -> SourceUnreachableError:
        reason = f" ({why})" if why else ""
        error = SourceUnreachableError if self._answered_once else SilentBrokersError
        return error(f"{self._address}: the brokers do not answer for topic {topic}{reason}; {_NOTHING}")


_AS_KAFKA_SPELLS = str.maketrans("+/", "-_", "=")
"""librdkafka writes ids in one form of base64, Kafka's tools and files in the other."""
_NOTHING = "nothing was appended"


def broker_problem(settings: Mapping[str, str], topic: str, error: KafkaError) -> SourceError | None:
    """Returns the error of an answer that stays the same when it is asked for again; None where it may change."""
    from confluent_kafka import KafkaError as Codes

    refused = f"the login was refused: {without_values(error.str(), settings)}"
    texts = {
        Codes.UNKNOWN_TOPIC_OR_PART: f"there is no topic {topic}, or this login may not know of it",
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

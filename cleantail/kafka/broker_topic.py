"""Adapter: a topic as its brokers describe it, through confluent-kafka. Nothing is read, nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cleantail.config.sources.kafka_source import ADDRESS, TUNING
from cleantail.errors import CleantailError, SourceError, SourceUnreachableError
from cleantail.kafka.forgotten import CleanerConfigs
from cleantail.kafka.read_plan import BrokerTopic, LogOffsets

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Answer = TypeVar("Answer")
ANSWERED_WITHIN_S = 20
"""How long an answer may take (s); less where a read may stand still for less."""
PAUSE_S = 0.2
SHORTEST_MASKED = 3
"""A shorter value is no secret, and may be part of any word."""
_SHOWN = TUNING | {ADDRESS, "log_level"}
"""Settings whose values are no secrets."""


class Brokers:
    """Asks the brokers of one topic, and keeps what their connections last complained of."""

    def __init__(self, settings: Mapping[str, str], stall_ms: int = ANSWERED_WITHIN_S * 1000) -> None:
        """Raises CleantailError for settings that librdkafka does not take."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._complaint: KafkaError | None = None
        self._within_s = min(stall_ms / 1000, ANSWERED_WITHIN_S)
        self._settings, self._address = settings, settings[ADDRESS]
        all_settings: dict[str, Any] = {"log_level": "2", **settings, "error_cb": self._complain}
        try:
            self._admin = AdminClient(
                {name: value for name, value in all_settings.items() if name not in _OF_CONSUMERS}
            )
        except (KafkaException, TypeError, ValueError) as e:
            raise CleantailError(f"a setting of the Kafka client is wrong: {refusal_text(e, settings)}") from None

    def describe(self, topic: str) -> BrokerTopic:
        """Returns the topic's id and the offsets of its partitions. Raises SourceError where it is not there or may
        not be read, SourceUnreachableError where nobody answers."""
        return self._answered(topic, self._ask)

    def cleaner_configs(self, topic: str) -> CleanerConfigs | None:
        """Returns how the brokers clean the topic; None where this login may not describe configs. Raises as describe
        does."""
        return self._answered(topic, self._configs)

    def _answered(self, topic: str, ask: Callable[[str], Answer]) -> Answer:
        """Asks until there is an answer, or an error that stays."""
        from confluent_kafka import KafkaException

        until_s = time.monotonic() + self._within_s
        while True:
            try:
                return ask(topic)
            except KafkaException as e:
                error = e.args[0]
                if problem := broker_problem(self._settings, topic, error):
                    raise problem from None
                if time.monotonic() > until_s or not error.retriable():
                    raise self._silent(topic, error.str()) from None
            except TimeoutError:
                raise self._silent(topic) from None
            time.sleep(PAUSE_S)

    def _configs(self, topic: str) -> CleanerConfigs | None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        [answer] = self._admin.describe_configs([resource], request_timeout=self._within_s).values()
        try:
            configs = {name: entry.value for name, entry in answer.result(self._within_s).items()}
        except KafkaException as e:
            if e.args[0].code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
                return None
            raise
        policy = frozenset(word.strip() for word in str(configs["cleanup.policy"]).split(","))
        return CleanerConfigs(policy, int(str(configs["delete.retention.ms"])))

    def _ask(self, topic: str) -> BrokerTopic:
        cluster = self._admin.describe_cluster(request_timeout=self._within_s).result(self._within_s)
        described = self._described(topic)
        logs = self._log_offsets(topic, [partition.id for partition in described.partitions])
        return BrokerTopic(str(cluster.cluster_id), topic, str(described.topic_id).translate(_AS_KAFKA_SPELLS), logs)

    def _described(self, topic: str) -> Any:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AclOperation

        answers = self._admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=self._within_s
        )
        described = answers[topic].result(self._within_s)
        rights = described.authorized_operations
        if rights and not {AclOperation.READ, AclOperation.ALL} & set(rights):
            raise SourceError(f"{self._address}: this login may describe topic {topic} and not read it; {_NOTHING}")
        return described

    def _log_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        spec: Any = OffsetSpec
        questions = (
            (spec.earliest(), IsolationLevel.READ_UNCOMMITTED),
            (spec.latest(), IsolationLevel.READ_COMMITTED),
            (spec.latest(), IsolationLevel.READ_UNCOMMITTED),
        )
        starts, stable, ends = (self._offsets(topic, partitions, *each) for each in questions)
        # asked one after another: a log that grew meanwhile must not seem to have a stable end above its end
        return {p: LogOffsets(starts[p], min(stable[p], ends[p]), ends[p]) for p in starts}

    def _offsets(self, topic: str, partitions: Iterable[int], spec: Any, isolation: Any) -> dict[int, int]:
        from confluent_kafka import TopicPartition

        questions = {TopicPartition(topic, p): spec for p in partitions}
        answers = self._admin.list_offsets(questions, isolation_level=isolation, request_timeout=self._within_s)
        return {log.partition: int(answer.result(self._within_s).offset) for log, answer in answers.items()}

    def _complain(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError as Codes

        if self._complaint is None or error.code() != Codes._ALL_BROKERS_DOWN:  # which says that, and not why
            self._complaint = error

    def _silent(self, topic: str, said: str = "") -> CleantailError:
        """Returns what silence means: a refused login is silence to an administrator's client, with a complaint beside
        it."""
        self._admin.poll(0)
        if self._complaint is not None and (refused := broker_problem(self._settings, topic, self._complaint)):
            return refused
        why = without_values(self._complaint.str() if self._complaint else said, self._settings)
        return SourceUnreachableError(
            f"{self._address}: the brokers do not answer for topic {topic}{f' ({why})' if why else ''}; {_NOTHING}"
        )


_AS_KAFKA_SPELLS = str.maketrans("+/", "-_", "=")
"""librdkafka writes ids in one form of base64, Kafka's tools and files in the other."""
_NOTHING = "nothing was appended"
_OF_CONSUMERS = frozenset(
    {"queued.max.messages.kbytes", "fetch.message.max.bytes", "max.partition.fetch.bytes", "fetch.max.bytes"}
    | {"queued.min.messages", "fetch.min.bytes", "fetch.wait.max.ms", "fetch.error.backoff.ms", "check.crcs"}
)
"""Settings of consumers alone, of which an administrator's client would warn."""


def broker_problem(settings: Mapping[str, str], topic: str, error: KafkaError) -> SourceError | None:
    """Returns the error of an answer that stays the same when it is asked for again; None where it may change."""
    from confluent_kafka import KafkaError as Codes

    refused = f"the login was refused: {without_values(error.str(), settings)}"
    texts = {
        Codes.UNKNOWN_TOPIC_OR_PART: f"there is no topic {topic}, or this login may not know of it",
        Codes._UNKNOWN_TOPIC: f"there is no topic {topic}",
        Codes.UNKNOWN_TOPIC_ID: f"topic {topic} was deleted, or made anew, while it was read",
        Codes.TOPIC_AUTHORIZATION_FAILED: f"this login may not read topic {topic} (Kafka's ACL: Read and Describe)",
        Codes.CLUSTER_AUTHORIZATION_FAILED: "this login may not describe the cluster",
        Codes.SASL_AUTHENTICATION_FAILED: refused,
        Codes._AUTHENTICATION: refused,
        Codes.UNSUPPORTED_VERSION: "the brokers are too old: topic ids need Kafka 2.8 or newer",
        Codes._UNSUPPORTED_FEATURE: "the brokers are too old: topic ids need Kafka 2.8 or newer",
    }
    text = texts.get(error.code())
    return SourceError(f"{settings[ADDRESS]}: {text}; {_NOTHING}") if text else None


def refusal_text(error: Exception, settings: Mapping[str, str]) -> str:
    """Returns what librdkafka says of a setting that it does not take."""
    cause = error.args[0] if error.args else error
    return without_values(cause.str() if hasattr(cause, "str") else str(cause), settings)


def without_values(text: str, settings: Mapping[str, str]) -> str:
    """Returns the first line of what librdkafka says, without a setting's value, which may be a secret: it may quote
    the whole of one, and of `sasl.oauthbearer.config` its end."""
    line = text.partition("\n")[0]
    if "oauthbearer.config" in line:
        return "sasl.oauthbearer.config cannot be parsed"
    values = (value for name, value in settings.items() if name not in _SHOWN and len(value) >= SHORTEST_MASKED)
    for value in sorted(values, key=len, reverse=True):
        line = line.replace(value, "…")
    return line

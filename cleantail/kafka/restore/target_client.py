"""Adapter: asks brokers what a topic is that a restore writes into. Writes nothing, and makes no topic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cleantail.errors import CleantailError, TargetError, TargetUnreachableError
from cleantail.kafka.restore.client_errors import lasting, passes, wrong_setting
from cleantail.kafka.restore.restore_target import CONFIGS, NOTHING, TargetTopic
from cleantail.kafka.restore.target_settings import administrator

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

ANSWERED_WITHIN_S, KNOWN_WITHIN_S = 20, 2
"""So long an answer is waited for, and a topic that was made just now until every broker knows of it."""
PAUSE_S = 0.2


class TargetBrokers:
    """A client that asks. It keeps what the connections last complained of."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Raises CleantailError for settings that librdkafka does not take."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self.address = settings["bootstrap.servers"]
        self._complaint: KafkaError | None = None
        try:
            known: dict[str, Any] = {**administrator(settings), "error_cb": self._complain}
            self._admin = AdminClient(known)
        except (KafkaException, TypeError, ValueError) as e:
            raise wrong_setting(e) from None

    def describe(self, topic: str) -> TargetTopic | None:
        """Returns the topic; None where there is none. Raises TargetError where it may not be asked about, and
        TargetUnreachableError where nobody answers."""
        from confluent_kafka import KafkaError as Codes
        from confluent_kafka import KafkaException

        began_s = time.monotonic()
        while True:
            try:
                return self._answer(topic)
            except KafkaException as e:
                error, waited_s = e.args[0], time.monotonic() - began_s
                unknown = error.code() in (Codes.UNKNOWN_TOPIC_OR_PART, Codes._UNKNOWN_TOPIC)
                if unknown and waited_s > KNOWN_WITHIN_S:
                    return None
                if refusal := lasting(self.address, topic, error):
                    raise refusal from None
                if not (unknown or passes(error)) or waited_s > ANSWERED_WITHIN_S:
                    raise self._silent(topic, error.str()) from None
            except TimeoutError:
                raise self._silent(topic) from None
            time.sleep(PAUSE_S)

    def _answer(self, topic: str) -> TargetTopic:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import OffsetSpec

        spec: Any = OffsetSpec
        within_s = ANSWERED_WITHIN_S
        cluster = self._admin.describe_cluster(request_timeout=within_s).result(within_s)
        answers = self._admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=within_s
        )
        described: Any = answers[topic].result(within_s)
        self._require_rights(topic, described.authorized_operations)
        partitions = [partition.id for partition in described.partitions]
        return TargetTopic(
            cluster_id=str(cluster.cluster_id),
            topic=topic,
            topic_id=str(described.topic_id),
            starts=self._offsets(topic, partitions, spec.earliest()),
            ends=self._offsets(topic, partitions, spec.latest()),
            configs=self._configs(topic),
        )

    def _require_rights(self, topic: str, rights: Iterable[Any] | None) -> None:
        """Raises TargetError where the brokers say that the login may not do what a restore does."""
        from confluent_kafka.admin import AclOperation

        names = {right.name for right in rights or ()}
        missing = sorted({AclOperation.READ.name, AclOperation.WRITE.name} - names)
        if names and AclOperation.ALL.name not in names and missing:
            raise TargetError(f"{self.address}: this login has no right to {missing[0]} topic {topic}; {NOTHING}")

    def _offsets(self, topic: str, partitions: Iterable[int], spec: Any) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        answers = self._admin.list_offsets(
            {TopicPartition(topic, p): spec for p in partitions},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWERED_WITHIN_S,
        )
        return {place.partition: int(a.result(ANSWERED_WITHIN_S).offset) for place, a in answers.items()}

    def _configs(self, topic: str) -> dict[str, str]:
        from confluent_kafka.admin import ConfigResource, ResourceType

        answers = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=ANSWERED_WITHIN_S
        )
        [entries] = [answer.result(ANSWERED_WITHIN_S) for answer in answers.values()]
        return {name: str(entries[name].value) for name in CONFIGS if name in entries and entries[name].value}

    def _complain(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError as Codes

        if self._complaint is None or error.code() != Codes._ALL_BROKERS_DOWN:  # which says that, and not why
            self._complaint = error

    def _silent(self, topic: str, said: str = "") -> CleantailError:
        """Returns the error for silence: a login that is refused is silence, and a complaint beside it."""
        self._admin.poll(0)
        if self._complaint is not None and (refusal := lasting(self.address, topic, self._complaint)):
            return refusal
        why = self._complaint.str() if self._complaint else said
        return TargetUnreachableError(
            f"{self.address}: the brokers do not answer for topic {topic}{f' ({why})' if why else ''}; {NOTHING}"
        )

"""Adapter: asks brokers what a topic is that a restore writes into. Writes nothing, and makes no topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_source import ADDRESS
from cleantail.errors import CleantailError, TargetError, TargetUnreachableError
from cleantail.kafka.administrator import PAUSE_S, Administrator
from cleantail.kafka.restore.client_errors import lasting
from cleantail.kafka.restore.restore_target import CONFIGS, NOTHING, TargetTopic
from cleantail.kafka.restore.target_settings import administrator
from cleantail.retries import answered

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

KNOWN_WITHIN_S = 2
"""So long a topic that was made just now is waited for, until every broker knows of it (s)."""


class TargetBrokers:
    """Asks the brokers that a restore writes to."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Raises CleantailError for settings that librdkafka does not take."""
        self.address = settings[ADDRESS]
        self._settings = settings
        self._admin = Administrator(administrator(settings))

    def describe(self, topic: str) -> TargetTopic | None:
        """Returns the topic; None where there is none. Raises TargetError where it may not be asked about, and
        TargetUnreachableError where nobody answers."""
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
        """Raises TargetError where the brokers say that the login may not do what a restore does."""
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
    """Is raised for a topic that the brokers do not know."""


def _is_unknown(error: BaseException) -> bool:
    return isinstance(error, _UnknownTopicError)

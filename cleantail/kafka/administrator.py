"""Adapter: an administrator's client of confluent-kafka, which asks brokers about one topic. It changes nothing there.

An answer that says to ask again is asked for again. Silence is an error, which says what the connections complained of:
a login that is refused is silence to an administrator's client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cleantail.errors import CleantailError
from cleantail.kafka.broker_clients import Complaint, passes, without_values, wrong_setting
from cleantail.retries import answered

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Answer = TypeVar("Answer")
ANSWERED_WITHIN_S = 20
"""How long an answer may take (s)."""
PAUSE_S = 0.2


class Administrator:
    """Asks the brokers that the settings name, and waits for each answer for up to `within_s` (s)."""

    def __init__(self, settings: Mapping[str, str], within_s: float = ANSWERED_WITHIN_S) -> None:
        """Raises CleantailError for settings that librdkafka does not take."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._settings, self._within_s = settings, within_s
        self._complaint = Complaint(settings)
        known = {name: value for name, value in settings.items() if name not in OF_CONSUMERS}
        all_settings: dict[str, Any] = {"log_level": "2", **known, "error_cb": self._complaint.note}
        try:
            self._client = AdminClient(all_settings)
        except (KafkaException, TypeError, ValueError) as e:
            raise wrong_setting(e, settings) from None

    def answer(
        self,
        ask: Callable[[], Answer],
        problem: Callable[[KafkaError], CleantailError | None],
        silence: Callable[[str], CleantailError],
    ) -> Answer:
        """Returns what `ask` returns, which calls the methods below.

        Raises what `problem` makes of an answer that stays the same when it is asked for again (None: it may change),
        or what `silence` makes of the reason why nobody answers.
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
        """Returns the id of the cluster, empty if it has none. Raises KafkaException and TimeoutError, as all of these
        do."""
        cluster = self._client.describe_cluster(request_timeout=self._within_s).result(self._within_s)
        return str(cluster.cluster_id or "")

    def described(self, topic: str) -> Any:
        """Returns confluent-kafka's TopicDescription, with what this login may do."""
        from confluent_kafka import TopicCollection

        answers = self._client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=self._within_s
        )
        return answers[topic].result(self._within_s)

    def offsets(self, topic: str, partitions: Iterable[int], spec: Any, isolation: Any) -> dict[int, int]:
        """Returns partition -> the offset that an OffsetSpec asks for at an IsolationLevel."""
        from confluent_kafka import TopicPartition

        questions = {TopicPartition(topic, p): spec for p in partitions}
        answers = self._client.list_offsets(questions, isolation_level=isolation, request_timeout=self._within_s)
        return {log.partition: int(answer.result(self._within_s).offset) for log, answer in answers.items()}

    def configs(self, topic: str) -> dict[str, str]:
        """Returns the topic's configs, without those that have no value."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        [answer] = self._client.describe_configs([resource], request_timeout=self._within_s).values()
        entries = answer.result(self._within_s)
        return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}

    def logs_of(self, group: str) -> list[Any]:
        """Return the logs of all topics for which a consumer group has offsets, as TopicPartition without metadata."""
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
"""Settings of consumers alone, of which an administrator's client would warn."""

"""A topic at its brokers as a reconciliation needs it: who is asked, how it is read, and what forbids to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, SourceError
from cleantail.kafka.broker_topic import Brokers
from cleantail.kafka.forgotten import hindrance_of
from cleantail.kafka.range_reader import RangeReader
from cleantail.kafka.read_plan import UNCOMMITTED, BrokerTopic
from cleantail.log.source_position import SourcePosition

_NOTHING = "nothing was compared, and nothing removed"


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """Is a topic at its brokers. `settings` are the client's, with its login: they are neither logged nor shown."""

    topic: Topic
    brokers: Brokers
    settings: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, topic: Topic, settings: Mapping[str, str]) -> SourceTopic:
        """Raises CleantailError for settings that librdkafka does not take."""
        return cls(topic, Brokers(settings, topic.stall_timeout_ms), settings)

    def describe(self) -> BrokerTopic:
        """Asks the brokers. Raises SourceError and SourceUnreachableError as Brokers.describe does."""
        return self.brokers.describe(self.topic.kafka_topic)

    def ends(self, broker: BrokerTopic) -> dict[int, int]:
        """Returns up to where each log may be read: the last stable offset, or the log end of read_uncommitted."""
        uncommitted = self.topic.source.isolation == UNCOMMITTED
        return {p: log.end if uncommitted else log.last_stable for p, log in broker.logs.items()}

    def open_reader(self) -> Callable[[], RangeReader]:
        """Returns what a task calls; it travels to the task inside of the function, and not with the data."""
        settings, name = dict(self.settings), self.topic.kafka_topic
        isolation, stall_ms = self.topic.source.isolation, self.topic.stall_timeout_ms
        return lambda: RangeReader(settings, name, isolation, stall_ms)

    def require_comparable(self, position: SourcePosition | None) -> BrokerTopic:
        """Returns what the brokers have. Raises CleantailError where a key that is gone there need not have been
        deleted, and SourceError where this is not the topic that the table was read from."""
        topic = self.topic
        if position is None:
            raise CleantailError(f"topic {topic.topic} was not read from Kafka yet: ingest it first; {_NOTHING}")
        broker = self.describe()
        if (position.topic_id, position.cluster_id) != (broker.topic_id, broker.cluster_id):
            raise SourceError(
                f"topic {topic.kafka_topic} is not the one that the table was read from: its id is {broker.topic_id}, "
                f"and was {position.topic_id}; {_NOTHING}"
            )
        if why := hindrance_of(topic, self.brokers.cleaner_configs(topic.kafka_topic)):
            raise CleantailError(f"topic {topic.topic} cannot be reconciled: {why}; {_NOTHING}")
        return broker

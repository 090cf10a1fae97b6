"""A topic at its brokers as a reconciliation needs it: who is asked, how it is read, and what forbids to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, SourceError, SourceUnreachableError
from cleantail.kafka.read_plan import (
    UNCOMMITTED,
    BrokerTopic,
    changed_while_read,
    hindrance_of,
    plan_read,
    without_outcome,
)
from cleantail.kafka.source_topic import Brokers, Deadline, RangeReader
from cleantail.log.source_position import SourcePosition

CONTINUE = "continue"
"""What a gap does to a comparison: nothing, since what was cut off there is left as it is."""
_NOTHING = "nothing was compared, and nothing removed"


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """Is a topic at its brokers. `settings` are the client's, with its login: they are neither logged nor shown."""

    topic: Topic
    brokers: Brokers
    settings: Mapping[str, str] = field(repr=False)
    deadline: Deadline | None = None

    @classmethod
    def of(cls, topic: Topic, settings: Mapping[str, str], within_ms: int | None = None) -> SourceTopic:
        """`within_ms`: how long all of its tasks may read, where others wait. Raises CleantailError for settings that
        librdkafka does not take."""
        deadline = Deadline.after(within_ms) if within_ms is not None else None
        stall_ms = topic.stall_timeout_ms if within_ms is None else min(topic.stall_timeout_ms, within_ms)
        return cls(topic, Brokers(settings, stall_ms), settings, deadline)

    def describe(self) -> BrokerTopic:
        """Asks the brokers. Raises SourceError and SourceUnreachableError as Brokers.describe does."""
        return self.brokers.describe(self.topic.kafka_topic)

    def describe_again(self, before: BrokerTopic) -> BrokerTopic:
        """Asks the brokers once more. Raises SourceError where the topic was recreated since, or is in another
        cluster."""
        now = self.describe()
        if problem := changed_while_read(before, now):
            raise SourceError(f"{problem}; {_NOTHING}")
        return now

    def ends(self, broker: BrokerTopic) -> dict[int, int]:
        """Returns up to where each log may be read: the last stable offset, or the log end of read_uncommitted."""
        uncommitted = self.topic.source.isolation == UNCOMMITTED
        return {p: log.end if uncommitted else log.last_stable for p, log in broker.logs.items()}

    def open_reader(self) -> Callable[[], RangeReader]:
        """Returns what a task calls; it travels to the task inside of the function, and not with the data."""
        settings, name = dict(self.settings), self.topic.kafka_topic
        isolation, stall_ms, deadline = self.topic.source.isolation, self.topic.stall_timeout_ms, self.deadline
        return lambda: RangeReader(settings, name, isolation, stall_ms, deadline)

    def require_comparable(self, position: SourcePosition | None) -> BrokerTopic:
        """Returns what the brokers have. Raises CleantailError where a key that is gone there need not have been
        deleted: SourceError or SourceUnreachableError where this is not the log that the table was read from, or not
        all of it any more."""
        topic = self.topic
        if topic.columns is not None:
            raise CleantailError(
                f"topic {topic.topic} has an adopted table, which its sink fills and not a read from Kafka; {_NOTHING}"
            )
        if position is None:
            raise CleantailError(f"topic {topic.topic} was not read from Kafka yet: ingest it first; {_NOTHING}")
        broker = self.describe()
        try:
            plan_read(position, {}, broker, topic.source.isolation, CONTINUE, now_ms=0)
        except (SourceError, SourceUnreachableError) as e:
            raise type(e)(f"{without_outcome(e)}; {_NOTHING}") from None
        if why := hindrance_of(topic, self.brokers.cleaner_configs(topic.kafka_topic)):
            raise CleantailError(f"topic {topic.topic} cannot be reconciled: {why}; {_NOTHING}")
        return broker

"""Says where the records of a read come from: brokers here, or segments of a broker's log (`segment_logs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cleantail.config.input_limits import DEFAULT_LIMITS
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.kafka.broker_topic import Brokers
from cleantail.kafka.forgotten import CleanerConfigs
from cleantail.kafka.group_progress import tell_group
from cleantail.kafka.range_reader import Deadline, RangeReader
from cleantail.kafka.read_plan import BrokerTopic
from cleantail.kafka.table_position import TablePosition, table_position
from spark_jobs.round.kafka.records import ArrowReader, MessageReader


class LogSource(Protocol):
    """Is what a read asks of the place that has a topic's logs."""

    @property
    def progress_text(self) -> str:
        """Says for people what `describe` does."""

    @property
    def is_one_commit(self) -> bool:
        """Says whether all of it is to come in one commit, or portion by portion."""

    @property
    def is_current(self) -> bool:
        """Says whether its log ends are the brokers' of now, or of a time that nobody knows."""

    def cleaner_configs(self) -> CleanerConfigs | None:
        """Returns how the brokers clean the topic, None where that is not said."""

    def position(self, platform: Platform) -> TablePosition:
        """Returns how far the table has come."""

    def describe(self, at: TablePosition) -> BrokerTopic:
        """Returns the topic as it is now, for a table that is at this position. Raises CleantailError."""

    def open_reader(self) -> Callable[[], ArrowReader]:
        """Returns what a task calls to read its ranges."""

    def tell(self, next_offsets: Mapping[int, int]) -> None:
        """Is called after each commit."""


@dataclass(frozen=True, slots=True)
class BrokerLogs:
    """Is a topic at its brokers. `settings` are the client's, with its login: they are neither logged nor shown.
    `most_headers`: of a record; `deadline`: of the read, None if it may take as long as it takes."""

    topic: Topic
    brokers: Brokers
    settings: Mapping[str, str] = field(repr=False)
    most_headers: int = DEFAULT_LIMITS.headers
    deadline: Deadline | None = None
    progress_text: str = "asking the brokers"
    is_one_commit: bool = False
    is_current: bool = True

    def cleaner_configs(self) -> CleanerConfigs | None:
        return self.brokers.cleaner_configs(self.topic.kafka_topic)

    def position(self, platform: Platform) -> TablePosition:
        return table_position(self.topic, platform)

    def describe(self, at: TablePosition) -> BrokerTopic:
        return self.brokers.describe(self.topic.kafka_topic)

    def open_reader(self) -> Callable[[], ArrowReader]:
        settings, name, isolation = dict(self.settings), self.topic.kafka_topic, self.topic.source.isolation
        stall_ms, most_headers, deadline = self.topic.stall_timeout_ms, self.most_headers, self.deadline
        return lambda: MessageReader(RangeReader(settings, name, isolation, stall_ms, deadline), most_headers)

    def tell(self, next_offsets: Mapping[int, int]) -> None:
        tell_group(self.settings, self.topic, next_offsets)

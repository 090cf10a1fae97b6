"""Query brokers about the topics on open pages, in the background, and cache the answers for some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.kafka.read_plan import BrokerTopic, SourceLag, source_lag, without_outcome
from cleantail.kafka.source_topic import Brokers
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.source_position import SourcePosition

ASKERS = 2
ANSWERS_LIVE_S = 10.0
ANSWERED_WITHIN_MS = 5000
MOST_TOPICS = 256
"""Maximum number of topics whose answers are cached."""
SettingsOf = Callable[[Topic], Mapping[str, str]]
"""Returns the settings of a topic's Kafka client. Raises CleantailError if there are none."""


@dataclass(frozen=True, slots=True)
class SourceView:
    """A topic's source in Kafka as its page shows it.

    `address` is the connection or the brokers. `position` is how far the source was read, None before the first read.
    `lag` is how far that is behind the brokers, None if unknown; then `problem` has the reason.
    """

    kafka_topic: str
    address: str
    isolation: str
    group: str
    position: SourcePosition | None
    lag: SourceLag | None
    problem: str = ""


class KafkaWatch:
    """Queries brokers for a page. Thread-safe; never runs two queries about one topic at a time."""

    def __init__(self, settings_of: SettingsOf, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings_of = settings_of
        self._clock = clock
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(ASKERS, thread_name_prefix="cleantail-kafka")
        self._answers: dict[str, tuple[str, float, Future[BrokerTopic | str]]] = {}

    def view(self, topic: Topic, facts: TableFacts | None, now_ms: int, within_s: float) -> SourceView | None:
        """Return the topic's source in Kafka, or None if it has another source.

        An answer that takes longer than `within_s` is returned by a later call.
        """
        kafka = topic.source.kafka
        if kafka is None:
            return None
        position = facts.source if facts else None
        answer = self._answer(topic, within_s)
        lag, problem = None, answer if isinstance(answer, str) else ""
        if isinstance(answer, BrokerTopic):
            lag = source_lag(topic, position, _ends(facts), answer, now_ms)
            problem = lag.problem
        brokers = kafka.bootstrap_servers or "the brokers of the environment"
        address = f"connection {kafka.connection}" if kafka.connection else brokers
        return SourceView(
            topic.kafka_topic, address, topic.source.isolation, kafka.group_id or "", position, lag, problem
        )

    def _answer(self, topic: Topic, within_s: float) -> BrokerTopic | str:
        """Return the brokers' answer, or why it is unknown."""
        with self._lock:
            asked = self._answers.get(topic.topic)
            if asked is None or asked[0] != repr(topic.source) or self._is_stale(*asked[1:]):
                while len(self._answers) >= MOST_TOPICS:
                    self._answers.pop(next(iter(self._answers)))
                asked = (repr(topic.source), self._clock(), self._pool.submit(self._ask, topic))
                self._answers[topic.topic] = asked
        wait([asked[2]], timeout=within_s)
        return asked[2].result() if asked[2].done() else "the brokers have not answered yet"

    def _is_stale(self, asked_s: float, answer: Future[BrokerTopic | str]) -> bool:
        return answer.done() and self._clock() - asked_s >= ANSWERS_LIVE_S

    def _ask(self, topic: Topic) -> BrokerTopic | str:
        try:
            return Brokers(self._settings_of(topic), ANSWERED_WITHIN_MS).describe(topic.kafka_topic)
        except CleantailError as e:
            return without_outcome(e)


def _ends(facts: TableFacts | None) -> Mapping[int, int]:
    """Return the log ends of the table, from which a first read of Kafka continues."""
    if facts is None:
        return {}
    ends = {p: state.log_end_offset or 0 for p, state in facts.states.items()}
    for file in facts.files:
        ends[file.partition] = max(ends.get(file.partition, 0), file.upper_offset + 1)
    return ends

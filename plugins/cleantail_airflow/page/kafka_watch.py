"""Holds what the brokers say of the topics that people look at: asked in the background, and kept for a few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.kafka.broker_topic import Brokers
from cleantail.kafka.read_plan import BrokerTopic
from cleantail.kafka.source_lag import SourceLag, source_lag, without_outcome
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.source_position import SourcePosition

ASKERS = 2
ANSWERS_LIVE_S = 10.0
ANSWERED_WITHIN_MS = 5000
MOST_TOPICS = 256
"""The number of topics whose answers are kept at once."""
SettingsOf = Callable[[Topic], Mapping[str, str]]
"""Returns the settings of a topic's Kafka client. Raises CleantailError where there are none."""


@dataclass(frozen=True, slots=True)
class SourceView:
    """Describes a topic's source in Kafka as its page shows it.

    `address` is by which connection or brokers it is read. `position` is how far the table was read, None before the
    first read, and `lag` how far that is behind the brokers, None where `problem` says why nobody knows.
    """

    kafka_topic: str
    address: str
    isolation: str
    group: str
    position: SourcePosition | None
    lag: SourceLag | None
    problem: str = ""


class KafkaWatch:
    """Asks brokers for a page. It is safe to use from many threads, and asks about a topic once at a time."""

    def __init__(self, settings_of: SettingsOf, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings_of = settings_of
        self._clock = clock
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(ASKERS, thread_name_prefix="cleantail-kafka")
        self._answers: dict[str, tuple[str, float, Future[BrokerTopic | str]]] = {}

    def view(self, topic: Topic, facts: TableFacts | None, now_ms: int, within_s: float) -> SourceView | None:
        """Returns the topic's source in Kafka; None where it has another one. An answer that takes longer than
        `within_s` comes at the next call."""
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
        """Returns what the brokers say, or why that is not known."""
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
    """Returns the log ends of a table that was not read from Kafka yet, which a first read goes on from."""
    if facts is None:
        return {}
    ends = {p: state.log_end_offset or 0 for p, state in facts.states.items()}
    for file in facts.files:
        ends[file.partition] = max(ends.get(file.partition, 0), file.upper_offset + 1)
    return ends

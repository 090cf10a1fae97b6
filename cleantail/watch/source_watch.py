"""Query the sources of topics in the background, and cache the answers, for pages, metrics and `status`.

An answer has the topic's offsets at its brokers, or the snapshots of its source table. The lag also depends on the
table's own position (source_lag, snapshot_lag), so each call computes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.config.topic_source import KAFKA, TABLE
from cleantail.errors import CleantailError
from cleantail.kafka.client_settings import SettingsOf
from cleantail.kafka.read_plan import BrokerTopic, SourceLag, source_lag, without_outcome
from cleantail.kafka.source_topic import Brokers
from cleantail.lake.pending_input import described_source
from cleantail.log.snapshot_plan import SnapshotLag, SourceTable, snapshot_lag
from cleantail.log.source_position import ReadPosition, SnapshotPosition, SourcePosition
from cleantail.watch.observed_table import TableSummary

ASKERS = 2
ANSWERS_LIVE_S = 10.0
LISTED_LIVE_S = 60.0
"""Maximum age of an answer for a list of topics or a scrape (s), because a thousand topics must not load the
brokers."""
BEFORE_LIVES_S = 180.0
"""Maximum age of an answer that is shown while a new query runs (s)."""
ANSWERED_WITHIN_MS = 5000
MOST_TOPICS, MOST_CLIENTS = 4096, 16
"""Maximum number of topics with cached answers, and of connected clients."""
Lag = SourceLag | SnapshotLag
Answer = BrokerTopic | SourceTable | str
"""The topic at its brokers, or its source table, or the reason why neither is known."""
NO_CLIENT = "the package confluent-kafka is not installed: it comes with cleantail[kafka]"
NO_ANSWER_YET = "its source has not answered yet"


@dataclass(frozen=True, slots=True)
class TableEnds:
    """A table's position in its source (None before the first read), and its log ends.

    `caught_up_ms`: as cleantail.kafka.table_position.last_caught_up_ms returns it.
    """

    position: ReadPosition | None = None
    ends: Mapping[int, int] | None = None
    caught_up_ms: int = 0

    @classmethod
    def of_summary(cls, table: TableSummary, caught_up_ms: int = 0) -> TableEnds:
        return cls(table.source, {log.partition: log.log_end_offset for log in table.logs}, caught_up_ms)

    @property
    def in_kafka(self) -> SourcePosition | None:
        return self.position if isinstance(self.position, SourcePosition) else None

    def lag(self, topic: Topic, answer: BrokerTopic | SourceTable, now_ms: int) -> Lag:
        if isinstance(answer, BrokerTopic):
            return self.lag_of_kafka(topic, answer, now_ms)
        position = self.position if isinstance(self.position, SnapshotPosition) else None
        on_change = topic.source.table.on_change if topic.source.table else ""
        return snapshot_lag(position, answer, on_change, now_ms)

    def lag_of_kafka(self, topic: Topic, broker: BrokerTopic, now_ms: int) -> SourceLag:
        return source_lag(topic, self.in_kafka, self.ends or {}, broker, now_ms, self.caught_up_ms)


@dataclass(frozen=True, slots=True)
class SourceView:
    """A topic's source in Kafka as its page shows it.

    `address`: the connection or the brokers. `position`: the table's position, None before the first read. `lag`: the
    lag behind the brokers. If it is None, `problem` has the reason. If the table could not be read, `is_known` is
    false, and `lag` has only the brokers' offsets.
    """

    kafka_topic: str
    address: str
    isolation: str
    group: str
    position: SourcePosition | None
    lag: SourceLag | None
    problem: str = ""
    is_known: bool = True


@dataclass(slots=True)
class _Asked:
    """The newest query about a topic, and the answer to the previous query."""

    source: str
    asked_s: float
    answer: Future[Answer]
    before: Answer

    def newest(self) -> Answer:
        return self.answer.result() if self.answer.done() else self.before


class SourceWatch:
    """Queries brokers and source tables. Thread-safe. Never runs two queries about one topic at a time."""

    def __init__(self, settings_of: SettingsOf, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings_of = settings_of
        self._clock = clock
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(ASKERS, thread_name_prefix="cleantail-kafka")
        self._asked: dict[str, _Asked] = {}
        self._clients: dict[tuple[tuple[str, str], ...], Brokers] = {}

    def __enter__(self) -> SourceWatch:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel queries that have not begun, because the process would wait for their answers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def view(self, topic: Topic, table: TableEnds | None, now_ms: int, within_s: float) -> SourceView | None:
        """Return the topic's source in Kafka, or None for another source. `table`: None if unknown.

        If an answer takes longer than `within_s`, a later call returns it.
        """
        kafka = topic.source.kafka
        if kafka is None:
            return None
        asked = self._ask_again(topic, ANSWERS_LIVE_S)
        wait([asked.answer], timeout=within_s)
        answer = asked.newest()
        lag, problem = None, answer if isinstance(answer, str) else ""
        if isinstance(answer, BrokerTopic):
            lag = (table or TableEnds()).lag_of_kafka(topic, answer, now_ms)
            problem = lag.problem if table else ""
        brokers = kafka.bootstrap_servers or "the brokers of the environment"
        return SourceView(
            topic.kafka_topic,
            f"connection {kafka.connection}" if kafka.connection else brokers,
            topic.source.isolation,
            kafka.group_id or "",
            table.in_kafka if table else None,
            lag,
            problem,
            table is not None,
        )

    def lags(self, tables: Iterable[tuple[Topic, TableEnds]], now_ms: int, within_s: float) -> dict[str, Lag | str]:
        """Return topic name -> lag of its table, or the reason why the lag is unknown.

        Leaves out topics whose source is neither in Kafka nor a table. Answers may be LISTED_LIVE_S old, or older if a
        new answer takes longer than `within_s`.
        """
        asked = [
            (topic, table, self._ask_again(topic, LISTED_LIVE_S))
            for topic, table in tables
            if topic.fed_by in (KAFKA, TABLE)
        ]
        wait([each.answer for *_, each in asked], timeout=within_s)
        answers = ((topic, table, each.newest()) for topic, table, each in asked)
        return {
            topic.topic: answer if isinstance(answer, str) else table.lag(topic, answer, now_ms)
            for topic, table, answer in answers
        }

    def _ask_again(self, topic: Topic, live_s: float) -> _Asked:
        """Return the newest query about the topic. Starts a new query if the answer is older than `live_s`."""
        with self._lock:
            asked, source = self._asked.get(topic.topic), repr(topic.source)
            if asked is None or asked.source != source or self._is_stale(asked, live_s):
                is_recent = asked and asked.source == source and self._clock() - asked.asked_s < BEFORE_LIVES_S
                before = asked.newest() if asked and is_recent else NO_ANSWER_YET
                while len(self._asked) >= MOST_TOPICS:
                    self._asked.pop(next(iter(self._asked)))
                asked = _Asked(source, self._clock(), self._pool.submit(self._ask, topic), before)
                self._asked[topic.topic] = asked
            return asked

    def _is_stale(self, asked: _Asked, live_s: float) -> bool:
        return asked.answer.done() and self._clock() - asked.asked_s >= live_s

    def _ask(self, topic: Topic) -> Answer:
        key: tuple[tuple[str, str], ...] = ()
        try:
            if topic.source.table is not None:
                return described_source(topic)
            settings = self._settings_of(topic)
            key = tuple(sorted(settings.items()))
            return self._brokers(key, settings).describe(topic.kafka_topic)
        except CleantailError as e:
            with self._lock:
                self._clients.pop(key, None)  # a later query must not report this client's complaint
            return without_outcome(e)
        except ImportError:
            return NO_CLIENT
        except Exception as e:  # an error of a driver, whose text may have secrets; one topic must not hide the others
            return f"its source cannot be queried: {type(e).__name__}"

    def _brokers(self, key: tuple[tuple[str, str], ...], settings: Mapping[str, str]) -> Brokers:
        """Return the client of these settings. Topics of the same brokers share a connection."""
        with self._lock:
            if key not in self._clients:
                while len(self._clients) >= MOST_CLIENTS:
                    self._clients.pop(next(iter(self._clients)))
                self._clients[key] = Brokers(settings, ANSWERED_WITHIN_MS)
            return self._clients[key]

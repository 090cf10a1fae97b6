"""The due work of many topics in one Spark application, each topic by its own stations (topic_stations).

1. A topic is evaluated when its turn comes. So a pack that is run again after a crash finds nothing due where it has
   published already, and goes on with the rest.
2. What is wrong with one topic (its YAML, its table, its records, another writer) is its own outcome: the next topic
   goes on. Where the application itself is gone nothing goes on, and the pack fails as a whole.
3. The outcome of each topic is kept as it ends (kept_outcomes), and joined to that of an earlier try.
4. A topic whose rounds may wait for a person is passed over: nobody else waits with it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from cleantail.config.loading import find_topics
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError
from cleantail.human import counted
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.rounds.pack_results import EVALUATE, PASSED_OVER, PackRequest, PackResult, TopicOutcome
from spark_jobs.packs.kept_outcomes import keep_outcome, kept_outcomes
from spark_jobs.packs.topic_stations import Settings, StationError, TopicStations

logger = logging.getLogger("cleantail.packs")
NO_CLIENTS: Mapping[str, Settings] = {}


def run_pack(
    spark: SparkSession, platform: Platform, request: PackRequest, clients: Mapping[str, Settings] = NO_CLIENTS
) -> PackResult:
    """Does the due work of these topics, in their order. `clients`: topic -> the settings of its Kafka client. Raises
    only what ends the application."""
    earlier = kept_outcomes(platform.home, request.outcomes)
    found = find_topics(request.topics, platform.config_dir, os.environ)
    outcomes = []
    for name in request.topics:
        if name in earlier and earlier[name].ok:
            outcomes.append(earlier[name])
            continue
        outcome = _outcome(spark, platform, found[name], name, request, clients.get(name))
        if name in earlier:
            outcome = outcome.after(earlier[name])
        keep_outcome(platform.home, request.outcomes, outcome)
        outcomes.append(outcome)
        logger.info("%s", "; ".join(_lines(outcome)))
    return PackResult.of(outcomes)


def _outcome(
    spark: SparkSession,
    platform: Platform,
    topic: Topic | ConfigError,
    name: str,
    request: PackRequest,
    client: Settings | None,
) -> TopicOutcome:
    before = TopicOutcome(name)
    if isinstance(topic, ConfigError):
        return before.failed_at(EVALUATE, str(topic), topic.exit_code)
    if topic.waits_for_people:
        return TopicOutcome(name, reason=PASSED_OVER)
    try:
        return TopicStations(spark, platform, topic, request, client).run()
    except StationError as failed:
        return _failed(failed, failed.__cause__)


def _failed(failed: StationError, error: BaseException | None) -> TopicOutcome:
    """Returns the outcome of a topic whose station raised this. Raises it anew where the JVM is gone, and with it the
    application. Of an error that nobody foresaw the log has the frames, and no text that may quote a record."""
    if isinstance(error, Py4JNetworkError) or not isinstance(error, Exception):
        raise error or failed
    told = error if isinstance(error, CleantailError) else explained(error)
    if told is None:
        logger.error("%s: a defect of Cleantail\n%s", failed.outcome.topic, stack_of(error))
        return failed.outcome.failed_at(failed.station, f"a defect of Cleantail: {type(error).__name__}", None)
    return failed.outcome.failed_at(failed.station, str(told), told.exit_code)


def _lines(outcome: TopicOutcome) -> Iterator[str]:
    """Yields what became of a topic, for the log of the application."""
    if outcome.ingested and outcome.ingested.records:
        yield f"{outcome.topic}: {counted(outcome.ingested.records, 'record')} appended"
    for station, result in outcome.rounds.items():
        yield f"{outcome.topic}: {station} published {_named(result.published)}, held back {_named(result.held_back)}"
    if outcome.error:
        yield f"{outcome.topic}: {outcome.station} failed: {outcome.error}"
    elif not outcome.rounds:
        yield f"{outcome.topic}: {outcome.reason or 'space was reclaimed'}"


def _named(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"

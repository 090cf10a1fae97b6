"""The due work of many topics in one Spark application, each topic by its own stations (topic_stations).

1. Topics are worked on in batches, in their order, some of a batch side by side: one of them seldom keeps all cores
   busy. Their rounds are checked at once, and the evidence gets their rows together.
2. A topic is evaluated when its turn comes. So a pack that is run again after a crash finds nothing due where it has
   published already, and goes on with the rest.
3. What is wrong with one topic (its YAML, its table, its records, another writer) is its own outcome: the next topic
   goes on. Where the application itself is gone nothing goes on, and the pack fails as a whole.
4. What became of each topic is kept as it goes on (cleantail.rounds.packs.kept_outcomes), and joined to that of an
   earlier try. The topics that it was at when it ended come last, each alone.
5. A topic whose rounds may wait for a person is passed over: nobody else waits with it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from cleantail.config.loading import find_topics
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConfigError, OutsideError
from cleantail.kafka.silent_brokers import SilentBrokers
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.log.policy.shares import one_of, parallelism
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.pack_results import COMPACT, EVALUATE, PASSED_OVER, PackRequest, PackResult, TopicOutcome
from cleantail.rounds.packs.kept_outcomes import PackOutcomes
from spark_jobs.iceberg.jvm.local_files import set_permissions_without_processes
from spark_jobs.iceberg.session import is_gone, make_active
from spark_jobs.packs.checked_together import Answers, check_together
from spark_jobs.packs.topic_stations import Settings, StationError, TopicStations
from spark_jobs.quality.judge import imported

logger = logging.getLogger("cleantail.packs")
NO_CLIENTS: Mapping[str, Settings] = {}
SIDE_BY_SIDE = 4
"""So many topics are worked on at a time, at most, and no more than there are cores: the driver has work with each."""
MANY = 10
"""From so many topics on it pays to have the JVM write their files without a process for each."""
BATCH = 20
"""So many topics are checked together: more of them would wait longer for their publication than they save."""


def run_pack(
    spark: SparkSession, platform: Platform, request: PackRequest, clients: Mapping[str, Settings] = NO_CLIENTS
) -> PackResult:
    """Does the due work of these topics, in their order. `clients`: topic -> the settings of its Kafka client. Raises
    only what ends the application."""
    if len(request.topics) >= MANY:
        set_permissions_without_processes(spark)
    outcomes = PackOutcomes(platform.home, request.outcomes)
    found = find_topics(request.topics, platform.config_dir, os.environ)
    most, silent = min(parallelism(platform.spark), SIDE_BY_SIDE), SilentBrokers()
    # the same threads to the end: each asks Great Expectations for a context of its own, and the JVM for a thread
    with ThreadPoolExecutor(most, thread_name_prefix="topic", initializer=make_active, initargs=(spark,)) as pool:
        for names in outcomes.batches(request.topics, BATCH):
            threads = min(most, len(names))
            of_each = platform.model_copy(update={"spark": one_of(platform.spark, threads)})
            topics = [
                TopicStations(
                    spark, of_each, topic, request, clients.get(name), outcomes.begun, outcomes.died_at(name), silent
                )
                for name in names
                if (topic := _to_do(name, found[name], outcomes)) is not None
            ]
            _run_batch(platform, topics, outcomes, pool if threads > 1 else None)
    return PackResult.of(outcomes[name] for name in request.topics)


def _to_do(name: str, topic: Topic | ConfigError, outcomes: PackOutcomes) -> Topic | None:
    """Returns the topic; None, and its outcome is known, where its YAML is wrong or it may wait for a person."""
    if isinstance(topic, ConfigError):
        outcomes.ended(TopicOutcome(name).failed_at(EVALUATE, str(topic), topic.exit_code))
        return None
    if topic.waits_for_people:
        outcomes.ended(TopicOutcome(name, reason=PASSED_OVER))
        return None
    return topic


def _run_batch(
    platform: Platform, topics: Sequence[TopicStations], outcomes: PackOutcomes, pool: Executor | None
) -> None:
    """Takes topics through their stations together, side by side in the threads of the pool, where there is one."""

    def prepare(stations: TopicStations) -> None:
        def work() -> None:
            if (earlier := stations.look_back()) is not None:
                outcomes.found(earlier)
            stations.prepare()

        _guarded(stations, work)
        if stations.outcome.error or stations.plan is None:
            outcomes.ended(stations.outcome)
        else:
            outcomes.waits(stations.outcome, COMPACT)

    def finish(stations: TopicStations) -> None:
        round_or_error = checked.get(stations.topic.topic)
        if isinstance(round_or_error, Exception):
            stations.outcome = _failed(stations, COMPACT, round_or_error)
        else:
            _guarded(stations, partial(stations.finish, round_or_error, answers.keep))
        outcomes.ended(stations.outcome)

    # 1. each to where its round waits to be checked
    _side_by_side(prepare, topics, pool)
    going = [stations for stations in topics if stations.plan is not None and not stations.outcome.error]
    # 2. all checks at once
    checked = _checked(platform, [stations for stations in going if stations.measured is not None], outcomes)
    # 3. each to its end
    answers = Answers(platform)
    _side_by_side(finish, going, pool)
    # 4. what became of the rounds
    try:
        answers.append()
    except CleantailError as error:
        logger.warning("what became of the rounds is left to their topics' next checks to tell: %s", error)


def _side_by_side(
    work: Callable[[TopicStations], None], topics: Sequence[TopicStations], pool: Executor | None
) -> None:
    """Does the work for each topic. After an error, which only the end of the application is, no further one is
    begun, and those that are under way come to their ends."""
    if pool is None:
        for stations in topics:
            work(stations)
        return
    _import_beforehand()
    begun = [pool.submit(work, stations) for stations in topics]
    try:
        wait(begun, return_when=FIRST_EXCEPTION)
        for future in (future for future in begun if future.done()):
            future.result()
    finally:
        for future in begun:
            future.cancel()


def _import_beforehand() -> None:
    """Imports what else is imported where it is first used: of two threads that meet on their ways through one package,
    Python lets one go on with half of it."""
    imported()
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401


def _checked(
    platform: Platform, waiting: Sequence[TopicStations], outcomes: PackOutcomes
) -> dict[str, CheckedRound | Exception]:
    """Returns the checked round of each topic, or why its check failed; nothing where they could not be checked
    together: each is made and checked anew then. While Spark goes by the topic's own checks through its records, the
    application may die of it, so that is kept as well."""
    rounds = {stations.topic.topic: stations.measured for stations in waiting if stations.measured is not None}
    if not rounds:
        return {}
    outcome_of = {stations.topic.topic: stations.outcome for stations in waiting if stations.topic.checks}

    @contextmanager
    def at(topic: str) -> Iterator[None]:
        if topic in outcome_of:
            outcomes.begun(outcome_of[topic], COMPACT)
        yield
        if topic in outcome_of:
            outcomes.waits(outcome_of[topic], COMPACT)

    try:
        results = check_together(platform, list(rounds.values()), at)
    except CleantailError as error:
        logger.warning("the rounds are checked one by one: %s", error)
        return {}
    return dict(zip(rounds, results, strict=True))


def _guarded(stations: TopicStations, work: Callable[[], None]) -> None:
    """Does a part of a topic's work. Raises only what ends the application."""
    try:
        work()
    except StationError as failed:
        stations.outcome = _failed(stations, failed.station, failed.__cause__)


def _failed(stations: TopicStations, station: str, error: BaseException | None) -> TopicOutcome:
    """Returns the outcome of a topic whose station raised this. Raises it anew where the JVM is gone, and with it the
    application. Of an error that nobody foresaw the log has the frames, and no text that may quote a record."""
    if isinstance(error, Py4JNetworkError) or not isinstance(error, Exception):
        raise error or StationError(station)
    if is_gone(stations.spark):
        raise OutsideError(f"Spark's JVM ended at the station {station} of {stations.topic.topic}") from None
    told = error if isinstance(error, CleantailError) else explained(error)
    if told is None:
        logger.error("%s: a defect of Cleantail\n%s", stations.topic.topic, stack_of(error))
        return stations.outcome.failed_at(station, f"a defect of Cleantail: {type(error).__name__}", None)
    return stations.outcome.failed_at(station, str(told), told.exit_code)

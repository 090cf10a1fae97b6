"""The topics of a pack that are worked on together: each to where its round waits to be checked, all checks at once,
and each to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, wait
from contextlib import contextmanager
from functools import partial

from py4j.protocol import Py4JNetworkError

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError, OutsideError
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.pack_results import COMPACT, TopicOutcome
from cleantail.rounds.packs.kept_outcomes import PackOutcomes
from spark_jobs.iceberg.session import is_gone
from spark_jobs.packs.checked_together import Answers, check_together
from spark_jobs.packs.lost_cores import are_cores_lost
from spark_jobs.packs.topic_stations import StationError, TopicStations
from spark_jobs.quality.judge import imported

logger = logging.getLogger("cleantail.packs")


def run_batch(
    platform: Platform,
    topics: Sequence[TopicStations],
    outcomes: PackOutcomes,
    pool: Executor | None,
    others_wait: bool,
) -> int | None:
    """Takes topics through their stations together, side by side in the threads of the pool, where there is one.

    Returns None once all have come to their ends; where a check that was given up keeps its cores, how many topics are
    left. `others_wait`: whether the pack has other topics. Raises only what ends the application.
    """

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
            _guarded(stations, partial(stations.finish, round_or_error, answers.keep, publish_only=lost))
        outcomes.ended(stations.outcome)

    # 1. each to where its round waits to be checked
    _side_by_side(prepare, topics, pool)
    going = [stations for stations in topics if stations.plan is not None and not stations.outcome.error]
    # 2. all checks at once
    checked = _checked(
        platform, [stations for stations in going if stations.measured is not None], outcomes, others_wait
    )
    held = [stations for stations in going if _held_by_own_checks(stations, checked)]
    lost = bool(held) and are_cores_lost(held[0].spark)
    # 3. each to its end; without cores those whose check it was, since nothing is left to do for them but to say so
    answers = Answers(platform)
    _side_by_side(finish, held if lost else going, pool)
    # 4. what became of the rounds
    try:
        answers.append()
    except Exception as error:
        told = _told(topics[0], error)
        logger.warning("what became of the rounds is left to their topics' next checks to tell: %s", told)
    return len(going) - len(held) if lost else None


def _held_by_own_checks(stations: TopicStations, checked: Mapping[str, CheckedRound | Exception]) -> bool:
    """Returns whether a log of a topic with checks of its own is held back."""
    found = checked.get(stations.topic.topic)
    return bool(stations.topic.checks) and isinstance(found, CheckedRound) and bool(found.red)


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
    platform: Platform, waiting: Sequence[TopicStations], outcomes: PackOutcomes, others_wait: bool
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
        results = check_together(platform, list(rounds.values()), at, others_wait)
    except Exception as error:
        logger.warning("the rounds are checked one by one: %s", _told(waiting[0], error))
        return {}
    return dict(zip(rounds, results, strict=True))


def _guarded(stations: TopicStations, work: Callable[[], None]) -> None:
    """Does a part of a topic's work. Raises only what ends the application."""
    try:
        work()
    except StationError as failed:
        stations.outcome = _failed(stations, failed.station, failed.__cause__)


def _failed(stations: TopicStations, station: str, error: BaseException | None) -> TopicOutcome:
    """Returns the outcome of a topic whose station raised this. Raises what ends the application, as _told does."""
    told = _told(stations, error or StationError(station))
    exit_code = told.exit_code if isinstance(told, CleantailError) else None
    return stations.outcome.failed_at(station, str(told), exit_code)


def _told(stations: TopicStations, error: BaseException) -> CleantailError | str:
    """Returns what to say of an error. Raises it anew where the JVM is gone, and with it the application. Of an error
    that nobody foresaw the log has the frames, and no text that may quote a record."""
    if isinstance(error, Py4JNetworkError) or not isinstance(error, Exception):
        raise error
    if is_gone(stations.spark):
        raise OutsideError(f"Spark's JVM ended while the pack was at {stations.topic.topic}") from None
    told = error if isinstance(error, CleantailError) else explained(error)
    if told is not None:
        return told
    logger.error("%s: a defect of Cleantail\n%s", stations.topic.topic, stack_of(error))
    return f"a defect of Cleantail: {type(error).__name__}"

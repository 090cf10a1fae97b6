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
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.pack_results import PackOutcomes
from cleantail.rounds.stations import COMPACT, TopicOutcome
from spark_jobs.iceberg.session import is_gone
from spark_jobs.quality.evaluation import GRACE_S, LostCoresError, are_cores_lost
from spark_jobs.quality.judge import imported
from spark_jobs.run.checked_together import Answers, check_together
from spark_jobs.run.topic_run import StationError, TopicRun

logger = logging.getLogger("cleantail.packs")


def run_batch(
    platform: Platform, topics: Sequence[TopicRun], outcomes: PackOutcomes, pool: Executor | None
) -> int | None:
    """Take topics through their stations together, side by side in the threads of the pool, where there is one.

    Returns None once all have come to their ends; where a check that was given up keeps its cores, how many topics are
    left. Raises only what ends the application.
    """
    ended: set[str] = set()

    def prepare(stations: TopicRun) -> None:
        def work() -> None:
            if (earlier := stations.look_back()) is not None:
                outcomes.found(earlier)
            stations.prepare()

        _guarded(stations, work)
        if stations.outcome.error or stations.plan is None:
            outcomes.ended(stations.outcome)
        else:
            outcomes.waits(stations.outcome, COMPACT)

    def finish(stations: TopicRun) -> None:
        round_or_error = checked.get(stations.topic.topic)
        if isinstance(round_or_error, Exception):
            stations.outcome = _failed(stations, COMPACT, round_or_error)
        elif lost and round_or_error is not None:
            _guarded(stations, partial(stations.publish_held, round_or_error, answers.keep))
        else:
            _guarded(stations, partial(stations.finish, round_or_error, answers.keep))
        outcomes.ended(stations.outcome)
        ended.add(stations.topic.topic)
        if stations.lost_cores:
            raise LostCoresError(f"a check of {stations.topic.topic} was given up, and keeps its cores")

    # 1. each to where its round waits to be checked
    _side_by_side(prepare, topics, pool)
    going = [stations for stations in topics if stations.plan is not None and not stations.outcome.error]
    # 2. all checks at once
    checked, lost = _checked(platform, [s for s in going if s.measured is not None], outcomes)
    # 3. each to its end; without cores those whose check it was, since nothing is left to do for them but to say so
    answers = Answers(platform)
    try:
        _side_by_side(finish, [s for s in going if _held_by_own_checks(s, checked)] if lost else going, pool)
    except LostCoresError as error:
        logger.warning("%s", error)
        lost = True
    # 4. what became of the rounds
    try:
        answers.append()
    except Exception as error:
        cause = _cause_of(topics[0], error)
        logger.warning("what became of the rounds is left to their topics' next checks to tell: %s", cause)
    return len(going) - len(ended) if lost else None


def _held_by_own_checks(stations: TopicRun, checked: Mapping[str, CheckedRound | Exception]) -> bool:
    """Return whether a log of a topic with checks of its own is held back, or its check has failed."""
    round_or_error = checked.get(stations.topic.topic)
    failed = isinstance(round_or_error, Exception) or (round_or_error is not None and bool(round_or_error.red))
    return bool(stations.topic.checks) and failed


def _side_by_side(work: Callable[[TopicRun], None], topics: Sequence[TopicRun], pool: Executor | None) -> None:
    """Do the work for each topic. After an error, which only the end of the application is, no further one is
    begun. Those that are under way come to their ends; where cores are lost, as far as they need none of these."""
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
    except LostCoresError:
        under_way = [future for future in begun if not future.cancel()]
        wait(under_way, timeout=GRACE_S)
        for future in (future for future in under_way if future.done()):
            if not isinstance(future.exception(), LostCoresError):
                future.result()
        raise
    finally:
        for future in begun:
            future.cancel()


def _import_beforehand() -> None:
    """Import what else is imported where it is first used: of two threads that meet on their ways through one package,
    Python lets one go on with half of it."""
    imported()
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401


def _checked(
    platform: Platform, waiting: Sequence[TopicRun], outcomes: PackOutcomes
) -> tuple[dict[str, CheckedRound | Exception], bool]:
    """Return the checked round of each topic, or why its check failed, and whether cores are lost: then some were not
    checked. Where they could not be checked together nothing: each is made and checked again then. While Spark goes by
    the topic's own checks through its records, the application may die of it, so that is kept too."""
    rounds = {stations.topic.topic: stations.measured for stations in waiting if stations.measured is not None}
    if not rounds:
        return {}, False
    outcome_of = {stations.topic.topic: stations.outcome for stations in waiting if stations.topic.checks}

    @contextmanager
    def at(topic: str) -> Iterator[None]:
        if topic in outcome_of:
            outcomes.begun(outcome_of[topic], COMPACT)
        yield
        if topic in outcome_of:
            outcomes.waits(outcome_of[topic], COMPACT)

    try:
        results, lost = check_together(platform, list(rounds.values()), at)
    except Exception as error:
        logger.warning("the rounds are checked one by one: %s", _cause_of(waiting[0], error))
        return {}, are_cores_lost(waiting[0].spark)
    return dict(zip(rounds, results, strict=False)), lost


def _guarded(stations: TopicRun, work: Callable[[], None]) -> None:
    """Do a part of a topic's work. Raises only what ends the application."""
    try:
        work()
    except StationError as failed:
        stations.outcome = _failed(stations, failed.station, failed.__cause__)


def _failed(stations: TopicRun, station: str, error: BaseException | None) -> TopicOutcome:
    """Return the outcome of a topic whose station raised this. Raises what ends the application, as _cause_of does."""
    cause = _cause_of(stations, error or StationError(station))
    exit_code = cause.exit_code if isinstance(cause, CleantailError) else None
    return stations.outcome.failed_at(station, str(cause), exit_code)


def _cause_of(stations: TopicRun, error: BaseException) -> CleantailError | str:
    """Return what to say of an error. Raises it again where the JVM is gone, and with it the application. Of an error
    that nobody foresaw the log has the frames, and no text that may quote a record."""
    if isinstance(error, Py4JNetworkError) or not isinstance(error, Exception):
        raise error
    if is_gone(stations.spark):
        raise OutsideError(f"Spark's JVM ended while the pack was at {stations.topic.topic}") from None
    known = error if isinstance(error, CleantailError) else explained(error)
    if known is not None:
        return known
    logger.error("%s: a defect of Cleantail\n%s", stations.topic.topic, stack_of(error))
    return f"a defect of Cleantail: {type(error).__name__}"

"""Run a batch of a pack's topics together.

Each topic runs until its round waits to be checked. All rounds are checked at once. Then each topic runs to its end.
One commit at the end writes the rows of all checks and outcomes to the evidence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, wait
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from py4j.protocol import Py4JNetworkError

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError, OutsideError
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.pack_results import PackOutcomes
from cleantail.rounds.stations import COMPACT, TopicOutcome
from spark_jobs.iceberg.session import is_gone
from spark_jobs.quality.expectations import validated_together
from spark_jobs.quality.gx_validation import imported
from spark_jobs.quality.time_limit import GRACE_S, LostCoresError, are_cores_lost
from spark_jobs.round.check import MeasuredRound, with_verdicts
from spark_jobs.round.evidence import append_evidence, rows_kept
from spark_jobs.run.topic_run import StationError, TopicRun

logger = logging.getLogger("cleantail.packs")


def run_batch(
    platform: Platform, topics: Sequence[TopicRun], outcomes: PackOutcomes, pool: Executor | None
) -> int | None:
    """Take topics through their stations together. With a pool, they run in its threads.

    Returns None if all topics have reached their ends. If a cancelled check keeps its cores, returns the number of
    unfinished topics. Raises only errors that end the application.
    """
    ended: set[str] = set()

    def prepare(stations: TopicRun) -> None:
        def work() -> None:
            if (earlier := stations.earlier_outcome()) is not None:
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
            _guarded(stations, partial(stations.publish_held, round_or_error))
        else:
            _guarded(stations, partial(stations.finish, round_or_error))
        outcomes.ended(stations.outcome)
        ended.add(stations.topic.topic)
        if stations.lost_cores:
            raise LostCoresError(f"a check of {stations.topic.topic} was stopped, but keeps its cores")

    # 1. run each topic until its round waits to be checked
    _side_by_side(prepare, topics, pool)
    going = [stations for stations in topics if stations.plan is not None and not stations.outcome.error]
    with rows_kept(platform):
        # 2. check all rounds at once
        checked, lost = _checked(platform, [s for s in going if s.measured is not None], outcomes)
        # 3. finish each topic; without cores, only topics whose own checks failed, because the others need a core
        try:
            _side_by_side(finish, [s for s in going if _held_by_own_checks(s, checked)] if lost else going, pool)
        except LostCoresError as error:
            logger.warning("%s", error)
            lost = True
    return len(going) - len(ended) if lost else None


def _held_by_own_checks(stations: TopicRun, checked: Mapping[str, CheckedRound | Exception]) -> bool:
    """Return whether a log of a topic with checks of its own is blocked, or its check has failed."""
    round_or_error = checked.get(stations.topic.topic)
    failed = isinstance(round_or_error, Exception) or (round_or_error is not None and bool(round_or_error.red))
    return bool(stations.topic.checks) and failed


def _side_by_side(work: Callable[[TopicRun], None], topics: Sequence[TopicRun], pool: Executor | None) -> None:
    """Do the work for each topic.

    Only the end of the application raises an error. Then no further topic starts, and topics in progress are
    finished. If cores are lost, these topics do only the steps that need no core.
    """
    if pool is None:
        for stations in topics:
            work(stations)
        return
    # if two threads import one package at the same time, Python may let one continue with a half-imported package
    imported()
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

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


def _checked(
    platform: Platform, waiting: Sequence[TopicRun], outcomes: PackOutcomes
) -> tuple[dict[str, CheckedRound | Exception], bool]:
    """Return the checked round of each topic or the error of its check, and whether cores are lost.

    If cores are lost, some rounds were not checked. If the rounds could not be checked together, returns no round: each
    is made and checked again. The application may die while Spark runs a topic's own checks, so the pack first records
    the topic.
    """
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
        results, lost = _check_together(platform, list(rounds.values()), at)
    except Exception as error:
        logger.warning("the rounds are checked one by one: %s", _cause_of(waiting[0], error))
        return {}, are_cores_lost(waiting[0].spark)
    return dict(zip(rounds, results, strict=False)), lost


def _check_together(
    platform: Platform, rounds: Sequence[MeasuredRound], at: Callable[[str], AbstractContextManager[None]]
) -> tuple[list[CheckedRound | Exception], bool]:
    """Return the checked round of each topic or the error of its check, and whether cores are lost.

    Great Expectations validates their measures together, and one commit appends their rows to the evidence. The results
    equal the results of single checks, because the same rules apply to each log. If cores are lost, later rounds were
    not checked and the list is shorter. `at`: topic's name -> context manager around the check of its records.
    """
    results = _by_rules(rounds)
    checked: list[CheckedRound | Exception] = []
    kept, lost = [], False
    for measured, of_rules in zip(rounds, results, strict=True):
        try:
            with at(measured.table.topic.topic):
                judged, all_results = with_verdicts(measured, platform, of_rules)
        except Exception as error:
            checked.append(error)
        else:
            checked.append(judged)
            kept.append((measured.table, judged, all_results))
        # without a core the checks of later topics would take too long too, and would block their logs
        lost = bool(measured.table.topic.checks) and are_cores_lost(measured.table.spark)
        if lost:
            break
    if kept:
        append_evidence(platform, kept)
    return checked, lost


def _by_rules(rounds: Sequence[MeasuredRound]) -> list[list[CheckResult]]:
    """Return the results of the rules for each round. Rounds with the same rules are validated together."""
    results: dict[int, list[CheckResult]] = {}
    for rules in {measured.rules for measured in rounds}:
        numbers = [number for number, measured in enumerate(rounds) if measured.rules == rules]
        asked = [(rounds[n].auditor, rounds[n].round, rounds[n].violations) for n in numbers]
        results |= dict(zip(numbers, validated_together(asked), strict=True))
    return [results[number] for number in range(len(rounds))]


def _guarded(stations: TopicRun, work: Callable[[], None]) -> None:
    """Do a part of a topic's work, and store its error as the outcome. Raises only errors that end the application."""
    try:
        work()
    except StationError as failed:
        stations.outcome = _failed(stations, failed.station, failed.__cause__)


def _failed(stations: TopicRun, station: str, error: BaseException | None) -> TopicOutcome:
    """Return the outcome of a topic whose station raised this error. Raises as _cause_of does."""
    cause = _cause_of(stations, error or StationError(station))
    exit_code = cause.exit_code if isinstance(cause, CleantailError) else None
    return stations.outcome.failed_at(station, str(cause), exit_code)


def _cause_of(stations: TopicRun, error: BaseException) -> CleantailError | str:
    """Return the text to report for an error. Raises the error again if the JVM, and so the application, is lost.

    Logs only the stack frames of an unexpected error: its message may contain record data.
    """
    if isinstance(error, Py4JNetworkError) or not isinstance(error, Exception):
        raise error
    if is_gone(stations.spark):
        raise OutsideError(f"Spark's JVM ended during the work on topic {stations.topic.topic}") from None
    known = error if isinstance(error, CleantailError) else explained(error)
    if known is not None:
        return known
    logger.error("%s: a defect of Cleantail\n%s", stations.topic.topic, stack_of(error))
    return f"a defect of Cleantail: {type(error).__name__}"

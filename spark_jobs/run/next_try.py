"""Reports rounds that an earlier try of the run has published and did not report: it ended right after the commit. The
events of Airflow's assets go by what is reported."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from cleantail.errors import CleantailError
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.recorded_rounds import recorded_round
from cleantail.log.round_state import COMPACT, EXPIRE
from cleantail.log.work_units import round_name
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.commit_summaries import OPERATION, ROUND, Commit
from cleantail.rounds.past_rounds import PUBLISHED
from cleantail.rounds.stations import TopicOutcome
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.publish import published_as, result_of

logger = logging.getLogger("cleantail.packs")


def with_untold(table: TopicTable, now_ms: int, reported: TopicOutcome) -> TopicOutcome:
    """Return what an earlier try of the run came to tell, with the rounds on `main` that it did not. `now_ms`: the
    clock of the run, after which all tries name their rounds."""
    outcome = reported
    for commit in reversed(list(_untold(table, now_ms, reported))):
        try:
            outcome = _with(outcome, _result(table, commit))
        except CleantailError as error:
            logger.warning("%s: what round %s published is not told: %s", reported.topic, commit.summary[ROUND], error)
    return outcome


def tell_evidence(table: TopicTable, now_ms: int) -> None:
    """Says in the evidence that all rounds are published which tries of the run have published so far: one may have
    ended before it said so. `now_ms`: as in with_untold."""
    try:
        commits = list(_of_run(history(table.load()), now_ms))
    except Exception as error:  # a table that is gone by now, for one: its own stations tell of it
        logger.warning("%s: what became of its rounds is not told: %s", table.topic.topic, type(error).__name__)
        return
    for commit in commits:
        try:
            _answered(table, commit)
        except Exception as error:  # of a store or a catalog, for one: no topic waits for what the evidence lacks
            cause = error if isinstance(error, CleantailError) else type(error).__name__
            named = commit.summary[ROUND]
            logger.warning("%s: what became of round %s is not told: %s", table.topic.topic, named, cause)


def _untold(table: TopicTable, now_ms: int, reported: TopicOutcome) -> Iterator[Commit]:
    """Yield the commits of the run's rounds, newest first, that came after those that were told."""
    known = {result.snapshot_id for result in reported.rounds.values()}
    yield from _of_run(takewhile(lambda commit: commit.snapshot_id not in known, history(table.load())), now_ms)


def _of_run(commits: Iterable[Commit], now_ms: int) -> Iterator[Commit]:
    """Yield those of them that are rounds of the run."""
    of_run = round_name(now_ms, 0).removesuffix("0")
    yield from (c for c in commits if c.is_round and c.summary.get(ROUND, "").startswith(of_run))


def _result(table: TopicTable, commit: Commit) -> RoundResult:
    """Return the result of the round that made the commit, as the evidence has the round, and says there that it is
    published. Raises CleantailError if the evidence has another one."""
    return result_of(table, _answered(table, commit), commit.snapshot_id)


def _answered(table: TopicTable, commit: Commit) -> CheckedRound:
    """Return the round that made the commit as the evidence has it, where it says afterwards that it is published.
    Raises CleantailError if the evidence has another check of it."""
    named, kind = commit.summary[ROUND], commit.summary[OPERATION]
    checked = recorded_round(kept_catalog(table.platform), table.topic, named, kind)
    if published_as(table, checked) != commit.snapshot_id:
        raise CleantailError("the evidence has another check of it")
    if not has_answer(table, checked, PUBLISHED):
        append_answer(table, checked, PUBLISHED)
    return checked


def _with(reported: TopicOutcome, result: RoundResult) -> TopicOutcome:
    """Return what was told with the result of a round that came after it."""
    nothing = TopicOutcome(reported.topic)
    if result.kind == COMPACT:
        later = replace(nothing, compacted=result)
    elif result.kind == EXPIRE:
        later = replace(nothing, expired=result)
    else:
        later = replace(nothing, reconciled=result)
    return replace(later.after(reported), ok=False, station=reported.station, error=reported.error, may_retry=True)

"""Report rounds that an earlier try of the run published but did not report, because it ended right after the commit.

Airflow's asset events are sent for reported rounds only.
"""

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
from cleantail.rounds.approval import approved_note
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.commit_summaries import OPERATION, ROUND, Commit
from cleantail.rounds.past_rounds import PUBLISHED
from cleantail.rounds.stations import TopicOutcome
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.publish import published_as, result_of

logger = logging.getLogger("cleantail.packs")


def with_unreported(table: TopicTable, now_ms: int, reported: TopicOutcome) -> TopicOutcome:
    """Return the outcome that an earlier try reported, with the rounds on `main` that it did not report. `now_ms`: the
    clock of the run, from which all tries derive the names of their rounds."""
    outcome, known = reported, {result.snapshot_id for result in reported.rounds.values()}
    newer = takewhile(lambda commit: commit.snapshot_id not in known, history(table.load()))
    for commit in reversed(list(_of_run(newer, now_ms))):
        try:
            outcome = _with(outcome, result_of(table, _answered(table, commit), commit.snapshot_id))
        except CleantailError as error:
            logger.warning(
                "%s: the publication of round %s is not reported: %s", reported.topic, commit.summary[ROUND], error
            )
    return outcome


def record_publications(table: TopicTable, now_ms: int) -> None:
    """Record in the evidence the publication of all rounds that tries of the run have published.

    An earlier try may have ended before it recorded them. `now_ms`: as in with_unreported.
    """
    try:
        commits = list(_of_run(history(table.load()), now_ms))
    except Exception as error:  # such as a deleted table: the topic's own stations report that
        logger.warning("%s: the outcomes of its rounds are not recorded: %s", table.topic.topic, type(error).__name__)
        return
    for commit in commits:
        try:
            _answered(table, commit)
        except Exception as error:  # an error of a store or a catalog: a gap in the evidence must not stop a topic
            cause = error if isinstance(error, CleantailError) else type(error).__name__
            named = commit.summary[ROUND]
            logger.warning("%s: the outcome of round %s is not recorded: %s", table.topic.topic, named, cause)


def _of_run(commits: Iterable[Commit], now_ms: int) -> Iterator[Commit]:
    of_run = round_name(now_ms, 0).removesuffix("0")
    yield from (c for c in commits if c.is_round and c.summary.get(ROUND, "").startswith(of_run))


def _answered(table: TopicTable, commit: Commit) -> CheckedRound:
    """Return the commit's round from the evidence, and record its publication there. Raises CleantailError if the
    evidence has another check of the round."""
    named, kind = commit.summary[ROUND], commit.summary[OPERATION]
    checked = recorded_round(kept_catalog(table.platform), table.topic, named, kind)
    published = published_as(table, checked)
    if published is None or published.snapshot_id != commit.snapshot_id:
        raise CleantailError("the evidence has another check of it")
    if not has_answer(table, checked, PUBLISHED):
        append_answer(table, checked, PUBLISHED, approved_note(commit.approved_by))
    return checked


def _with(reported: TopicOutcome, result: RoundResult) -> TopicOutcome:
    nothing = TopicOutcome(reported.topic)
    if result.kind == COMPACT:
        later = replace(nothing, compacted=result)
    elif result.kind == EXPIRE:
        later = replace(nothing, expired=result)
    else:
        later = replace(nothing, reconciled=result)
    return replace(later.after(reported), ok=False, station=reported.station, error=reported.error, may_retry=True)

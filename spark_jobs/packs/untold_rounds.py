"""What an application has published and did not come to tell, since it ended right after the commit: a later try of the
same run tells it, as the assets' events go by that."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.recorded_rounds import recorded_round
from cleantail.log.round_state import COMPACT, EXPIRE
from cleantail.log.work_units import round_name
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.pack_results import TopicOutcome
from cleantail.rounds.past_rounds import PUBLISHED
from cleantail.rounds.rollback import ROUND, Commit
from cleantail.rounds.size_history import OPERATION
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.published_rounds import published_as, result_of

logger = logging.getLogger("cleantail.packs")


def with_untold(table: TopicTable, platform: Platform, now_ms: int, told: TopicOutcome) -> TopicOutcome:
    """Returns what an earlier try of the run came to tell, with the rounds on `main` that it did not. `now_ms`: the
    clock of the run, after which all tries name their rounds."""
    outcome = told
    for commit in reversed(list(_untold(table, now_ms, told))):
        try:
            outcome = _with(outcome, _result(table, platform, commit))
        except CleantailError as error:
            logger.warning("%s: what round %s published is not told: %s", told.topic, commit.summary[ROUND], error)
    return outcome


def tell_evidence(table: TopicTable, platform: Platform, told: TopicOutcome) -> None:
    """Says in the evidence that the rounds are published which an earlier try has published and told: it may have ended
    before it said so."""
    for result in told.rounds.values():
        if not (result.published and result.round and result.kind):
            continue
        try:
            _answered(table, platform, result.round, result.kind)
        except Exception as error:  # a table that is gone by now, for one: its own stations tell of it
            why = error if isinstance(error, CleantailError) else type(error).__name__
            logger.warning("%s: what became of round %s is not told: %s", told.topic, result.round, why)


def _untold(table: TopicTable, now_ms: int, told: TopicOutcome) -> Iterator[Commit]:
    """Yields the commits of the run's rounds, newest first, that came after those that were told."""
    of_run = round_name(now_ms, 0).removesuffix("0")
    known = {result.snapshot_id for result in told.rounds.values()}
    since = takewhile(lambda commit: commit.snapshot_id not in known, history(table.load()))
    yield from (c for c in since if c.is_round and c.summary.get(ROUND, "").startswith(of_run))


def _result(table: TopicTable, platform: Platform, commit: Commit) -> RoundResult:
    """Returns the result of the round that made the commit, as the evidence has the round, and says there that it is
    published. Raises CleantailError where the evidence has another one."""
    checked = _answered(table, platform, commit.summary[ROUND], commit.summary[OPERATION], commit.snapshot_id)
    return result_of(table, checked, commit.snapshot_id)


def _answered(
    table: TopicTable, platform: Platform, named: str, kind: str, snapshot_id: int | None = None
) -> CheckedRound:
    """Returns the published round as the evidence has it, where it says afterwards that it is published. Raises
    CleantailError where the evidence has another one than that of this commit."""
    checked = recorded_round(kept_catalog(platform, os.environ), platform, table.topic, named, kind)
    published = published_as(table, checked)
    if published is None or snapshot_id not in (None, published):
        raise CleantailError("the evidence has another check of it")
    if not has_answer(table, platform, checked, PUBLISHED):
        append_answer(table, platform, checked, PUBLISHED)
    return checked


def _with(told: TopicOutcome, result: RoundResult) -> TopicOutcome:
    """Returns what was told with the result of a round that came after it."""
    nothing = TopicOutcome(told.topic)
    if result.kind == COMPACT:
        later = replace(nothing, compacted=result)
    elif result.kind == EXPIRE:
        later = replace(nothing, expired=result)
    else:
        later = replace(nothing, reconciled=result)
    return replace(later.after(told), ok=False, station=told.station, error=told.error, may_retry=True)

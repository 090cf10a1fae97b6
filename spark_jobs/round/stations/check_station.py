"""What an application of a DAG's round does after its own station: it goes on to the stations that need nothing else.

An application of its own costs more than what a small station does. So `compact` goes on to the check where its unit is
the whole round, and the application that has checked a round publishes what passed, where nobody has to be asked first.
Readers see nothing of a round before its check, here as elsewhere.

1. The units are read from the heads of the branches that compact has made, and checked (spark_jobs.round.check).
2. A round that waits for a person is left to the task `publish`. Any other is published.
3. What cannot be done here is left to the station's own task, which starts an application for it. That is so for any
   error: the work of the application's own station is done by then.
4. A try of a task after one that died past the commit finds the commit on `main` and the check in the evidence, and
   tells them.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from cleantail.errors import CleantailError, ConflictError, HeldError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.lake.recorded_rounds import recorded_round
from cleantail.log.round_state import COMPACT
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.checked.checked_round import CHECKED_ROUND_JSON, CheckedRound
from cleantail.rounds.checked.round_request import CheckRequest
from cleantail.rounds.checked.round_results import CHECK, PUBLICATION, ROUND_RESULT_JSON, RoundResult
from cleantail.rounds.checked.staged_units import STAGED_UNIT_JSON, UNIT, StagedUnit, require_one_round, staged_unit
from spark_jobs.round.check import check_round
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import published_before
from spark_jobs.round.run import Run
from spark_jobs.round.stations.answered_rounds import publish_unasked

logger = logging.getLogger("cleantail.stations")


@dataclass(frozen=True, slots=True)
class CheckedAndPublished:
    """Holds a round as it was checked. `publication`: what became of it, None where that is left to the task
    `publish`."""

    checked: CheckedRound
    publication: RoundResult | None = None

    @property
    def document(self) -> dict[str, Any]:
        """Returns it as the result of `check_quality`."""
        result = {"ok": self.checked.ok, **CHECKED_ROUND_JSON.plain(self.checked)}
        return result if self.publication is None else result | {PUBLICATION: ROUND_RESULT_JSON.plain(self.publication)}


def check_and_publish(run: Run, request: CheckRequest, publishes: bool) -> CheckedAndPublished:
    """Checks the round, and publishes it where it waits for nobody and the application `publishes`. Raises
    ConflictError where a branch is gone and no earlier try had checked the round."""
    try:
        units = [_staged(run, branch) for branch in request.branches]
    except ConflictError:
        if publishes and (earlier := _checked_before(run, request.round)) is not None:
            return earlier
        raise
    require_one_round(units, request.round)
    checked = check_round(run.table, run.platform, request.round, units)
    return CheckedAndPublished(checked, _published(run, checked) if publishes and not checked.holds else None)


def compact_and_check(run: Run, unit: WorkUnit, publishes: bool) -> dict[str, Any]:
    """Returns the result of `compact` for a unit that is its whole round, with that of `check_quality` in it, unless
    the check is left to that task. `publishes`: as in check_and_publish."""
    staged = compact_unit(run.table, run.platform, unit)
    try:
        done = check_and_publish(run, CheckRequest(staged.round, (staged.branch,)), publishes)
    except Exception as error:
        _leave_to("check_quality", staged.round, error)
        return _of_compact(staged)
    return _of_compact(staged) | {CHECK: done.document}


def told_again(run: Run, round_id: str) -> dict[str, Any]:
    """Returns what compact_and_check would have returned in an earlier try of the task, which has published the round.
    Raises HeldError where the evidence has no check of it."""
    done = _checked_before(run, round_id)
    if done is None or done.publication is None:
        raise HeldError(f"round {round_id} was published before, and the evidence does not say how it was checked")
    [unit] = done.checked.units
    return _of_compact(unit) | {CHECK: done.document}


def _of_compact(unit: StagedUnit) -> dict[str, Any]:
    return {"ok": True, **STAGED_UNIT_JSON.plain(unit)}


def _staged(run: Run, branch: str) -> StagedUnit:
    return staged_unit(run.table.summary_of(branch).get(UNIT), branch)


def _checked_before(run: Run, round_id: str) -> CheckedAndPublished | None:
    """Returns the round as an earlier try had checked it, and what that try had published; None where the evidence has
    no check of the round."""
    try:
        catalog = open_catalog(run.platform, os.environ)
        checked = recorded_round(catalog, run.platform, run.table.topic, round_id, COMPACT)
    except HeldError:
        return None
    logger.warning("round %s was checked by an earlier try of the task", round_id)
    return CheckedAndPublished(checked, published_before(run.table, run.platform, checked))


def _published(run: Run, checked: CheckedRound) -> RoundResult | None:
    """Publishes the round; None where that is left to the task `publish`, which finds a commit that was made."""
    try:
        return publish_unasked(run, checked)
    except Exception as error:
        _leave_to("publish", checked.round, error)
        return None


def _leave_to(task: str, round_id: str, error: Exception) -> None:
    """Logs why a task has to do its work in an application of its own. Of an error that nobody foresaw the log has the
    frames, and no text that may quote a record."""
    told = error if isinstance(error, CleantailError) else explained(error)
    if told is None:
        logger.error("a defect of Cleantail\n%s", stack_of(error))
    logger.warning("round %s is left to the task %s: %s", round_id, task, told or type(error).__name__)

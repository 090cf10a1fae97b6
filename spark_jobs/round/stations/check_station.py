"""The work of one application of a DAG's `check_quality`: it checks a staged round, and publishes what passed at once,
where nobody has to be asked first.

1. The units are read from the heads of the branches that the request names. A branch is gone where an earlier try of
   the task had published the round, and died before it could say so: then the evidence has the check.
2. The round is checked (spark_jobs.round.check).
3. A round that waits for a person is left to the task `publish`. Any other is published by the session that runs
   already: an application of its own would cost more than the commit. Readers see nothing of it before its check.
4. What cannot be published here is left to the task `publish` as well, which tries it again in an application of its
   own.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from cleantail.errors import CleantailError, ConflictError, HeldError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.recorded_rounds import recorded_round
from cleantail.log.round_state import COMPACT
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.checked.round_request import CheckRequest
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.checked.staged_units import UNIT, StagedUnit, require_one_round, staged_unit
from spark_jobs.round.check import check_round
from spark_jobs.round.publish import published_before
from spark_jobs.round.run import Run
from spark_jobs.round.stations.answered_rounds import publish_unasked

logger = logging.getLogger("cleantail.check")


@dataclass(frozen=True, slots=True)
class CheckedAndPublished:
    """Holds a round as it was checked. `publication`: what became of it, None where that is left to the task
    `publish`."""

    checked: CheckedRound
    publication: RoundResult | None = None


def check_and_publish(run: Run, request: CheckRequest, publishes: bool) -> CheckedAndPublished:
    """Does the work of the application. `publishes`: whether it may publish, which it does only where the checked round
    waits for nobody. Raises ConflictError where a branch is gone and no earlier try had checked the round."""
    try:
        units = [_staged(run, branch) for branch in request.branches]
    except ConflictError:
        if publishes and (earlier := _of_earlier_try(run, request)) is not None:
            return earlier
        raise
    require_one_round(units, request.round)
    checked = check_round(run.table, run.platform, request.round, units)
    return CheckedAndPublished(checked, _published(run, checked) if publishes and not checked.holds else None)


def _staged(run: Run, branch: str) -> StagedUnit:
    return staged_unit(run.table.summary_of(branch).get(UNIT), branch)


def _of_earlier_try(run: Run, request: CheckRequest) -> CheckedAndPublished | None:
    """Returns the round as an earlier try of the task had checked it, and what that try had published; None where the
    evidence has no check of the round."""
    catalog = open_catalog(run.platform, os.environ)
    try:
        checked = recorded_round(catalog, run.platform, run.table.topic, request.round, COMPACT)
    except HeldError:
        return None
    logger.warning("round %s was checked by an earlier try of the task", request.round)
    return CheckedAndPublished(checked, published_before(run.table, run.platform, checked))


def _published(run: Run, checked: CheckedRound) -> RoundResult | None:
    """Publishes the round; None where the task `publish` is to try it, because of an error that the log names."""
    try:
        return publish_unasked(run, checked)
    except CleantailError as error:
        logger.warning("round %s is left to the task publish: %s", checked.round, error)
        return None

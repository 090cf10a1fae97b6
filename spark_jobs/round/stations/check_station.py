"""The work of one application of a DAG's `check_quality`: it checks a staged round, and publishes what passed at once,
where nobody has to be asked first.

1. The units are read from the heads of the branches that the request names. A branch is gone where an earlier try of
   the task had published the round, and died before it could say so: then the evidence has the check.
2. The round is checked (spark_jobs.round.check).
3. A round that waits for a person, or that a person has rejected, is left to the task `publish`. Any other is published
   by the session that runs already: an application of its own would cost more than the commit. Readers see nothing of
   it before its check.
4. What cannot be published here is left to the task `publish` as well, whatever the error: the check is done by then.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from cleantail.errors import CleantailError, ConflictError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.lake.recorded_rounds import evidence_of_round
from cleantail.log.round_state import COMPACT
from cleantail.rounds.approval import decided, read_answer
from cleantail.rounds.checked_round import UNIT, CheckedRound, CheckRequest, StagedUnit, require_one_round, staged_unit
from cleantail.rounds.recorded_checks import last_compaction
from spark_jobs.round.check import check_round
from spark_jobs.round.run import Run
from spark_jobs.round.stations.answered_rounds import publish_unasked

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.check")


def check_and_publish(run: Run, request: CheckRequest, publishes: bool) -> CheckedRound:
    """Checks the round, and publishes it where nobody is asked about it and the application `publishes`. What became of
    it the evidence and the table say. Raises ConflictError where a branch is gone and no earlier try had checked it."""
    try:
        units = [_staged(run, branch) for branch in request.branches]
    except ConflictError:
        if publishes and (earlier := _checked_before(run, request)) is not None:
            return earlier
        raise
    require_one_round(units, request.round)
    checked = check_round(run.table, run.platform, request.round, units)
    if publishes:
        _publish(run, checked)
    return checked


def _staged(run: Run, branch: str) -> StagedUnit:
    return staged_unit(run.table.summary_of(branch).get(UNIT), branch)


def _checked_before(run: Run, request: CheckRequest) -> CheckedRound | None:
    """Returns the round as an earlier try of the task had checked it on these branches; None where the evidence has no
    such check. What is left of its publication is left to the task `publish`."""
    topic = run.table.topic
    evidence = evidence_of_round(_catalog(run), run.platform, topic.topic, request.round, COMPACT)
    last = last_compaction(topic, evidence)
    if last is None or {unit.branch for unit in last.checked.units} != set(request.branches):
        return None
    logger.warning("round %s was checked by an earlier try of the task", request.round)
    return last.checked


def _publish(run: Run, checked: CheckedRound) -> None:
    """Publishes the round, or leaves that to the task `publish`, which finds a commit that was made."""
    try:
        if decided(run.table.topic, checked, read_answer(_catalog(run), run.table.topic, checked.kind)) is None:
            publish_unasked(run, checked)
            return
        why = "a person has answered"
    except Exception as error:
        # of what nobody foresaw the log has the frames, and no text that may quote a record
        cause = error if isinstance(error, CleantailError) else explained(error)
        why = str(cause or f"a defect of Cleantail: {type(error).__name__}\n{stack_of(error)}")
    logger.warning("round %s is left to the task publish: %s", checked.round, why)


def _catalog(run: Run) -> Catalog:
    return open_catalog(run.platform, os.environ)

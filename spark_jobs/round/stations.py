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
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConflictError, HeldError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.lake.recorded_rounds import AnsweredRound, answered_round, evidence_of_round
from cleantail.log.round_state import COMPACT
from cleantail.rounds.approval import Rejection, decided, held_message, read_answer
from cleantail.rounds.checked_round import (
    UNIT,
    CheckedRound,
    CheckRequest,
    RoundResult,
    StagedUnit,
    require_one_round,
    staged_unit,
)
from cleantail.rounds.recorded_checks import RoundReference, last_compaction, require_open
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.judge import preload
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import check_round
from spark_jobs.round.publish import publish_approved, published_as
from spark_jobs.round.run import Run, kind_of, run_round, write_back

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
    checked = check_round(run.table, request.round, units)
    if publishes:
        _publish(run, checked)
    return checked


def _staged(run: Run, branch: str) -> StagedUnit:
    return staged_unit(run.table.summary_of(branch).get(UNIT), branch)


def _checked_before(run: Run, request: CheckRequest) -> CheckedRound | None:
    """Returns the round as an earlier try of the task had checked it on these branches; None where the evidence has no
    such check. What is left of its publication is left to the task `publish`."""
    topic = run.table.topic
    evidence = evidence_of_round(_catalog(run), topic.platform, topic.topic, request.round, COMPACT)
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
    return open_catalog(run.table.platform)


def publish_recorded(
    session: Callable[[], SparkSession], topic: Topic, reference: RoundReference, kind: str
) -> RoundResult:
    """Publishes the round that a task names, as the evidence has it and the answer to it says. Raises HeldError before
    the session is there as answered_round does."""
    answered = answered_round(topic, reference, kind)
    if _may_retain(topic, answered):
        preload()
    return publish_answered(Run(TopicTable.of(session(), topic)), answered)


def _may_retain(topic: Topic, answered: AnsweredRound) -> bool:
    """Returns whether logs that are held back may get a round of their own, with a check, which moves their log
    start."""
    nobody_asked, checked = answered.answer is None, answered.checked
    return nobody_asked and checked.kind == COMPACT and bool(checked.red) and topic.config.deletes


def publish_answered(run: Run, answered: AnsweredRound) -> RoundResult:
    """Drops the round where the answer is no. Else publishes it, unless an earlier try of the task has done so: what a
    person approved exactly as they saw it, what nobody was asked about also after it had to be made anew."""
    checked = answered.checked
    if isinstance(answered.answer, Rejection):
        return replace(set_aside(run.table, checked, answered.answer), red_before=tuple(checked.red))
    if answered.publication is not None and not answered.publication.published:
        # nothing passed, and what failed rests: to make it anew would count a second failure
        return _with_upkeep(run, checked, answered.publication)
    if published_as(run.table, checked) is None:
        require_open(checked, answered.evidence)
    if answered.answer is None:
        return publish_unasked(run, checked)
    return _with_upkeep(run, checked, publish_approved(run.table, checked, answered.answer))


def publish_unasked(run: Run, checked: CheckedRound) -> RoundResult:
    """Publishes a round that nobody has to be asked about, as publish_or_start_over does."""
    return _with_upkeep(run, checked, publish_or_start_over(run, checked))


def _with_upkeep(run: Run, checked: CheckedRound, result: RoundResult) -> RoundResult:
    """Writes back the checkpoints that lie outside their log, and returns the result with what the check had held
    back."""
    write_back(run.table, evaluate_topic(run.table.topic, now_ms=checked.now_ms))
    return replace(result, red_before=tuple(checked.red))


def publish_or_start_over(run: Run, checked: CheckedRound) -> RoundResult:
    """Publishes; where the table changed under the round, the same logs are made and checked anew. Raises HeldError,
    with the round dropped, when it then waits for approval."""
    result = run_round(run, kind_of(run.table, checked), checked)
    if result.checked is None:
        return result
    why = held_message(checked.topic, result.checked.holds)
    set_aside(run.table, result.checked, None, why)
    raise HeldError(f"{why}. It was dropped, and the next run asks")

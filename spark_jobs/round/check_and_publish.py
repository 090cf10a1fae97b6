"""The Spark work of a DAG's tasks `check_quality` and `publish`.

`check_quality` checks a staged round, and publishes it at once if no approval is needed:
1. It reads the units from the heads of the branches in the request. A branch is missing if an earlier attempt of the
   task published the round and died before its report. In that case the evidence has the check.
2. It checks the round (spark_jobs.round.check).
3. It publishes the round in the running session, because another application costs more than the commit. A round with a
   request for approval is left to the task `publish`.
4. After any error of the publish, the task `publish` tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConflictError, HeldError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.foreign_errors import explained, stack_of
from cleantail.lake.own_namespace import read_answer
from cleantail.lake.recorded_rounds import AnsweredRound, answered_round, evidence_of_round
from cleantail.log.round_state import COMPACT
from cleantail.rounds.approval import Rejection, decided, held_message
from cleantail.rounds.checked_round import (
    UNIT,
    CheckedRound,
    CheckRequest,
    RoundResult,
    require_one_round,
    staged_unit,
)
from cleantail.rounds.recorded_checks import RoundReference, last_compaction, require_open
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.gx_validation import preload
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import check_round
from spark_jobs.round.publish import publish_approved, published_as
from spark_jobs.round.run import Run, kind_of, run_round, write_back

logger = logging.getLogger("cleantail.check")


def check_and_publish(run: Run, request: CheckRequest, publishes: bool) -> CheckedRound:
    """Check the round. Publish it if the application `publishes` and no approval is needed; evidence and table have the
    outcome. Raises ConflictError if a branch was dropped before any check."""
    try:
        units = [staged_unit(run.table.summary_of(branch).get(UNIT), branch) for branch in request.branches]
    except ConflictError:
        if publishes and (earlier := _checked_before(run, request)) is not None:
            return earlier
        raise
    require_one_round(units, request.round)
    checked = check_round(run.table, request.round, units)
    if publishes:
        _publish(run, checked)
    return checked


def _checked_before(run: Run, request: CheckRequest) -> CheckedRound | None:
    """Return the round that an earlier attempt of the task checked on these branches, None without evidence. The task
    `publish` completes its publication."""
    topic = run.table.topic
    evidence = evidence_of_round(open_catalog(topic.platform), topic, request.round, COMPACT)
    last = last_compaction(topic, evidence)
    if last is None or {unit.branch for unit in last.checked.units} != set(request.branches):
        return None
    logger.warning("an earlier attempt of the task checked round %s", request.round)
    return last.checked


def _publish(run: Run, checked: CheckedRound) -> None:
    """Publish the round. Only logs an error: the task `publish` tries again, and detects a commit of this attempt."""
    topic = run.table.topic
    try:
        if decided(topic, checked, read_answer(open_catalog(topic.platform), topic, checked.kind)) is None:
            publish_unasked(run, checked)
            return
        why = "a person has answered"
    except Exception as error:
        # Log only the stack frames of an unexpected error: its message may contain record data.
        cause = error if isinstance(error, CleantailError) else explained(error)
        why = str(cause or f"a defect of Cleantail: {type(error).__name__}\n{stack_of(error)}")
    logger.warning("round %s is left to the task publish: %s", checked.round, why)


def publish_recorded(
    session: Callable[[], SparkSession], topic: Topic, reference: RoundReference, kind: str
) -> RoundResult:
    """Publish or reject the referenced round, by its evidence and its answer. Raises HeldError as answered_round does,
    before a session starts."""
    answered = answered_round(topic, reference, kind)
    checked = answered.checked
    if answered.answer is None and checked.kind == COMPACT and checked.red and topic.config.deletes:
        preload()  # blocked logs may get a second round for retention, with a check
    return publish_answered(Run(TopicTable.of(session(), topic)), answered)


def publish_answered(run: Run, answered: AnsweredRound) -> RoundResult:
    """Drop a rejected round. Publish any other round exactly as shown, unless an earlier attempt of the task did. A
    round that needs no approval may be made again first."""
    checked = answered.checked
    if isinstance(answered.answer, Rejection):
        return replace(set_aside(run.table, checked, answered.answer), red_before=tuple(checked.red))
    if answered.publication is not None and not answered.publication.published:
        # no log passed, and a second round would count each failure twice
        return _with_upkeep(run, checked, answered.publication)
    if published_as(run.table, checked) is None:
        require_open(checked, answered.evidence)
    if answered.answer is None:
        return publish_unasked(run, checked)
    return _with_upkeep(run, checked, publish_approved(run.table, checked, answered.answer))


def publish_unasked(run: Run, checked: CheckedRound) -> RoundResult:
    """Publish a round that needs no approval, as publish_or_start_over does."""
    return _with_upkeep(run, checked, publish_or_start_over(run, checked))


def _with_upkeep(run: Run, checked: CheckedRound, result: RoundResult) -> RoundResult:
    """Correct checkpoints outside their log, and add the logs that failed the check to the result."""
    write_back(run.table, evaluate_topic(run.table.topic, now_ms=checked.now_ms))
    return replace(result, red_before=tuple(checked.red))


def publish_or_start_over(run: Run, checked: CheckedRound) -> RoundResult:
    """Publish the round. If the table changed meanwhile, make and check a round of the same logs again. Raises
    HeldError, with the round dropped, if the new round needs approval."""
    result = run_round(run, kind_of(run.table, checked), checked)
    if result.checked is None:
        return result
    why = held_message(checked.topic, result.checked.holds)
    set_aside(run.table, result.checked, None, why)
    raise HeldError(f"{why}. It was dropped; the next run requests approval")

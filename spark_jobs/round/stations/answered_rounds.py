"""Publish a round that an earlier task has checked, as the answer to it says: at all, as it was shown, or anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.lake.recorded_rounds import AnsweredRound, answered_round
from cleantail.lake.runs.evaluate import evaluate_topic
from cleantail.log.round_state import COMPACT
from cleantail.rounds.approval import Rejection, held_message
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.recorded_checks import RoundReference, require_open
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.judge import preload
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.publish import publish_approved
from spark_jobs.round.published_rounds import published_as
from spark_jobs.round.round_kinds import kind_of, write_back
from spark_jobs.round.run import Run, run_round


def publish_recorded(
    session: Callable[[], SparkSession], topic: Topic, platform: Platform, reference: RoundReference, kind: str
) -> RoundResult:
    """Publishes the round that a task names, as the evidence has it and the answer to it says. Raises HeldError before
    the session is there as answered_round does."""
    answered = answered_round(topic, platform, reference, kind)
    if _may_retain(topic, answered):
        preload()
    return publish_answered(Run(TopicTable.of(session(), topic, platform), platform), answered)


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
        return replace(set_aside(run.table, run.platform, checked, answered.answer), red_before=tuple(checked.red))
    if answered.publication is not None and not answered.publication.published:
        # nothing passed, and what failed rests: to make it anew would count a second failure
        return _with_upkeep(run, checked, answered.publication)
    if published_as(run.table, checked) is None:
        require_open(checked, answered.evidence)
    if answered.answer is None:
        return publish_unasked(run, checked)
    return _with_upkeep(run, checked, publish_approved(run.table, run.platform, checked, answered.answer))


def publish_unasked(run: Run, checked: CheckedRound) -> RoundResult:
    """Publishes a round that nobody has to be asked about, as publish_or_start_over does."""
    return _with_upkeep(run, checked, publish_or_start_over(run, checked))


def _with_upkeep(run: Run, checked: CheckedRound, result: RoundResult) -> RoundResult:
    """Writes back the checkpoints that lie outside their log, and returns the result with what the check had held
    back."""
    write_back(run.table, evaluate_topic(run.table.topic, run.platform, now_ms=checked.now_ms))
    return replace(result, red_before=tuple(checked.red))


def publish_or_start_over(run: Run, checked: CheckedRound) -> RoundResult:
    """Publishes; where the table changed under the round, the same logs are made and checked anew. Raises HeldError,
    with the round dropped, when it then waits for approval."""
    result = run_round(run, kind_of(run.table, run.platform, checked), checked)
    if result.checked is None:
        return result
    why = held_message(checked.topic, result.checked.holds)
    set_aside(run.table, run.platform, result.checked, None, why)
    raise HeldError(f"{why}. It was dropped, and the next run asks")

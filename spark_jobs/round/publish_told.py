"""Publish a round that an earlier task has checked, as the answer to it says: at all, as it was shown, or anew."""

from __future__ import annotations

from typing import Any

from cleantail.config.platform import Platform
from cleantail.lake.recorded_rounds import ToldRound
from cleantail.lake.runs.evaluate import evaluate_topic
from cleantail.rounds.approval import Rejection
from cleantail.rounds.checked.recorded_checks import require_open
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.publish import publish_approved
from spark_jobs.round.published_rounds import published_as
from spark_jobs.round.run import publish_or_start_over, write_back


def publish_told(table: TopicTable, platform: Platform, told: ToldRound) -> dict[str, Any]:
    """Drops the round where the answer is no. Else publishes it, unless an earlier try of the task has done so: what a
    person approved exactly as they saw it, what nobody was asked about also after it had to be made anew."""
    checked = told.checked
    if isinstance(told.answer, Rejection):
        return set_aside(table, platform, checked, told.answer)
    if published_as(table, checked) is None:
        require_open(checked, told.rows)
    if told.answer is None:
        published = publish_or_start_over(table, platform, checked)
    else:
        published = publish_approved(table, platform, checked, told.answer)
    write_back(table, evaluate_topic(table.topic, platform, now_ms=checked["units"][0]["now_ms"]))
    return published | {"red_before": [v["partition"] for v in checked["verdicts"] if not v["passed"]]}

"""Says which topics failed in a red run of a group, and where: from what the run planned, and what its packs reported.
Pure.

What is read here comes from Airflow's database, and is believed for this alone: what a person is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cleantail.errors import TableError
from cleantail.rounds import pack_results
from cleantail.rounds.pack_results import PACK_RESULT_JSON, TopicOutcome
from cleantail.watch.dag_state import FailedTask

EVALUATE, RUN_PACK, ROLLBACK, CHECK_QUALITY = "evaluate", "run_pack", "rollback", "check_quality"
"""Tasks of a group's DAG; the stations have the names of the parts of a topic's work."""
SHOWN_AT = {pack_results.EVALUATE: pack_results.COMPACT}
"""Part of a topic's work -> the station that shows where it ended, where that has another name."""
CHECKED_AT = {pack_results.COMPACT: CHECK_QUALITY}
"""Part of a topic's work -> the station that shows its red checks, where that has another name."""
CRASHED = "the Spark application of its pack ended before its turn"
REASON_CHARS = 300
EVERY_TOPIC = ""
"""No topic has this name."""


def failures_by_topic(
    plan: Any, results: Mapping[int, Any], failed: Collection[tuple[str, int]], only: str = ""
) -> dict[str, tuple[FailedTask, ...]]:
    """Returns, of the topics that failed, the tasks that show it; what concerns all topics alike is under EVERY_TOPIC.

    `plan`: the run's GroupPlan as plain JSON, None where it made none; `results`: number of a pack -> its PackResult;
    `failed`: (task, map index) of the tasks that are red; `only`: the topic that the run was triggered for.
    """
    by_topic: dict[str, tuple[FailedTask, ...]] = {}
    skipped = _skipped(plan)
    if (EVALUATE, -1) in failed:
        by_topic[only or EVERY_TOPIC] = (FailedTask(EVALUATE),)
    elif only and (ROLLBACK, -1) in failed:
        by_topic[only] = (FailedTask(ROLLBACK),)
    for number, pack in enumerate(_packs(plan)):
        errors, crashed = pack.get("errors") or {}, (RUN_PACK, number) in failed
        outcomes = _outcomes(results.get(number))
        for topic in pack.get("topics") or ():
            if topic in errors:
                tasks = [_task(RUN_PACK, number, str(errors[topic]))]
            elif topic in outcomes:
                tasks = _of_outcome(outcomes[topic], number, skipped)
            else:
                tasks = [_task(RUN_PACK, number, CRASHED)] if crashed else []
            if tasks:
                by_topic[str(topic)] = tuple(tasks)
    return by_topic


def _packs(plan: Any) -> list[Mapping[str, Any]]:
    packs = plan.get("packs") if isinstance(plan, dict) else None
    return [pack for pack in packs if isinstance(pack, dict)] if isinstance(packs, list) else []


def _outcomes(result: Any) -> dict[str, TopicOutcome]:
    if result is None:
        return {}
    try:
        return {outcome.topic: outcome for outcome in PACK_RESULT_JSON.of_plain(result, "a pack's result").topics}
    except TableError:
        return {}


def _skipped(plan: Any) -> Collection[str]:
    """Returns the stations that had nothing to do when the run was planned: `run_pack` shows what failed there."""
    named = plan.get("skipped") if isinstance(plan, dict) else None
    return [str(task) for task in named] if isinstance(named, list | tuple) else []


def _of_outcome(outcome: TopicOutcome, number: int, skipped: Collection[str]) -> list[FailedTask]:
    reasons: dict[str, str] = {}
    if outcome.error:
        reasons[SHOWN_AT.get(outcome.station, outcome.station)] = outcome.error
    for part, result in outcome.rounds.items():
        if any(verdict.failed for verdict in result.verdicts):
            reasons.setdefault(CHECKED_AT.get(part, part), "")
    return [_task(RUN_PACK if task in skipped else task, number, reason) for task, reason in reasons.items()]


def _task(task_id: str, number: int, reason: str) -> FailedTask:
    """Returns a task without the pack's label, which names other topics."""
    lines = reason.strip().splitlines()
    return FailedTask(task_id, number, f"pack {number}", lines[0][:REASON_CHARS] if lines else "")

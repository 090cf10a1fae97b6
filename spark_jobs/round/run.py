"""A whole run in one Spark application: compact, check, publish, expire, one after another.

The command line runs a whole topic this way; publish and expire_tombstones use it to start over after a conflict.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError, HeldError
from cleantail.human import counted
from cleantail.lake.runs.evaluate import RunPlan, evaluate_topic
from cleantail.log.partition_state import PROPERTY_PARTITION
from cleantail.rounds.checked.round_results import NOTHING, joined
from cleantail.rounds.past_rounds import WITHDRAWN
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import check_round
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.expire import NONE_FRESH, expire_unit, plan_expiry
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_round

logger = logging.getLogger("cleantail.rounds")

ATTEMPTS = 8
"""So often a round starts over after a conflict before it gives up with exit code 3."""
Progress = Callable[[str], None]


def run_plan(
    table: TopicTable, platform: Platform, plan: RunPlan, progress: Progress, approved_by: str | None = None
) -> dict[str, Any]:
    """A whole run: the plan's units, then the tombstones that are due, also those of logs without new data.

    A round that waits for approval is dropped, unless `approved_by` says who has given it for whatever this run finds.
    A person calls it, so logs in quarantine are tried at once, but not one that this very run has held back.
    """
    write_back(table, plan)
    compacted = _dropped_if_held(table, platform, compact_round(table, platform, plan, progress, approved_by))
    sweep = [p for p in plan.sweep if p not in compacted["held_back"]]
    expired = expire_round(
        table, platform, plan.now_ms, sweep, progress, plan.fresh_from, approved_by, retry_quarantined=True
    )
    expired = _dropped_if_held(table, platform, expired)
    table.drop_stale_branches()
    return {"ok": compacted["ok"] and expired["ok"], "compacted": compacted, "expired": expired}


def _dropped_if_held(table: TopicTable, platform: Platform, result: dict[str, Any]) -> dict[str, Any]:
    if checked := result.pop("checked", None):
        set_aside(table, platform, checked, None, "it waits for approval, and nobody could be asked: see --approve")
    return result


def _held(checked: dict[str, Any]) -> dict[str, Any]:
    """The result of a round that waits for approval: its branches stay, and `checked` is what may be published."""
    red = sorted(v["partition"] for v in checked["verdicts"] if not v["passed"])
    return NOTHING | _numbers(checked) | {"ok": checked["ok"], "held_back": red, "checked": checked}


def write_back(table: TopicTable, plan: RunPlan) -> None:
    """Checkpoints that lay outside their log, of logs that no unit touches (semantics.md 1.2)."""
    if plan.repairs:
        table.set_properties({f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in plan.repairs.items()})


def compact_round(
    table: TopicTable, platform: Platform, plan: RunPlan, progress: Progress, approved_by: str | None = None
) -> dict[str, Any]:
    """Compacts, checks and publishes a plan's units. Returns publish's result with the check's numbers.

    Where the memory budget ends a round early (1.4.1), further rounds follow up to the ends that were planned.
    """
    result = dict(NOTHING)
    ends = {w.partition: w.end_offset for u in plan.units for w in u.partitions}
    while plan.units:
        checked = _compact_and_check(table, platform, plan, progress)
        if checked["holds"] and approved_by is None:
            return joined(result, _held(checked))
        progress("publishing")
        published = publish_or_start_over(table, platform, checked, approved_by)
        result = joined(result, published)
        unfinished = {p for p, end in published["ends"].items() if end < ends[p]}
        if not unfinished:
            break
        plan = _again(table, platform, plan.now_ms, unfinished)
    return result


def _compact_and_check(table: TopicTable, platform: Platform, plan: RunPlan, progress: Progress) -> dict[str, Any]:
    done = []
    for unit in plan.units:
        progress(f"compacting {counted(len(unit.partitions), 'partition')} (unit {unit.unit + 1} of {len(plan.units)})")
        done.append(compact_unit(table, platform, unit))
    progress("checking")
    return check_round(table, platform, plan.round, done)


def publish_or_start_over(
    table: TopicTable, platform: Platform, checked: dict[str, Any], approved_by: str | None = None
) -> dict[str, Any]:
    """Publishes; where the table changed under the round, the same logs are compacted and checked anew. Raises
    HeldError, with the round dropped, when it then waits for approval."""
    partitions = {v["partition"] for v in checked["verdicts"]}
    now_ms = checked["units"][0]["now_ms"]
    for attempt in range(1, ATTEMPTS + 1):
        try:
            published = publish_round(table, platform, checked, approved_by) | _numbers(checked)
            break
        except HeldError as e:
            set_aside(table, platform, checked, None, str(e))
            raise HeldError(f"{e}. It was dropped, and the next run asks") from None
        except ConflictError as e:
            withdraw(table, platform, checked, e)
            if attempt == ATTEMPTS:
                raise
            logger.warning("round %s starts over (%d of %d): %s", checked["round"], attempt, ATTEMPTS, e)
            time.sleep(random.uniform(0.1, 0.5) * attempt)
        plan = _again(table, platform, now_ms, partitions)
        if not plan.units:
            return dict(NOTHING)
        checked = _compact_and_check(table, platform, plan, lambda _: None)
    return published | {"retained": retain_held_back(table, platform, now_ms, published["held_back"])}


def retain_held_back(table: TopicTable, platform: Platform, now_ms: int, held_back: Collection[int]) -> list[int]:
    """A quarantine never stops retention: what is past it goes from logs that were held back, by a round of its own.

    Returns the logs whose start has moved. A conflict leaves it to the next run, and so does a wait for approval.
    """
    if not (held_back and table.topic.deletes):
        return []
    plan = evaluate_topic(table.topic, platform, now_ms=now_ms)
    due = {w.partition for u in plan.units for w in u.partitions if w.only_retention and w.partition in held_back}
    plan = plan.restricted_to(due)
    if not plan.units:
        return []
    checked = _compact_and_check(table, platform, plan, lambda _: None)
    try:
        retained: list[int] = publish_round(table, platform, checked)["published"]
    except (ConflictError, HeldError) as e:
        withdraw(table, platform, checked, e)
        logger.warning("retention of %s is left to the next run: %s", sorted(due), e)
        return []
    return retained


def _again(table: TopicTable, platform: Platform, now_ms: int, partitions: Collection[int]) -> RunPlan:
    """The plan for the same logs on the table as it is now: they were due, so the ratio is not asked again."""
    plan = evaluate_topic(table.topic, platform, now_ms=now_ms, force=True)
    return plan.restricted_to(partitions)


def expire_round(
    table: TopicTable,
    platform: Platform,
    now_ms: int,
    partitions: Collection[int],
    progress: Progress,
    fresh_from: Mapping[int, int] = NONE_FRESH,
    approved_by: str | None = None,
    retry_quarantined: bool = False,
) -> dict[str, Any]:
    """Expires, checks and publishes; starts over after a conflict. One that waits for approval is not published.
    `retry_quarantined`: without waiting for the pause of a quarantine to end."""
    for attempt in range(1, ATTEMPTS + 1):
        if not partitions:
            return NOTHING | {"expired": 0}
        plan, unit = plan_expiry(table, platform, now_ms, partitions, fresh_from, retry_quarantined)
        write_back(table, plan)
        if not unit.partitions:
            return NOTHING | {"expired": 0}
        progress("expiring tombstones")
        done = expire_unit(table, plan, unit)
        progress("checking the expiry")
        checked = check_round(table, platform, plan.round, [done], expiring=True)
        if checked["holds"] and approved_by is None:
            return _held(checked) | {"expired": 0}
        try:
            published = publish_round(table, platform, checked, approved_by)
        except ConflictError as e:
            withdraw(table, platform, checked, e)
            if attempt == ATTEMPTS:
                raise
            logger.warning("expiry %s starts over (%d of %d): %s", plan.round, attempt, ATTEMPTS, e)
            continue
        expired = sum(done["counts"]["deleted"]["expired"].get(str(p), 0) for p in published["published"])
        return published | _numbers(checked) | {"expired": expired}
    raise AssertionError("unreachable: the last attempt raises")


def _numbers(checked: dict[str, Any]) -> dict[str, Any]:
    names = ("verdicts", "measures", "checks_passed", "checks_total", "data_docs", "holds", "sample")
    return {name: checked[name] for name in names}


def withdraw(table: TopicTable, platform: Platform, checked: dict[str, Any], why: Exception) -> None:
    """A round that is given up: nothing of it was published, and the state of no log changes."""
    if not has_answer(table, platform, checked, WITHDRAWN):
        append_answer(table, platform, checked, WITHDRAWN, str(why))
    table.drop_branches(unit["branch"] for unit in checked["units"])

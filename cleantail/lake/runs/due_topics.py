"""Says what a run has to do with one topic of many: how much it reads and how urgent it is, from the topic's own
plan."""

from __future__ import annotations

from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.policy.packs import DueTopic


def due_topic(
    plan: RunPlan, new_bytes: int | None, left_since_ms: int | None = None, converts: bool = False
) -> DueTopic | None:
    """Returns what is due, None where nothing is. `new_bytes`: what its source has and its table has not, None where
    that is nothing; `left_since_ms`: since when runs have left the topic over (Unix ms); `converts`: whether deletes by
    values are to be converted, for which its table is read whole."""
    upkeep = plan.repairs or plan.reclaim.due or plan.reconcile.due
    if not (plan.due or upkeep or new_bytes is not None):
        return None
    chosen = {work.partition for unit in plan.units for work in unit.partitions}
    due = [decision for decision in plan.decisions if decision.partition in chosen]
    return DueTopic(
        topic=plan.topic,
        read_bytes=_read_bytes(plan, converts) + (new_bytes or 0),
        overdue_ms=max((max(decision.overdue_ms, 0) for decision in due), default=0),
        dirty_ratio=max((decision.dirty_ratio for decision in due), default=0.0),
        left_since_ms=left_since_ms,
    )


def _read_bytes(plan: RunPlan, converts: bool) -> int:
    """Returns what the stations of the topic read of its table, each for itself and at most: rounds up to where they
    end, expiries the logs of which tombstones go, reclaims the files that they rewrite, reconciliations and conversions
    all of it."""
    compacted = sum(work.read_bytes for unit in plan.units for work in unit.partitions)
    expired = sum(log.total_bytes for log in plan.logs if log.partition in plan.sweep)
    rewritten = sum(file.live_bytes for group in plan.reclaim.groups for file in group)
    whole = sum(log.total_bytes for log in plan.logs)
    return compacted + expired + rewritten + whole * (plan.reconcile.due + converts)

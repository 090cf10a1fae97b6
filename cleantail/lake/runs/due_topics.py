"""Says what a run has to do with one topic of many: how much it reads and how urgent it is, from the topic's own plan.

What is read is reckoned from metadata, at most, before anything is ingested:

1. An ingestion reads what is new, and a round may read that again.
2. A round reads its log from the log start. With what is new, a log may become due that is not yet: where the dirty
   ratio would be above its minimum if all of it came into this log, or where a record may be overdue that nobody has
   seen.
3. An expiry reads the logs of which tombstones go, a reclaim the files that it rewrites, and a reconciliation or a
   conversion the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.log_state import LogState
from cleantail.log.work_units import DueTopic


@dataclass(frozen=True, slots=True)
class NewInput:
    """Says what a run brings into the table before its rounds. `bytes`: what its source has and its table has not, None
    where that is nothing; `converts`: whether deletes by values are converted."""

    bytes: int | None = None
    converts: bool = False


def due_topic(
    plan: RunPlan, new: NewInput, configs: KafkaConfigs, left_since_ms: int | None = None, force: bool = False
) -> DueTopic | None:
    """Returns what is due, None where nothing is. `left_since_ms`: since when runs have left the topic over (Unix ms);
    `force`: whether a person asks for what is not due by ratio or lag."""
    upkeep = plan.repairs or plan.reclaim.due or plan.reconcile.due
    if not (plan.due or upkeep or new.bytes is not None):
        return None
    chosen = {work.partition for unit in plan.units for work in unit.partitions}
    due = [decision for decision in plan.decisions if decision.partition in chosen]
    return DueTopic(
        topic=plan.topic,
        read_bytes=_read_bytes(plan, new, configs, force),
        overdue_ms=max((max(decision.overdue_ms, 0) for decision in due), default=0),
        dirty_ratio=max((decision.dirty_ratio for decision in due), default=0.0),
        left_since_ms=left_since_ms,
    )


def _read_bytes(plan: RunPlan, new: NewInput, configs: KafkaConfigs, force: bool) -> int:
    """Returns what the stations of the topic read, by the rules of the module docstring."""
    new_bytes = new.bytes or 0
    planned = {work.partition: work.read_bytes for unit in plan.units for work in unit.partitions}
    may_follow = {log.partition for log in plan.logs if new_bytes and (force or _may_be_due(log, new_bytes, configs))}
    of_rounds = sum(
        max(planned.get(log.partition, 0), log.total_bytes * (log.partition in may_follow)) for log in plan.logs
    )
    of_expiries = sum(log.total_bytes for log in plan.logs if log.partition in plan.sweep)
    of_reclaim = sum(file.live_bytes for group in plan.reclaim.groups for file in group)
    whole = sum(log.total_bytes for log in plan.logs)
    return 2 * new_bytes + of_rounds + of_expiries + of_reclaim + whole * (plan.reconcile.due + new.converts)


def _may_be_due(log: LogState, new_bytes: int, configs: KafkaConfigs) -> bool:
    """Returns whether a log may be compacted once this much has come into it."""
    dirty = log.cleanable_bytes + log.uncleanable_bytes + new_bytes
    above = dirty > configs.min_cleanable_dirty_ratio * (log.clean_bytes + dirty)
    return configs.compacts and (above or configs.max_compaction_lag_ms < LONG_MAX)

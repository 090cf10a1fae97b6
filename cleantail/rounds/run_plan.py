"""The plan of a run: its work on one topic, with reasons.

A run follows its RunPlan. `evaluate` writes the plan as an XCom, and the later tasks read it. EvaluatedTopic adds the
facts behind the plan, for the process that evaluated the topic: states of logs, decisions, files.

The plan has an upper bound of the bytes that a run reads of one topic. It is estimated from metadata before the
ingestion:

1. An ingestion reads new input, and a round may read that input again.
2. A round reads its log from the log start. New input may make another log due, for two reasons. With all new input in
   that log, its dirty ratio would exceed the minimum. Or an unread record may be overdue.
3. An expiry reads the logs that lose tombstones, a reclaim the files that it rewrites, and a reconciliation or a
   conversion the whole table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cleantail.codec import Codec
from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.due_work import NO_SOURCE, Retention, UpkeepDecision
from cleantail.log.horizons import Reader, ReaderHold
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import PartitionState
from cleantail.log.segments import DataFile
from cleantail.log.topic_packs import DueTopic
from cleantail.log.triggers import Decision
from cleantail.log.work_units import UNIT_BYTES, PartitionWork, WorkUnit, pack
from cleantail.rounds.checked_round import ExpiryRequest

Group = Sequence[DataFile]
"""Neighbouring files of one log that become one file."""


@dataclass(frozen=True, slots=True)
class ReclaimPlan(UpkeepDecision):
    """The work of a reclaim (cleantail.lake.reclaim_plan). `groups`: each becomes one file, in offset order.
    `expired_snapshots`: number past retention. `branches`: branches of failed rounds past retention."""

    groups: tuple[tuple[DataFile, ...], ...] = ()
    expired_snapshots: int = 0
    branches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The work of a run on one topic. It has only numbers and Cleantail's own texts, which are safe in XCom.

    `now_ms`: the clock of the run (Unix ms). `records`: the number of records in the table, None if unknown. Every user
    who may edit a DAG can write XComs, so a job plans the bounds of its logs again (cleantail.lake.evaluate).
    """

    topic: str
    round: str
    now_ms: int
    reason: str
    units: tuple[WorkUnit, ...]
    sweep: ExpiryRequest | None
    sweep_reason: str
    reclaim: UpkeepDecision
    reconcile: UpkeepDecision = UpkeepDecision()
    records: int | None = None

    @property
    def due(self) -> bool:
        return bool(self.units or self.sweep or self.reclaim.due or self.reconcile.due)

    @property
    def has_rounds(self) -> bool:
        return bool(self.units or self.sweep)

    @property
    def swept(self) -> tuple[int, ...]:
        """Return the partitions with due tombstones."""
        return self.sweep.partitions if self.sweep else ()


RUN_PLAN_JSON: Codec[RunPlan] = Codec(RunPlan)


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """The state of a log, and the decisions for it.

    `keyless`: text about its records without a key, empty without such records.
    """

    log: LogState
    decision: Decision
    retention: Retention
    keyless: str = ""

    @property
    def partition(self) -> int:
        return self.log.partition

    @property
    def action(self) -> str:
        """Return compact, retain (only the log start moves) or none."""
        return "compact" if self.decision.compact else "retain" if self.retention.due else "none"

    def as_json(self) -> dict[str, Any]:
        """Return only numbers and Cleantail's own texts, which are safe in XCom."""
        return {
            "action": self.action,
            **asdict(self.decision),
            "retention": self.retention.reason,
            "warnings": list(self.log.warnings),
            "keyless": self.keyless,
        }

    def lines(self) -> list[str]:
        """Return the decision as a line for the log of a task, and a line for each warning."""
        name = f"  partition {self.log.partition:>3}"
        span = f"[{self.decision.first_dirty_offset}, {self.decision.end_offset})"
        warnings = [f"{name}  warning  {text}" for text in self.log.warnings]
        return [f"{name}  {self.action:<8} {span:<24} {self.decision.reason}", *warnings]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedTopic(RunPlan):
    """The plan of a run with the facts behind it. `snapshot_id`: of the table that was evaluated, 0 without one.
    `shared_files`: a data file may have records of several logs, as in some adopted tables."""

    snapshot_id: int
    reclaim: ReclaimPlan
    by_log: tuple[PlannedLog, ...]
    readers: tuple[Reader, ...] = ()
    holds: tuple[ReaderHold, ...] = ()
    shared_files: bool

    @property
    def logs(self) -> tuple[LogState, ...]:
        return tuple(planned.log for planned in self.by_log)

    @property
    def has_work(self) -> bool:
        """Return whether a run has work, or a checkpoint to repair."""
        return self.due or bool(self.repairs)

    @property
    def repairs(self) -> dict[int, PartitionState]:
        """Return the states with checkpoints outside their log, for logs that are not chosen (semantics.md 1.2)."""
        chosen = {w.partition for u in self.units for w in u.partitions}
        return {
            log.partition: replace(log.state, checkpoint=log.first_dirty_offset)
            for log in self.logs
            if log.repaired and log.partition not in chosen
        }

    def with_works(self, works: Collection[PartitionWork]) -> EvaluatedTopic:
        """Return the same plan with these works packed into units."""
        unit_bytes = LONG_MAX if len(self.units) == 1 else UNIT_BYTES  # one unit stays one
        return replace(self, units=pack(self.round, self.now_ms, self.snapshot_id, works, unit_bytes))

    def as_json(self) -> dict[str, Any]:
        """Return the plan. For people it also has the decision on each log, and the readers that tombstones wait
        for."""
        logs, holds = [planned.as_json() for planned in self.by_log], [asdict(hold) for hold in self.holds]
        return {**RUN_PLAN_JSON.plain(self), "partitions": logs, "readers": holds}

    def table(self) -> str:
        """Return the plan as text, for the log of a task."""
        lines = [line for planned in self.by_log for line in planned.lines()]
        rest = [f"  tombstones: {self.sweep_reason}", f"  reclaim: {self.reclaim.reason}"]
        rest += [f"  reconcile: {self.reconcile.reason}"] if self.reconcile.reason != NO_SOURCE else []
        return "\n".join([f"{self.topic}: {self.reason}", *lines, *rest])


@dataclass(frozen=True, slots=True)
class NewInput:
    """The input of a run before its rounds.

    `bytes`: size of the input that the source has and the table lacks, None without new input. `converts`: whether
    deletes by values are converted. `files`: the new files. `client`: settings of the Kafka client that reads it, with
    its login: do not log or show them. `nothing`: why there is no new input, for people.
    """

    bytes: int | None = None
    converts: bool = False
    files: tuple[Path, ...] = ()
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    nothing: str = ""


def due_topic(
    plan: EvaluatedTopic, new: NewInput, configs: KafkaConfigs, left_since_ms: int | None = None, force: bool = False
) -> DueTopic | None:
    """Return the topic with its due work, or None without due work.

    `left_since_ms`: time of the first run that did not reach the topic (Unix ms). `force`: whether a user requests work
    that is not due by ratio or lag.
    """
    if not (plan.has_work or new.bytes is not None):
        return None
    chosen = {work.partition for unit in plan.units for work in unit.partitions}
    due = [planned.decision for planned in plan.by_log if planned.partition in chosen]
    return DueTopic(
        topic=plan.topic,
        read_bytes=_read_bytes(plan, new, configs, force),
        overdue_ms=max([0, *(decision.overdue_ms for decision in due)]),
        dirty_ratio=max([0.0, *(decision.dirty_ratio for decision in due)]),
        left_since_ms=left_since_ms,
    )


def _read_bytes(plan: EvaluatedTopic, new: NewInput, configs: KafkaConfigs, force: bool) -> int:
    """Return the bytes that the stations of the topic read, by the rules of the module docstring."""
    new_bytes = new.bytes or 0
    of_rounds = {work.partition: work.read_bytes for unit in plan.units for work in unit.partitions}
    may_follow = [log for log in plan.logs if new_bytes and (force or _may_be_due(log, new_bytes, configs))]
    of_rounds |= {log.partition: log.total_bytes for log in may_follow}
    of_expiries = sum(log.total_bytes for log in plan.logs if log.partition in plan.swept)
    of_reclaim = sum(file.live_bytes for group in plan.reclaim.groups for file in group)
    whole = sum(log.total_bytes for log in plan.logs)
    of_others = of_expiries + of_reclaim + whole * (plan.reconcile.due + new.converts)
    return 2 * new_bytes + sum(of_rounds.values()) + of_others


def _may_be_due(log: LogState, new_bytes: int, configs: KafkaConfigs) -> bool:
    """Return whether a log may be due for compaction after this number of new bytes."""
    dirty = log.cleanable_bytes + log.uncleanable_bytes + new_bytes
    above = dirty > configs.min_cleanable_dirty_ratio * (log.clean_bytes + dirty)
    return configs.compacts and (above or configs.max_compaction_lag_ms < LONG_MAX)

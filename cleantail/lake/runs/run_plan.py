"""The plan of a run: what it does with one topic, and why, for tasks, the command line and the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cleantail.config.config_model import LONG_MAX
from cleantail.lake.runs.planned_logs import PlannedLog
from cleantail.lake.runs.reclaim_plan import ReclaimPlan
from cleantail.log.due_work import NO_SOURCE, ReconcileDecision, Retention
from cleantail.log.horizons import Reader, ReaderHold
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import PartitionState
from cleantail.log.triggers import Decision
from cleantail.log.work_units import UNIT_BYTES, WORK_UNIT_JSON, PartitionWork, WorkUnit, pack


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Says what a run does with one topic, and why: units to compact, logs to sweep, whether files are rewritten."""

    topic: str
    round: str
    now_ms: int
    reason: str
    logs: tuple[LogState, ...]
    decisions: tuple[Decision, ...]
    retentions: tuple[Retention, ...]
    units: tuple[WorkUnit, ...]
    sweep: tuple[int, ...]
    sweep_reason: str
    reclaim: ReclaimPlan
    readers: tuple[Reader, ...] = ()
    holds: tuple[ReaderHold, ...] = ()
    fresh_from: Mapping[int, int] = field(default_factory=dict)
    """Where delete.retention.ms is 0: partition -> from where on this run sets horizons, which are due at once."""
    records: int = 0
    """Of the whole table: what a run reads at most, by which its Spark application is set up."""
    reconcile: ReconcileDecision = ReconcileDecision()
    shared_files: bool = False
    """Whether a data file has records of several logs, as in some adopted tables."""
    keyless: Mapping[int, str] = field(default_factory=dict)
    """Partition -> what will become of its records without a key, in words; of those logs that have some."""

    @property
    def due(self) -> bool:
        """Returns whether there is anything to compact, to retain or to sweep."""
        return bool(self.units or self.sweep)

    @property
    def by_log(self) -> tuple[PlannedLog, ...]:
        """Returns what is planned for each log, by partition number."""
        decided = zip(self.logs, self.decisions, self.retentions, strict=True)
        return tuple(PlannedLog(log, d, r, self.keyless.get(log.partition, "")) for log, d, r in decided)

    @property
    def repairs(self) -> dict[int, PartitionState]:
        """Returns states to write back though their logs are not chosen: checkpoints that lay outside the log (1.2)."""
        chosen = {w.partition for u in self.units for w in u.partitions}
        return {
            log.partition: replace(log.state, checkpoint=log.first_dirty_offset)
            for log in self.logs
            if log.repaired and log.partition not in chosen
        }

    def with_works(self, works: Collection[PartitionWork]) -> RunPlan:
        """Returns the same plan with these works packed into units."""
        base = self.units[0].base_snapshot_id if self.units else 0
        unit_bytes = LONG_MAX if len(self.units) == 1 else UNIT_BYTES  # what was one unit stays one
        return replace(self, units=pack(self.round, self.now_ms, base, works, unit_bytes))

    def as_json(self) -> dict[str, Any]:
        """Returns numbers and texts of our own making: what a task may pass on through XCom."""
        fresh = {"fresh_from": {str(p): offset for p, offset in self.fresh_from.items()}} if self.fresh_from else {}
        sweep = {"round": self.round, "now_ms": self.now_ms, "partitions": list(self.sweep), **fresh}
        return {
            "topic": self.topic,
            "round": self.round,
            "now_ms": self.now_ms,
            "records": self.records,
            "reason": self.reason,
            "partitions": [planned.as_json() for planned in self.by_log],
            "units": [WORK_UNIT_JSON.plain(unit) for unit in self.units],
            "sweep": sweep if self.sweep else None,
            "sweep_reason": self.sweep_reason,
            "readers": [asdict(hold) for hold in self.holds],
            "reclaim": {"due": self.reclaim.due, "reason": self.reclaim.reason},
            "reconcile": asdict(self.reconcile),
        }

    def table(self) -> str:
        """Returns the plan as text, for the log of a task."""
        lines = [line for planned in self.by_log for line in planned.lines()]
        rest = [f"  sweep: {self.sweep_reason}", f"  reclaim: {self.reclaim.reason}"]
        rest += [f"  reconcile: {self.reconcile.reason}"] if self.reconcile.reason != NO_SOURCE else []
        return "\n".join([f"{self.topic}: {self.reason}", *lines, *rest])

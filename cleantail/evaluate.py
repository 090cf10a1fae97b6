"""What a run of one topic would do now, and why: metadata in, RunPlan out. Starts no Spark, changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from cleantail.catalogs import load_table, open_catalog
from cleantail.clocks import expiry_ms
from cleantail.config import Platform, Topic
from cleantail.config_row import LONG_MAX
from cleantail.log_state import LogState, resolve_log_state
from cleantail.partition_state import PartitionState
from cleantail.readers import Reader, hold_offset, registered
from cleantail.reclaiming import ReclaimPlan, resolve_reclaim
from cleantail.retention import Retention, resolve_retention
from cleantail.table_metadata import TableFacts, require_partition, table_facts
from cleantail.triggers import Decision, decide, due_tombstones, held_tombstones, in_order_of_work, quarantine_pause
from cleantail.work_units import UNIT_BYTES, PartitionWork, WorkUnit, pack


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run of one topic: the work units to compact, the logs to sweep, whether files are rewritten, with reasons."""

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
    fresh_from: Mapping[int, int] = field(default_factory=dict)
    """Where delete.retention.ms is 0: partition -> from where on this run sets horizons, which are due at once."""
    records: int = 0
    """Of the whole table: what a run reads at most, by which its Spark application is set up."""

    @property
    def due(self) -> bool:
        return bool(self.units or self.sweep)

    @property
    def repairs(self) -> dict[int, PartitionState]:
        """States to write back though their logs are not chosen: checkpoints that lay outside the log (1.2)."""
        chosen = {w.partition for u in self.units for w in u.partitions}
        return {
            log.partition: replace(log.state, checkpoint=log.first_dirty_offset)
            for log in self.logs
            if log.repaired and log.partition not in chosen
        }

    def restricted_to(self, partitions: Collection[int]) -> RunPlan:
        """The same plan with the work of these partitions only."""
        works = [w for u in self.units for w in u.partitions if w.partition in partitions]
        base = self.units[0].base_snapshot_id if self.units else 0
        unit_bytes = LONG_MAX if len(self.units) == 1 else UNIT_BYTES  # what was one unit stays one
        return replace(self, units=pack(self.round, self.now_ms, base, works, unit_bytes))

    def as_json(self) -> dict[str, Any]:
        """Numbers and texts of our own making: what a task may pass on through XCom."""
        fresh = {"fresh_from": {str(p): offset for p, offset in self.fresh_from.items()}} if self.fresh_from else {}
        sweep = {"round": self.round, "now_ms": self.now_ms, "partitions": list(self.sweep), **fresh}
        return {
            "topic": self.topic,
            "round": self.round,
            "now_ms": self.now_ms,
            "records": self.records,
            "reason": self.reason,
            "partitions": [self._row(i) for i in range(len(self.logs))],
            "units": [unit.as_json() for unit in self.units],
            "sweep": sweep if self.sweep else None,
            "sweep_reason": self.sweep_reason,
            "reclaim": {"due": self.reclaim.due, "reason": self.reclaim.reason},
        }

    def _row(self, i: int) -> dict[str, Any]:
        decision, retention = self.decisions[i], self.retentions[i]
        action = "compact" if decision.compact else "retain" if retention.due else "none"
        return {
            "action": action,
            **asdict(decision),
            "retention": retention.reason,
            "warnings": list(self.logs[i].warnings),
        }

    def table(self) -> str:
        """One line a partition, for the log of a task."""
        lines = [f"{self.topic}: {self.reason}"]
        for row in self.as_json()["partitions"]:
            span = f"[{row['first_dirty_offset']}, {row['end_offset']})"
            lines.append(f"  partition {row['partition']:>3}  {row['action']:<8} {span:<24} {row['reason']}")
            lines += [f"  partition {row['partition']:>3}  warning  {text}" for text in row["warnings"]]
        return "\n".join([*lines, f"  sweep: {self.sweep_reason}", f"  reclaim: {self.reclaim.reason}"])


def evaluate_topic(
    topic: Topic,
    platform: Platform,
    *,
    now_ms: int,
    force: bool = False,
    partition: int | None = None,
    retry_quarantined: bool = False,
) -> RunPlan:
    """The plan of one topic at `now_ms`. Snapshots and branches expire by the real clock where `now_ms` is ahead of
    it. Raises TableError when the catalog or the table is not usable."""
    facts = read_facts(topic, platform)
    return plan_run(
        topic,
        facts,
        now_ms=now_ms,
        force=force,
        partition=partition,
        retry_quarantined=retry_quarantined,
        until_ms=expiry_ms(platform, now_ms, int(time.time() * 1000)),
    )


def read_facts(topic: Topic, platform: Platform) -> TableFacts | None:
    """The table's metadata as it stands; None where nothing was ingested yet."""
    catalog = open_catalog(platform, os.environ)
    table = load_table(catalog, topic, platform)
    return table_facts(table, registered(catalog, topic)) if table is not None else None


def log_states(topic: Topic, facts: TableFacts | None, now_ms: int) -> tuple[LogState, ...]:
    """Every log of the table, by partition number."""
    if facts is None:
        return ()
    return tuple(
        resolve_log_state(
            p, facts.files_of(p), facts.states.get(p, PartitionState()), facts.arrived_of(p), topic.config, now_ms
        )
        for p in facts.partitions
    )


def plan_run(
    topic: Topic,
    facts: TableFacts | None,
    *,
    now_ms: int,
    force: bool = False,
    partition: int | None = None,
    retry_quarantined: bool = False,
    until_ms: int | None = None,
) -> RunPlan:
    """The pure half of evaluate_topic; `until_ms` is the clock of expiry, `now_ms` where none is given. Raises
    TableError for a partition that the table does not have."""
    require_partition(topic, partition, facts.partitions if facts else [])
    logs = tuple(s for s in log_states(topic, facts, now_ms) if partition in (None, s.partition))
    decisions = tuple(decide(s, topic.config, now_ms, force=force, retry_quarantined=retry_quarantined) for s in logs)
    pauses = {} if force or retry_quarantined else {s.partition: quarantine_pause(s, now_ms) for s in logs}
    retentions = tuple(resolve_retention(s, topic.config, now_ms) for s in logs)  # a failed check does not stop it
    paused = {s.partition: s.state.quarantine for s in logs if pauses.get(s.partition)}
    resting = {p for p, quarantine in paused.items() if quarantine and not quarantine.check_failed}
    works = _works(logs, decisions, retentions, facts, resting)
    round_id = round_name(now_ms, facts.sequence_number if facts else 0)
    unit_bytes = LONG_MAX if topic.columns else UNIT_BYTES  # an adopted table's file may hold several logs
    units = pack(round_id, now_ms, (facts.snapshot_id or 0) if facts else 0, works, unit_bytes)
    sweepable = [s for s in logs if topic.config.compacts and not pauses.get(s.partition)]
    readers = facts.readers if facts else ()
    cap_ms = topic.config.cleantail_readers_hold_cap_ms
    holds = {s.partition: hold_offset(readers, s.partition) for s in sweepable}
    ends = {w.partition: w.end_offset for w in works}
    due = {s.partition: due_tombstones(s, now_ms, holds[s.partition], cap_ms, ends.get(s.partition)) for s in sweepable}
    held = sum(held_tombstones(s, now_ms, holds[s.partition], cap_ms) for s in sweepable)
    return RunPlan(
        topic=topic.topic,
        round=round_id,
        now_ms=now_ms,
        reason=_reason(logs, works, decisions) if logs else "the table has no records yet",
        logs=logs,
        decisions=decisions,
        retentions=retentions,
        units=units,
        sweep=tuple(p for p, count in due.items() if count),
        sweep_reason=_sweep_reason(sweepable, due) + _held_back(held),
        reclaim=resolve_reclaim(facts, topic.config, now_ms if until_ms is None else until_ms),
        readers=readers,
        fresh_from={} if topic.config.delete_retention_ms else {w.partition: w.first_dirty_offset for w in works},
        records=sum(file.live_records for file in facts.files) if facts else 0,
    )


def _works(
    logs: tuple[LogState, ...],
    decisions: tuple[Decision, ...],
    retentions: tuple[Retention, ...],
    facts: TableFacts | None,
    resting: Collection[int],
) -> list[PartitionWork]:
    """What is to be done, most urgent first; logs of which only retention is due come last, without those whose round
    a person has rejected."""
    starts = {s.partition: r.log_start_offset for s, r in zip(logs, retentions, strict=True)}
    by_partition = {s.partition: s for s in logs}
    compact = in_order_of_work(decisions)
    urgent = [d.partition for d in compact]
    due = [s.partition for s, r in zip(logs, retentions, strict=True) if r.due]
    retain = [p for p in due if p not in urgent and p not in resting]
    works = []
    for p in [*urgent, *retain]:
        log = by_partition[p]
        first = max(log.first_dirty_offset, starts[p])
        end = max(log.first_uncleanable_offset, starts[p]) if p in urgent else first
        files = facts.files_of(p) if facts else ()
        work = PartitionWork(
            partition=p,
            first_dirty_offset=min(first, end),
            end_offset=end,
            log_start_offset=starts[p],
            log_end_offset=log.log_end_offset,
            bytes=log.total_bytes,
            dirty_records=sum(f.records_between(first, end) for f in files),
            dirty_bytes=sum(f.bytes_between(first, end) for f in files),
            read_bytes=sum(f.bytes_between(starts[p], end) for f in files),
        )
        works.append(work)
    return works


def round_name(now_ms: int, sequence_number: int) -> str:
    """A name for branches and evidence: the time of the clock given, and the table's sequence number."""
    stamp = datetime.fromtimestamp(min(now_ms, 253_402_300_799_000) / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{stamp}_{now_ms % 1000:03d}_{sequence_number}"


def _reason(logs: tuple[LogState, ...], works: list[PartitionWork], decisions: tuple[Decision, ...]) -> str:
    if works:
        return f"{len(works)} of {len(logs)} partitions are due"
    reasons = sorted({d.reason for d in decisions})
    return f"nothing is due: {reasons[0]}" + (f" (and {len(reasons) - 1} more reasons)" if len(reasons) > 1 else "")


def _held_back(count: int) -> str:
    return f"; up to {count} past it wait for a registered reader" if count else ""


def _sweep_reason(logs: Sequence[LogState], due: dict[int, int]) -> str:
    if sum(due.values()):
        return f"{sum(due.values())} tombstones are past their horizon"
    if guards := sum(s.state.guards for s in logs):
        return f"{guards} tombstones past their horizon stay: they beat records that no round has cleaned yet"
    horizons = [s.next_horizon_ms for s in logs if s.next_horizon_ms is not None]
    if horizons:
        return f"no tombstone is due before {min(horizons)} ms"
    return "no tombstone waits for a horizon"

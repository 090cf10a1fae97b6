"""The plan of a run: what it does with one topic, and why, for tasks, the command line and the page.

A reclaim rewrites files, expires snapshots and drops branches of failed rounds:

1. Neighbouring files of one log are grouped as Kafka groups segments, up to segment.bytes (semantics.md 1.4.3).
2. A group is rewritten if the deleted share of one of its files is above cleantail.reclaim.deleted.ratio, or if it has
   at least cleantail.reclaim.min.merge.files files.
3. Only files that a round has seen are rewritten. A new file keeps its sequence number, by which the next round
   recognizes what arrived. A file that several logs share stays as it is. A file that is registered twice waits for the
   round that keeps it once.
4. Snapshots expire after cleantail.snapshot.retention.ms, except the current one. None expires if the table's
   gc.enabled is false, because files would be deleted with it. They expire together, once the oldest is past its time
   by a tenth of the retention: finding what may be deleted costs more than a round of a small topic.
5. Branches of failed rounds are dropped after cleantail.failed.branch.retention.ms.
6. Small groups share a Spark task and a commit: both cost more than rewriting few records. A commit gives all new files
   one sequence number, so only groups whose files keep the same number share it.

This module also estimates from metadata an upper bound of what a run reads of one topic, before anything is ingested:

1. An ingestion reads what is new, and a round may read that again.
2. A round reads its log from the log start. New input may make a log due: if the dirty ratio would exceed its minimum
   with all of the input in this log, or if an unread record may be overdue.
3. An expiry reads the logs that lose tombstones, a reclaim the files that it rewrites, and a reconciliation or a
   conversion the whole table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.human import be, counted
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.due_work import NO_SOURCE, ReconcileDecision, Retention
from cleantail.log.horizons import Reader, ReaderHold
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import PartitionState
from cleantail.log.quarantine import past_their_time
from cleantail.log.segments import DataFile
from cleantail.log.task_shares import PACK_RECORDS
from cleantail.log.triggers import Decision
from cleantail.log.work_units import UNIT_BYTES, WORK_UNIT_JSON, DueTopic, PartitionWork, WorkUnit, pack

_SNAPSHOTS = "cleantail.snapshot.retention.ms"
BATCH_RECORDS, BATCH_BYTES = PACK_RECORDS, 32 << 20
"""Maximum that groups in one task rewrite together."""
WAIT_PARTS = 10
"""Snapshots expire late by this fraction (1/10) of their retention, so that several expire together."""


Group = Sequence[DataFile]
"""Neighbouring files of one log that are merged into one."""


@dataclass(frozen=True, slots=True)
class ReclaimPlan:
    """What a reclaim does, and why: groups of files to rewrite into one each, snapshots to expire, branches to drop.

    The files of a group are neighbours in offset order.
    """

    groups: tuple[tuple[DataFile, ...], ...]
    expired_snapshots: int
    reason: str
    branches: tuple[str, ...] = ()

    @property
    def due(self) -> bool:
        """Return whether there is anything to rewrite, expire or drop."""
        return bool(self.groups or self.expired_snapshots or self.branches)


def resolve_reclaim(facts: TableFacts | None, configs: KafkaConfigs, now_ms: int) -> ReclaimPlan:
    """Return what reclaim would do now, by the clock of expiry (cleantail.lake.evaluate).

    The rules are in the module docstring.
    """
    if facts is None:
        return ReclaimPlan((), 0, "there is no table yet")
    # 1. files that become one, log by log
    groups: list[tuple[DataFile, ...]] = []
    shared = {path for path, logs in Counter(f.path for f in facts.files).items() if logs > 1}
    for partition in facts.partitions:
        state = facts.states.get(partition)
        newest = state.known_sequence_number if state else 0
        files = [f for f in facts.files_of(partition) if f.data_sequence_number <= newest and f.path not in shared]
        groups += rewrite_groups([f for f in files if f.registered == 1], configs)
    # 2. snapshots past their retention
    retention_ms = configs.cleantail_snapshot_retention_ms
    past_ms = [at_ms for i, at_ms in facts.snapshots if at_ms < now_ms - retention_ms and i != facts.snapshot_id]
    is_time = any(at_ms < now_ms - retention_ms - retention_ms // WAIT_PARTS for at_ms in past_ms)
    expired = len(past_ms) if is_time and facts.may_delete_files else 0
    # 3. branches of failed rounds past theirs
    branches = past_their_time(facts.branches, configs.cleantail_failed_branch_retention_ms, now_ms)
    return ReclaimPlan(tuple(groups), expired, _reason(groups, expired, branches), tuple(branches))


def rewrite_groups(files: Sequence[DataFile], configs: KafkaConfigs) -> list[tuple[DataFile, ...]]:
    """Return groups of neighbouring files in one log that become one file each, at most segment.bytes.

    This is Kafka's grouping of segments (1.4.3). A group is rewritten if the deleted share of one of its files is too
    large, or if it merges enough small files.
    """
    groups: list[list[DataFile]] = []
    for file in sorted(files, key=lambda f: (f.lower_offset, f.upper_offset, f.path)):
        fits = groups and sum(f.live_bytes for f in groups[-1]) + file.live_bytes <= configs.segment_bytes
        if fits and groups[-1][-1].iceberg_partition == file.iceberg_partition:
            groups[-1].append(file)
        else:
            groups.append([file])
    return [tuple(g) for g in groups if _worth_rewriting(g, configs)]


def _worth_rewriting(group: Sequence[DataFile], configs: KafkaConfigs) -> bool:
    too_dead = any(f.deleted_share > configs.cleantail_reclaim_deleted_ratio for f in group)
    return too_dead or len(group) >= configs.cleantail_reclaim_min_merge_files


def rewrite_batches(groups: Sequence[Group]) -> list[tuple[Group, ...]]:
    """Return the groups that share a task and a commit (rule 6), in their order."""
    batches: list[list[Group]] = []
    for group in groups:
        if batches and _fits(batches[-1], group):
            batches[-1].append(group)
        else:
            batches.append([group])
    return [tuple(batch) for batch in batches]


def _fits(batch: Sequence[Group], group: Group) -> bool:
    files = [file for one in (*batch, group) for file in one]
    return (
        kept_number(group) == kept_number(batch[0])
        and sum(file.live_records for file in files) <= BATCH_RECORDS
        and sum(file.live_bytes for file in files) <= BATCH_BYTES
    )


def kept_number(group: Group) -> int:
    """Return the sequence number that the new files of a group keep."""
    return max(file.data_sequence_number for file in group)


def _reason(groups: Sequence[Sequence[DataFile]], expired: int, branches: Sequence[str]) -> str:
    parts = []
    if groups:
        parts.append(f"{counted(sum(len(g) for g in groups), 'file')} to rewrite into {len(groups)}")
    if expired:
        parts.append(f"{counted(expired, 'snapshot')} {be(expired)} past {_SNAPSHOTS}")
    if branches:
        count = counted(len(branches), "branch", "branches")
        parts.append(f"{count} of failed rounds {be(len(branches))} past cleantail.failed.branch.retention.ms")
    return "; ".join(parts) or "no file is over the deleted share, nothing to merge, no snapshot to expire"


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """The state of a log and what was decided for it.

    `keyless`: what happens to its records without a key, as a text. Empty if it has none.
    """

    log: LogState
    decision: Decision
    retention: Retention
    keyless: str = ""

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
        """Return the decision as one line, and a line for each warning, for the log of a task."""
        name = f"  partition {self.log.partition:>3}"
        span = f"[{self.decision.first_dirty_offset}, {self.decision.end_offset})"
        warnings = [f"{name}  warning  {text}" for text in self.log.warnings]
        return [f"{name}  {self.action:<8} {span:<24} {self.decision.reason}", *warnings]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run does with one topic, and why: units to compact, logs to sweep, whether files are rewritten."""

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
    """If delete.retention.ms is 0: partition -> offset from which this run sets horizons, which are due at once."""
    records: int = 0
    """Number of the table's records: the most that a run reads, by which its Spark application is sized."""
    reconcile: ReconcileDecision = ReconcileDecision()
    shared_files: bool = False
    """Whether a data file has records of several logs, as in some adopted tables."""
    keyless: Mapping[int, str] = field(default_factory=dict)
    """Partition -> what happens to its records without a key, as a text, for logs that have some."""

    @property
    def due(self) -> bool:
        """Return whether there is anything to compact, retain or sweep."""
        return bool(self.units or self.sweep)

    @property
    def by_log(self) -> tuple[PlannedLog, ...]:
        """Return what is planned for each log, by partition number."""
        decided = zip(self.logs, self.decisions, self.retentions, strict=True)
        return tuple(PlannedLog(log, d, r, self.keyless.get(log.partition, "")) for log, d, r in decided)

    @property
    def repairs(self) -> dict[int, PartitionState]:
        """Return repaired states of logs that are not chosen: their checkpoints lay outside the log (1.2)."""
        chosen = {w.partition for u in self.units for w in u.partitions}
        return {
            log.partition: replace(log.state, checkpoint=log.first_dirty_offset)
            for log in self.logs
            if log.repaired and log.partition not in chosen
        }

    def with_works(self, works: Collection[PartitionWork]) -> RunPlan:
        """Return the same plan with these works packed into units."""
        base = self.units[0].base_snapshot_id if self.units else 0
        unit_bytes = LONG_MAX if len(self.units) == 1 else UNIT_BYTES  # one unit stays one
        return replace(self, units=pack(self.round, self.now_ms, base, works, unit_bytes))

    def as_json(self) -> dict[str, Any]:
        """Return only numbers and Cleantail's own texts, which are safe in XCom."""
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
        """Return the plan as text, for the log of a task."""
        lines = [line for planned in self.by_log for line in planned.lines()]
        rest = [f"  sweep: {self.sweep_reason}", f"  reclaim: {self.reclaim.reason}"]
        rest += [f"  reconcile: {self.reconcile.reason}"] if self.reconcile.reason != NO_SOURCE else []
        return "\n".join([f"{self.topic}: {self.reason}", *lines, *rest])


@dataclass(frozen=True, slots=True)
class NewInput:
    """What a run brings into the table before its rounds.

    `bytes`: size of the input that the source has and the table lacks, None if there is none. `converts`: whether
    deletes by values are converted.
    """

    bytes: int | None = None
    converts: bool = False


def due_topic(
    plan: RunPlan, new: NewInput, configs: KafkaConfigs, left_since_ms: int | None = None, force: bool = False
) -> DueTopic | None:
    """Return the topic's due work. None if nothing is due.

    `left_since_ms`: since when runs have left the topic unprocessed (Unix ms). `force`: whether a user requests work
    that is not due by ratio or lag.
    """
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
    """Return the bytes that the stations of the topic read, by the rules of the module docstring."""
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
    """Return whether a log may be compacted after this many new bytes."""
    dirty = log.cleanable_bytes + log.uncleanable_bytes + new_bytes
    above = dirty > configs.min_cleanable_dirty_ratio * (log.clean_bytes + dirty)
    return configs.compacts and (above or configs.max_compaction_lag_ms < LONG_MAX)

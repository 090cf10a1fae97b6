"""Decide which work is due in the logs of one topic, with reasons. A run, the plan and the page use the result. Pure.

Only work that a run would do counts as due. In the order of `resolve_due_work`:

1. The triggers decide which logs are compacted (cleantail.log.triggers).
2. Retention is decided for every log. It continues after a failed check, because the disk would fill otherwise. A log
   that a user rejected rests. Only the first of several rounds of a run decides retention. Removals make segments
   younger or smaller, so later rounds would decide otherwise than a single round (semantics.md 3.8).
3. A compacted log is cleaned up to first uncleanable. If only retention is due, the work ends at the first dirty
   offset.
4. Expired tombstones are removed even if no new record came (semantics.md 3.4). They wait for the slowest reader
   (semantics.md 3.9), and for the pause of a quarantine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic import Topic
from cleantail.human import be, counted, instant, setting, size, until
from cleantail.log.horizons import Reader, ReaderHold, due_tombstones, hold_offset, resolve_holds, slowest, waiting_text
from cleantail.log.log_state import LogState
from cleantail.log.quarantine import quarantine_pause
from cleantail.log.segments import NO_TIMESTAMP_MS, Segment
from cleantail.log.triggers import Decision, decide, in_order_of_work

NO_DELETE = "cleanup.policy has no delete"
"""The reason if retention is not part of the policy."""
DECIDED = "the first round of this run has moved the log start"
"""The reason in the later rounds of a run (semantics.md 3.8)."""
NEEDED = "needed"
"""The value of `cleantail.reconcile` for which a run reconciles without a request."""
NO_SOURCE = "its source is not Kafka, so there is nothing to compare with"


@dataclass(frozen=True, slots=True)
class DueWork:
    """What a run would do with each log. Decisions and retentions are in the order of the logs.

    `compact`: the partitions to compact, the most urgent first. `retain`: partitions with only retention due. `ends`:
    partition -> exclusive end of its work. `tombstones`: partition -> number of tombstones to remove. `sweep_reason`
    names the tombstones to remove, and the readers for which others wait.
    """

    decisions: tuple[Decision, ...]
    retentions: tuple[Retention, ...]
    compact: tuple[int, ...]
    retain: tuple[int, ...]
    ends: Mapping[int, int]
    tombstones: Mapping[int, int]
    holds: tuple[ReaderHold, ...]
    sweep_reason: str

    @property
    def sweep(self) -> tuple[int, ...]:
        """Return the partitions with tombstones to remove."""
        return tuple(p for p, count in self.tombstones.items() if count)

    @property
    def any_due(self) -> bool:
        return bool(self.compact or self.retain or self.sweep)


def resolve_due_work(
    logs: Sequence[LogState],
    readers: Sequence[Reader],
    configs: KafkaConfigs,
    now_ms: int,
    *,
    force: bool = False,
    retry_quarantined: bool = False,
    later_round: bool = False,
) -> DueWork:
    """Return the work of a run at `now_ms`, by the steps of the module docstring.

    `force` skips the ratio and every pause, `retry_quarantined` only the pauses. `later_round`: an earlier round of the
    same run has decided retention.
    """
    decisions = tuple(decide(s, configs, now_ms, force=force, retry_quarantined=retry_quarantined) for s in logs)
    pauses = {} if force or retry_quarantined else {s.partition: quarantine_pause(s, now_ms) for s in logs}
    retentions = tuple(  # a failed check does not stop retention
        Retention(s.log_start_offset, False, DECIDED) if later_round else resolve_retention(s, configs, now_ms)
        for s in logs
    )
    compact = tuple(d.partition for d in in_order_of_work(decisions))
    rejected = [s.partition for s in logs if s.state.quarantine and not s.state.quarantine.check_failed]
    resting = [p for p in rejected if pauses.get(p)]
    due = [s.partition for s, r in zip(logs, retentions, strict=True) if r.due]
    retain = tuple(p for p in due if p not in compact and p not in resting)
    ends = _ends(logs, retentions, compact, retain)
    sweepable = [s for s in logs if configs.compacts and not pauses.get(s.partition)]
    cap_ms = configs.cleantail_readers_hold_cap_ms
    tombstones = {
        s.partition: due_tombstones(s, now_ms, hold_offset(readers, s.partition), cap_ms, ends.get(s.partition))
        for s in sweepable
    }
    holds = resolve_holds(logs, readers, configs, now_ms)
    waiting = [hold for hold in slowest(holds) if hold.partition in tombstones]
    reason = sweep_reason(sweepable, sum(tombstones.values()), waiting, now_ms)
    return DueWork(decisions, retentions, compact, retain, ends, tombstones, holds, reason)


def _ends(
    logs: Sequence[LogState], retentions: Sequence[Retention], compact: Sequence[int], retain: Sequence[int]
) -> dict[int, int]:
    """Return partition -> the exclusive end of its work."""
    return {
        s.partition: max(s.first_uncleanable_offset if s.partition in compact else s.first_dirty_offset, start)
        for s, start in zip(logs, (r.log_start_offset for r in retentions), strict=True)
        if s.partition in compact or s.partition in retain
    }


def sweep_reason(logs: Sequence[LogState], due: int, waiting: Sequence[ReaderHold], now_ms: int) -> str:
    """Return which tombstones a run would remove, which wait for which readers, and when the next are due.

    `logs`: logs that can be swept. `due`: the number of their due tombstones. `waiting`: readers that block tombstones.
    """
    # 1. tombstones that are due, kept as guards, blocked by readers, not due yet
    horizons = [h for s in logs for h in s.horizons if h.tombstones]
    guards, held = sum(s.state.guards for s in logs), waiting_text(waiting, and_due=due > 0)
    past = sum(h.tombstones for h in horizons if h.horizon_ms <= now_ms)
    coming = [f"{instant(at_ms)} UTC" for at_ms in sorted(h.horizon_ms for h in horizons) if at_ms > now_ms]
    # 2. the first kind that exists decides the text
    if due:
        texts = [_counted(due, "is past its horizon", "are past their horizon"), held]
    elif guards:
        beaten = "records that no round has cleaned yet"
        of_one, of_many = f"past its horizon stays: it beats {beaten}", f"past their horizon stay: they beat {beaten}"
        texts = [_counted(guards, of_one, of_many), held]
    elif held:
        texts = [held, f"the next horizon is {coming[0]}" if coming else ""]
    elif past:
        wait = _counted(past, "past its horizon waits", "past their horizon wait")
        texts = [f"{wait} for a round over the records that arrived below the first dirty offset"]
    else:
        none_due = f"no tombstone is due before {coming[0]} (delete.retention.ms)" if coming else ""
        texts = [none_due or "there is no tombstone to expire"]
    return "; ".join(text for text in texts if text)


def _counted(count: int, of_one: str, of_many: str) -> str:
    return counted(count, f"tombstone {of_one}", f"tombstones {of_many}")


@dataclass(frozen=True, slots=True)
class Retention:
    """The next log start, and the reason. If nothing is `due`, `log_start_offset` is the present log start."""

    log_start_offset: int
    due: bool
    reason: str


def resolve_retention(log: LogState, configs: KafkaConfigs, now_ms: int) -> Retention:
    """Return UnifiedLog.deleteOldSegments' new log start for one log (semantics.md 1.1).

    1. Only whole segments are removed, from the oldest on, and never the active one (semantics.md 1.2).
    2. First by size: segments are removed while the log stays at or above retention.bytes without them.
    3. Then by age: segments are removed while the youngest record of each is older than retention.ms. The comparison is
       strict, as in Kafka. A segment without timestamps is as old as its append.
    4. The log start moves to the base of the first segment that stays, or to the log end. It never moves back.
    5. -1 switches a limit off.
    """
    if not configs.deletes:
        return Retention(log.log_start_offset, False, NO_DELETE)
    # 1. never the active segment
    deletable = [s for s in log.segments if log.active_base_offset is None or s.base_offset < log.active_base_offset]
    # 2. and 3. by size, and of the rest by age
    past_size = _count_past_size(log.segments, deletable, configs.retention_bytes)
    past_age = _count_past_age(deletable[past_size:], configs.retention_ms, now_ms)
    count = past_size + past_age
    # 4. the log start, which never moves back
    start = log.log_start_offset
    if count:
        start = log.segments[count].base_offset if count < len(log.segments) else log.log_end_offset
    if start <= log.log_start_offset:
        return Retention(log.log_start_offset, False, f"no segment is past {_limits(deletable, configs)}")
    limits = " and ".join(name for name, n in (("retention.bytes", past_size), ("retention.ms", past_age)) if n)
    return Retention(start, True, f"{counted(count, 'segment')} below offset {start} {be(count)} past {limits}")


def _limits(deletable: list[Segment], configs: KafkaConfigs) -> str:
    """Return both limits as text, and when the oldest segment passes the limit of age."""
    by_age = "retention.ms -1" if configs.retention_ms < 0 else setting("retention.ms", configs.retention_ms)
    text = f"{by_age} or retention.bytes {-1 if configs.retention_bytes < 0 else size(configs.retention_bytes)}"
    unknown = not deletable or deletable[0].largest_timestamp_ms == NO_TIMESTAMP_MS
    if unknown or configs.retention_ms in (-1, LONG_MAX):
        return text
    return f"{text}; none will be by age {until(deletable[0].largest_timestamp_ms + configs.retention_ms)}"


def _count_past_age(segments: list[Segment], retention_ms: int, now_ms: int) -> int:
    """Count the segments, from the oldest on, whose youngest record is older than retention.ms."""
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if segment.largest_timestamp_ms == NO_TIMESTAMP_MS or now_ms - segment.largest_timestamp_ms <= retention_ms:
            break
        count += 1
    return count


def _count_past_size(all_segments: tuple[Segment, ...], segments: list[Segment], retention_bytes: int) -> int:
    """Count the oldest segments without which the log stays at or above retention.bytes."""
    if retention_bytes < 0:
        return 0
    excess, count = sum(s.bytes for s in all_segments) - retention_bytes, 0
    for segment in segments:
        if excess - segment.bytes < 0:
            break
        excess, count = excess - segment.bytes, count + 1
    return count


@dataclass(frozen=True, slots=True)
class UpkeepDecision:
    """Whether a run reconciles or reclaims, and why."""

    due: bool = False
    reason: str = NO_SOURCE


def resolve_reconcile(topic: Topic, logs: Sequence[LogState], asked: bool) -> UpkeepDecision:
    """Decide whether a run compares a topic with Kafka, to remove keys that are gone there (semantics.md 3.12).

    1. A topic that is not read from Kafka has no source to compare.
    2. A run that was triggered with `reconcile` (`asked`) compares if the table has a log.
    3. Any other run compares if the brokers may have forgotten deletions of a log before they were read
       (cleantail.kafka.read_plan). A log with a hindrance does not count, because its comparison would be
       refused. It only has a warning.
    4. With `cleantail.reconcile: trigger` a needed reconciliation waits for a user to trigger it.

    Logs in a quarantine's pause are left out later.
    """
    # 1. the source
    if topic.source.kafka is None:
        return UpkeepDecision()
    # 2. a user's trigger
    if asked:
        why = "the run was triggered with reconcile" if logs else "the table has no records yet"
        return UpkeepDecision(bool(logs), why)
    # 3. the need
    needed = [log.forgotten for log in logs if log.forgotten and not log.forgotten.hindrance]
    if not needed:
        return UpkeepDecision(reason="no reconciliation is needed: every deletion was read in time")
    # 4. the config
    if topic.config.cleantail_reconcile != NEEDED:
        way = "cleantail.reconcile is trigger: trigger a run with reconcile"
        return UpkeepDecision(reason=f"a reconciliation is needed, and {way} ({needed[0].text})")
    return UpkeepDecision(True, needed[0].text)

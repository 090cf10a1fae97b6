"""Says what is due in the logs of one topic, and why the rest is not: the one answer for a run, the plan and the page.
Pure.

Nothing is called due that a run would leave. In the order of `resolve_due_work`:

1. The triggers decide which logs are compacted: overdue logs first, then the dirtiest (semantics.md 1.3, 3.6).
2. Retention is decided for every log, also for one that a failed check holds back: its disk would fill otherwise. A log
   that rests after a person's no is left alone. The first of several rounds of a run has done it for all of them: what
   a round removes makes segments younger or smaller, and the result would not be that of one round (semantics.md 3.8).
3. A log that is compacted is cleaned up to first uncleanable; one of which only retention is due, no further than it is
   clean.
4. Expired tombstones go though no new record came (semantics.md 3.4). They wait for the slowest reader (semantics.md
   3.9), and for the pause of a quarantine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.human import counted, instant
from cleantail.log.log_state import LogState
from cleantail.log.policy.holds import Hold, resolve_holds, slowest, waiting_text
from cleantail.log.policy.retention import DECIDED, Retention, resolve_retention
from cleantail.log.policy.triggers import Decision, decide, in_order_of_work, quarantine_pause
from cleantail.log.reader_positions import Reader, hold_offset
from cleantail.log.tombstones import due_tombstones


@dataclass(frozen=True, slots=True)
class DueWork:
    """Says what a run at this moment would do with each log; decisions and retentions are in the order of the logs.

    `compact` holds the partitions to compact, the most urgent first, and `retain` those of which only retention is due.
    `ends` maps a partition to the exclusive end of its work, `tombstones` to how many tombstones to remove. `holds` are
    the positions of the readers. `sweep_reason` says which tombstones go and which wait, and for whom.
    """

    decisions: tuple[Decision, ...]
    retentions: tuple[Retention, ...]
    compact: tuple[int, ...]
    retain: tuple[int, ...]
    ends: Mapping[int, int]
    tombstones: Mapping[int, int]
    holds: tuple[Hold, ...]
    sweep_reason: str

    @property
    def sweep(self) -> tuple[int, ...]:
        """Returns the partitions with tombstones to remove."""
        return tuple(p for p, count in self.tombstones.items() if count)

    @property
    def any_due(self) -> bool:
        """Returns whether a run would do something."""
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
    """Returns the work of a run at `now_ms`, by the steps of the module docstring.

    `force` passes over the ratio and every pause, `retry_quarantined` over the pauses alone. `later_round`: an earlier
    round of the same run has decided retention.
    """
    decisions = tuple(decide(s, configs, now_ms, force=force, retry_quarantined=retry_quarantined) for s in logs)
    pauses = {} if force or retry_quarantined else {s.partition: quarantine_pause(s, now_ms) for s in logs}
    retentions = tuple(_retention(s, configs, now_ms, later_round) for s in logs)  # a failed check does not stop it
    compact = tuple(d.partition for d in in_order_of_work(decisions))
    resting = [s.partition for s in logs if pauses.get(s.partition) and _is_rejected(s)]
    due = [s.partition for s, r in zip(logs, retentions, strict=True) if r.due]
    retain = tuple(p for p in due if p not in compact and p not in resting)
    ends = _ends(logs, retentions, compact, retain)
    sweepable = [s for s in logs if configs.compacts and not pauses.get(s.partition)]
    tombstones = {s.partition: _due_tombstones(s, readers, configs, now_ms, ends) for s in sweepable}
    holds = resolve_holds(logs, readers, configs, now_ms)
    waiting = [hold for hold in slowest(holds) if hold.partition in tombstones]
    reason = sweep_reason(sweepable, sum(tombstones.values()), waiting, now_ms)
    return DueWork(decisions, retentions, compact, retain, ends, tombstones, holds, reason)


def _retention(log: LogState, configs: KafkaConfigs, now_ms: int, later_round: bool) -> Retention:
    return Retention(log.log_start_offset, False, DECIDED) if later_round else resolve_retention(log, configs, now_ms)


def _is_rejected(log: LogState) -> bool:
    """Returns whether a person's answer, and no red check, holds the log back."""
    return log.state.quarantine is not None and not log.state.quarantine.check_failed


def _ends(
    logs: Sequence[LogState], retentions: Sequence[Retention], compact: Sequence[int], retain: Sequence[int]
) -> dict[int, int]:
    """Returns partition -> the exclusive end of its work: where only retention is due, that is as far as the log is
    clean."""
    return {
        s.partition: max(s.first_uncleanable_offset if s.partition in compact else s.first_dirty_offset, start)
        for s, start in zip(logs, (r.log_start_offset for r in retentions), strict=True)
        if s.partition in compact or s.partition in retain
    }


def _due_tombstones(
    log: LogState, readers: Sequence[Reader], configs: KafkaConfigs, now_ms: int, ends: Mapping[int, int]
) -> int:
    hold, cap_ms = hold_offset(readers, log.partition), configs.cleantail_readers_hold_cap_ms
    return due_tombstones(log, now_ms, hold, cap_ms, ends.get(log.partition))


def sweep_reason(logs: Sequence[LogState], due: int, waiting: Sequence[Hold], now_ms: int) -> str:
    """Returns which tombstones a run would remove, which wait for whom, and when the next are due.

    `logs` are those that can be swept, `due` is how many of their tombstones are due, and `waiting` are the readers
    that hold others.
    """
    # 1. what there is: due, kept as guards, held by readers, coming
    horizons = [h for s in logs for h in s.horizons if h.tombstones]
    guards, held = sum(s.state.guards for s in logs), waiting_text(waiting, beside_due=due > 0)
    past = sum(h.tombstones for h in horizons if h.horizon_ms <= now_ms)
    coming = [f"{instant(at_ms)} UTC" for at_ms in sorted(h.horizon_ms for h in horizons) if at_ms > now_ms]
    # 2. the first of these that there is
    if due:
        texts = [_counted(due, "is past its horizon", "are past their horizon"), held]
    elif guards:
        beaten = "records that no round has cleaned yet"
        of_one, of_many = f"past its horizon stays: it beats {beaten}", f"past their horizon stay: they beat {beaten}"
        texts = [_counted(guards, of_one, of_many), held]
    elif held:
        texts = [held, f"the next horizon comes {coming[0]}" if coming else ""]
    elif past:
        wait = _counted(past, "past its horizon waits", "past their horizon wait")
        texts = [f"{wait} for a round over the records that arrived below the clean point"]
    else:
        none_due = f"no tombstone is due before {coming[0]} (delete.retention.ms)" if coming else ""
        texts = [none_due or "no tombstone waits for a horizon"]
    return "; ".join(text for text in texts if text)


def _counted(count: int, of_one: str, of_many: str) -> str:
    return counted(count, f"tombstone {of_one}", f"tombstones {of_many}")

"""What is wrong with the logs of a topic: the events that can be seen in table metadata. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cleantail.events import Event
from cleantail.failed_branches import kept_until_ms
from cleantail.incidents import Condition
from cleantail.kafka_configs import KafkaConfigs
from cleantail.log_state import LogState
from cleantail.partition_state import Horizon, PartitionState
from cleantail.readers import Reader, hold_offset
from cleantail.round_state import red_since_and_retry
from cleantail.ticks import run_before
from cleantail.triggers import decide
from cleantail.words import be, counted, duration, in_words, instant


def log_alarms(
    logs: Iterable[LogState], readers: Sequence[Reader], configs: KafkaConfigs, now_ms: int
) -> list[Condition]:
    """What is wrong at `now_ms`, by the clock of the run that was to bring it in order."""
    found = []
    for log in logs:
        hold = hold_offset(readers, log.partition)
        found += [_quarantined(log, configs), _overdue(log, configs, now_ms), _erasure(log, hold, configs, now_ms)]
    return [condition for condition in found if condition is not None]


def quarantine_subject(partition: int, since_ms: int) -> str:
    """A quarantine is one incident however often it is tried again; after a release the next one is another."""
    return f"partition {partition} since {since_ms}"


def check_failed(
    partition: int, state: PartitionState, expectations: Collection[str], link: str, now_ms: int, backoff_ms: int
) -> Condition:
    """A red check of the run of `now_ms`, as the incident of the quarantine that it leads to: a partition that a check
    holds already is held since its first red one, any other (also after a person's no) from now on."""
    since_ms, retry_at_ms = red_since_and_retry(state, now_ms, backoff_ms)
    names = ", ".join(sorted(set(expectations)))
    held = f"in quarantine since {instant(since_ms)} UTC{_retry(retry_at_ms)}"
    text = f"partition {partition}: check failed: {names}; {held}"
    return Condition(Event.CHECK_FAILED, quarantine_subject(partition, since_ms), text, link, partition)


def _retry(retry_at_ms: int) -> str:
    return f", tried again by the first run after {instant(retry_at_ms)} UTC"


def _quarantined(log: LogState, configs: KafkaConfigs) -> Condition | None:
    held = log.state.quarantine
    if held is None:
        return None
    until_ms = kept_until_ms(held.branch, configs.cleantail_failed_branch_retention_ms)
    kept = f"; what was held back is on branch {held.branch} until {instant(until_ms)} UTC" if until_ms else ""
    word = "in quarantine" if held.check_failed else "held back"
    since = f"{word} since {instant(held.since_ms)} UTC"
    text = f"partition {log.partition} is {since}{_retry(held.retry_at_ms)}: {held.reason}{kept}"
    subject = quarantine_subject(log.partition, held.since_ms)
    return Condition(Event.QUARANTINED, subject, text, partition=log.partition)


def _overdue(log: LogState, configs: KafkaConfigs, now_ms: int) -> Condition | None:
    """As the page's state `overdue`: late by Kafka's rule (semantics.md 1.3b), and there is something to clean."""
    decision = decide(log, configs, now_ms)
    if not (configs.compacts and decision.overdue_ms > 0 and decision.cleanable_bytes > 0):
        return None
    late = f"{duration(decision.overdue_ms)} past max.compaction.lag.ms, which is"
    text = f"partition {log.partition} is {late} {duration(configs.max_compaction_lag_ms)}: {in_words(decision.reason)}"
    return Condition(Event.DEADLINE_MISSED, f"partition {log.partition}", text, partition=log.partition)


def missed_deadlines(
    logs: Iterable[LogState], logs_before: Iterable[LogState], configs: KafkaConfigs, now_ms: int, before_ms: int
) -> list[Condition]:
    """Deadlines that are missed when a run begins, though it will clean the logs now: they were so at `before_ms`
    already (`logs_before`: the logs at that time), when the run before was to do it."""
    late = {log.partition for log in logs_before if _overdue(log, configs, before_ms)}
    found = [_overdue(log, configs, now_ms) for log in logs if log.partition in late]
    return [condition for condition in found if condition is not None]


def deadline_run_ms(schedule: str | None, configs: KafkaConfigs, now_ms: int) -> int:
    """Unix ms of the run that was to clean what was overdue then. Records that passed their deadline between two runs
    of a schedule are not late; without a schedule those are not for which it is less than max.compaction.lag.ms ago."""
    before_ms = run_before(schedule, now_ms)
    return now_ms - configs.max_compaction_lag_ms if before_ms is None else before_ms


def _erasure(log: LogState, hold: int | None, configs: KafkaConfigs, now_ms: int) -> Condition | None:
    late = [h for h in log.horizons if h.tombstones and now_ms > _due_ms(h, hold, configs) + _grace(configs)]
    if not (configs.compacts and late):
        return None
    count, first_ms = sum(h.tombstones for h in late), min(_due_ms(h, hold, configs) for h in late)
    still = f"up to {counted(count, 'tombstone')} {be(count)} still there"
    text = f"partition {log.partition}: {still}, due since {instant(first_ms)} UTC"
    return Condition(Event.ERASURE, f"partition {log.partition}", text, partition=log.partition)


def _due_ms(horizon: Horizon, hold: int | None, configs: KafkaConfigs) -> int:
    """Its horizon; where a reader has not read it yet, the end of the longest hold (semantics.md 3.9)."""
    waits = hold is not None and hold < horizon.end_offset
    return horizon.horizon_ms + (configs.cleantail_readers_hold_cap_ms if waits else 0)


def _grace(configs: KafkaConfigs) -> int:
    return configs.cleantail_erasure_grace_ms


def left_behind(name: str, partition: int, offset: int, gone_to: int) -> Condition:
    """Tombstones up to `gone_to` went before the reader, at `offset`, had read them: the cap was reached (3.9)."""
    text = (
        f"reader {name} is at offset {offset} of partition {partition}, and tombstones up to {gone_to} are gone: "
        "cleantail.readers.hold.cap.ms has passed; load the state anew (cleantail latest)"
    )
    subject = f"reader {name} of partition {partition}"
    return Condition(Event.HOLD_CAP, subject, text, partition=partition, mark=gone_to)


def still_behind(known: Iterable[Condition], readers: Iterable[Reader]) -> list[Condition]:
    """Those of the known hold cap incidents whose reader is registered, and still before what has gone."""
    behind = {f"reader {r.name} of partition {r.partition}": r.offset for r in readers}
    return [c for c in known if c.event is Event.HOLD_CAP and behind.get(c.subject, c.mark + 1) <= c.mark]


def still_quarantined(known: Iterable[Condition], logs: Iterable[LogState]) -> list[Condition]:
    """Those of the known failed checks whose partition is still held back by the quarantine that they led to."""
    held = {quarantine_subject(s.partition, s.state.quarantine.since_ms) for s in logs if s.state.quarantine}
    return [c for c in known if c.event is Event.CHECK_FAILED and c.subject in held]

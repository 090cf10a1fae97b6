"""Conditions that are wrong with a topic's logs, from table metadata. Pure.

1. CHECK_FAILED and QUARANTINED: a log is in quarantine, after a failed check or a user's answer.
2. DEADLINE_MISSED: dirty records have passed max.compaction.lag.ms (semantics.md 1.3b), and the run that should have
   cleaned them did not.
3. ERASURE: a tombstone was not removed within cleantail.erasure.grace.ms after it was due. Or a request to erase keys
   has neither a certificate nor much time left (erasure_alarms).
4. HOLD_CAP: a round removed tombstones that a registered reader had not read (semantics.md 3.9).
5. GAP: Kafka deleted records before they were read, a source table was changed, or the table cannot hold a record.
   Lasts a day, because nothing brings the records back.
6. RECONCILE: Kafka may have removed deletions before they were read. Lasts until a reconciliation is published.
7. APPROVAL: a round waits for approval.
8. REWRITTEN: another program took Cleantail's last round or ingestion out of the table's history. One condition for all
   logs, for a day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from cleantail.config.alert_channels import Event
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.run_schedule import run_before
from cleantail.erasure.requests import ErasureRequest
from cleantail.human import be, counted, duration, instant, interval, one_line, readable_reason
from cleantail.log.horizons import Reader, hold_offset
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.quarantine import kept_until_ms, red_since_and_retry
from cleantail.log.triggers import decide
from cleantail.watch.incidents import Condition, cause_of

LATE, DUE_SOON = "late", "soon"
"""Occurrences of a request to erase keys: channels are notified again when the deadline passes."""
GAP_TOLD_MS = 86_400_000
"""How long a gap counts as wrong."""


def log_alarms(
    logs: Iterable[LogState], readers: Sequence[Reader], configs: KafkaConfigs, now_ms: int
) -> list[Condition]:
    """Return the conditions at `now_ms`, by the clock of the run that cleans the logs."""
    logs = list(logs)
    conditions = _rewritten(logs, now_ms)
    for log in logs:
        hold = hold_offset(readers, log.partition)
        conditions += [_red(log, configs), _quarantined(log, configs)]
        conditions += [_overdue(log, configs, now_ms), _erasure(log, hold, configs, now_ms)]
        conditions += [_gap(log, now_ms), _forgotten(log)]
    return [condition for condition in conditions if condition is not None]


def _rewritten(logs: Iterable[LogState], now_ms: int) -> list[Condition | None]:
    """Return one condition for the topic, regardless of its number of logs. Empty if no log has the note."""
    for log in logs:
        note = log.state.rewritten
        if note and note.counts_at(now_ms):
            occurrence = f"without snapshot {note.snapshot_id}"
            return [Condition(Event.REWRITTEN, "history of main", note.text, occurrence=occurrence)]
    return []


def partition_subject(partition: int) -> str:
    """Return the subject of a partition's incident. Retries, releases and new failures keep it one incident."""
    return f"partition {partition}"


def quarantine_occurrence(since_ms: int) -> str:
    """Return what distinguishes a quarantine from the next one of the same partition, for example after a release."""
    return f"since {since_ms}"


def check_failed(
    partition: int, state: PartitionState, expectations: Collection[str], link: str, failed_ms: int, backoff_ms: int
) -> Condition:
    """Return a check that failed at `failed_ms`, as the incident of the quarantine that follows.

    A partition that a check already blocks stays in quarantine since its first failed check. Any other partition, also
    one that a user rejected, is in quarantine since `failed_ms`.
    """
    since_ms, retry_at_ms = red_since_and_retry(state, failed_ms, backoff_ms)
    names = ", ".join(sorted(set(expectations)))
    held = f"blocked since {instant(since_ms)} UTC{_retry(retry_at_ms)}"
    text = f"partition {partition}: check failed: {names}; {held}"
    return replace(_red_check(partition, text, since_ms, link), cause=cause_of(names))


def _red_check(partition: int, text: str, since_ms: int, link: str = "") -> Condition:
    subject, occurrence = partition_subject(partition), quarantine_occurrence(since_ms)
    return Condition(Event.CHECK_FAILED, subject, text, link, partition, occurrence=occurrence)


def _retry(retry_at_ms: int) -> str:
    return f", tried again by the first run after {instant(retry_at_ms)} UTC"


def _red(log: LogState, configs: KafkaConfigs) -> Condition | None:
    """Return the condition of `check_failed` for a quarantine that is in the table.

    Channels that missed the run's message get this condition.
    """
    held = log.state.quarantine
    if held is None or not held.check_failed:
        return None
    since = f"blocked since {instant(held.since_ms)} UTC{_retry(held.retry_at_ms)}{_kept(held, configs)}"
    return _red_check(log.partition, f"partition {log.partition}: {held.reason}; {since}", held.since_ms)


def _kept(held: Quarantine, configs: KafkaConfigs) -> str:
    until_ms = kept_until_ms(held.branch, configs.cleantail_failed_branch_retention_ms)
    return (
        f"; its unpublished records are on branch {one_line(held.branch)} until {instant(until_ms)} UTC"
        if until_ms
        else ""
    )


def _quarantined(log: LogState, configs: KafkaConfigs) -> Condition | None:
    held = log.state.quarantine
    if held is None:
        return None
    since = f"blocked since {instant(held.since_ms)} UTC"
    text = f"partition {log.partition} is {since}{_retry(held.retry_at_ms)}: {held.reason}{_kept(held, configs)}"
    subject, occurrence = partition_subject(log.partition), quarantine_occurrence(held.since_ms)
    cause = cause_of(held.reason)
    return Condition(Event.QUARANTINED, subject, text, partition=log.partition, occurrence=occurrence, cause=cause)


def _overdue(log: LogState, configs: KafkaConfigs, now_ms: int) -> Condition | None:
    """Return the condition of the page's state `overdue`, if the log has bytes to clean.

    A log is late by Kafka's rule (semantics.md 1.3b).
    """
    decision = decide(log, configs, now_ms)
    if not (configs.compacts and decision.overdue_ms > 0 and decision.cleanable_bytes > 0):
        return None
    late = f"{duration(decision.overdue_ms)} past max.compaction.lag.ms, which is"
    reason = readable_reason(decision.reason)
    text = f"partition {log.partition} is {late} {interval(configs.max_compaction_lag_ms)}: {reason}"
    return Condition(Event.DEADLINE_MISSED, partition_subject(log.partition), text, partition=log.partition)


def missed_deadlines(
    logs: Iterable[LogState], logs_before: Iterable[LogState], configs: KafkaConfigs, now_ms: int, before_ms: int
) -> list[Condition]:
    """Return the deadlines that are missed when a run begins, although it will clean the logs now.

    The deadlines were already missed at `before_ms`, when the previous run was to clean the logs. `logs_before`: the
    logs at that time.
    """
    late = {log.partition for log in logs_before if _overdue(log, configs, before_ms)}
    conditions = [_overdue(log, configs, now_ms) for log in logs if log.partition in late]
    return [condition for condition in conditions if condition is not None]


def deadline_run_ms(schedule: str | None, configs: KafkaConfigs, now_ms: int) -> int:
    """Return the planned start (Unix ms) of the run that should have cleaned the records that were overdue then.

    Records that pass their deadline between two scheduled runs are not late. Without a schedule they are late after
    another max.compaction.lag.ms.
    """
    before_ms = run_before(schedule, now_ms)
    return now_ms - configs.max_compaction_lag_ms if before_ms is None else before_ms


def _erasure(log: LogState, hold: int | None, configs: KafkaConfigs, now_ms: int) -> Condition | None:
    grace_ms = configs.cleantail_erasure_grace_ms
    late = [h for h in log.horizons if h.tombstones and now_ms > _due_ms(h, hold, configs) + grace_ms]
    if not (configs.compacts and late):
        return None
    count, first_ms = sum(h.tombstones for h in late), min(_due_ms(h, hold, configs) for h in late)
    still = f"up to {counted(count, 'tombstone')} {be(count)} still there"
    text = f"partition {log.partition}: {still}, due since {instant(first_ms)} UTC"
    return Condition(Event.ERASURE, partition_subject(log.partition), text, partition=log.partition)


def erasure_alarms(requests: Iterable[ErasureRequest], now_ms: int) -> list[Condition]:
    """Return the requests of a topic whose deadline is near, or has passed, at `now_ms` (wall clock)."""
    conditions = []
    for request in requests:
        late = request.is_overdue(now_ms)
        if not (late or request.is_due_soon(now_ms)):
            continue
        deadline = f"the deadline {'was' if late else 'is'} {instant(request.deadline_ms)} UTC"
        text = (
            f"the request {request.id} to erase {counted(request.keys, 'key')} is {request.state}, and {deadline}: "
            f"continue it with `cleantail erase {request.topic}`"
        )
        conditions.append(
            Condition(Event.ERASURE, f"request {request.id}", text, occurrence=LATE if late else DUE_SOON)
        )
    return conditions


def _gap(log: LogState, now_ms: int) -> Condition | None:
    """Return the newest gap of the log, for a day."""
    if not log.gaps or now_ms - log.gaps[-1].at_ms >= GAP_TOLD_MS:
        return None
    gap = log.gaps[-1]
    text = f"{gap.text}; ingestion continued after them ({gap.config})"
    return Condition(Event.GAP, gap.subject, text, partition=gap.partition, occurrence=gap.occurrence)


def _forgotten(log: LogState) -> Condition | None:
    if log.forgotten is None:
        return None
    subject = partition_subject(log.partition)
    return Condition(Event.RECONCILE, subject, log.forgotten.text, partition=log.partition)


def _due_ms(horizon: Horizon, hold: int | None, configs: KafkaConfigs) -> int:
    """Return when (Unix ms) tombstones are due: at their horizon, or at the end of the longest hold.

    The hold counts if a reader has not read them (semantics.md 3.9).
    """
    waits = hold is not None and hold < horizon.end_offset
    return horizon.horizon_ms + (configs.cleantail_readers_hold_cap_ms if waits else 0)


def left_behind(name: str, partition: int, offset: int, removed_to: int) -> Condition:
    """Return the condition of a reader that had not read tombstones when they were removed (semantics.md 3.9).

    The reader was at `offset`; tombstones up to `removed_to` were removed.
    """
    text = (
        f"reader {name} is at offset {offset} of partition {partition}, and tombstones up to {removed_to} were "
        "deleted: cleantail.readers.hold.cap.ms has passed; load the current state again (cleantail latest)"
    )
    subject = f"reader {name} of partition {partition}"
    return Condition(Event.HOLD_CAP, subject, text, partition=partition, mark=removed_to)


def still_behind(conditions: Iterable[Condition], readers: Iterable[Reader]) -> list[Condition]:
    """Return the HOLD_CAP conditions whose reader is registered and has not passed the removed tombstones."""
    behind = {f"reader {r.name} of partition {r.partition}": r.offset for r in readers}
    return [c for c in conditions if c.event is Event.HOLD_CAP and behind.get(c.subject, c.mark + 1) <= c.mark]


def round_waits(task_id: str, run_id: str, text: str, link: str) -> Condition:
    return Condition(Event.APPROVAL, f"task {task_id} of run {run_id}", text, link)

"""Samples of the metrics: from log states (a scrape, evaluate), from evidence rows, and from results of jobs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.erasure.requests import ErasureRequest
from cleantail.kafka.read_plan import SourceLag
from cleantail.log.horizons import due_tombstones
from cleantail.log.log_state import LogState
from cleantail.log.quarantine import quarantine_pause
from cleantail.log.snapshot_plan import SnapshotLag
from cleantail.log.triggers import overdue_ms
from cleantail.rounds.check_results import CheckResult, checks_of
from cleantail.rounds.checked_round import RoundResult, Verdict
from cleantail.rounds.commit_summaries import RECLAIM, ROLLBACK, Saved
from cleantail.rounds.evidence_row import EvidenceRow, deleted_of
from cleantail.rounds.job_report import JobReport
from cleantail.rounds.past_rounds import CHECKED, ERASED_BESIDE, GAP, HELD_BACK, PUBLISHED, REJECTED, outcome_of
from cleantail.rounds.publications import LastCompaction
from cleantail.rounds.station_results import ReclaimResult, StoredBytes
from cleantail.rounds.stations import BY_NAME
from cleantail.watch import metrics as m
from cleantail.watch.metrics import Metric, Sample

Totals = Counter[tuple[Metric, tuple[str, ...]]]


def log_samples(topic: str, logs: Sequence[LogState], configs: KafkaConfigs, now_ms: int) -> list[Sample]:
    """Return the gauges of a topic and of each of its logs.

    A topic that does not compact has no gauges of dirtiness.
    """
    samples = [sample for log in logs for sample in _of_log(topic, log, now_ms)]
    held = [log for log in logs if log.state.quarantine]
    samples.append(Sample(m.UNCLEANABLE_PARTITIONS, (topic,), len(held)))
    samples.append(Sample(m.UNCLEANABLE_BYTES, (topic,), sum(log.cleanable_bytes for log in held)))
    return [*samples, *_dirtiness(topic, logs, configs, now_ms)] if configs.compacts else samples


def _of_log(topic: str, log: LogState, now_ms: int) -> Iterator[Sample]:
    labels = (topic, str(log.partition))
    yield Sample(m.TOMBSTONES, labels, log.pending_tombstones)
    yield Sample(m.TOMBSTONES_DUE, labels, due_tombstones(log, now_ms))
    yield Sample(m.QUARANTINED, labels, int(log.state.quarantine is not None))
    yield Sample(m.RECONCILE_NEEDED, labels, int(log.forgotten is not None))
    yield Sample(m.LOG_RECORDS, labels, log.records)
    yield Sample(m.LOG_END, labels, log.log_end_offset)
    yield Sample(m.FIRST_DIRTY, labels, log.first_dirty_offset)
    sections = {"clean": log.clean_bytes, "cleanable": log.cleanable_bytes, "uncleanable": log.uncleanable_bytes}
    for section, size in sections.items():
        yield Sample(m.LOG_BYTES, (*labels, section), size)
    if log.state.last_round_ms is not None:
        yield Sample(m.LAST_ROUND, labels, log.state.last_round_ms / 1000)


def _dirtiness(topic: str, logs: Sequence[LogState], configs: KafkaConfigs, now_ms: int) -> Iterator[Sample]:
    most_ms = configs.max_compaction_lag_ms
    late = {log.partition: overdue_ms(log.earliest_dirty_timestamp_ms, most_ms, now_ms) / 1000 for log in logs}
    for log in logs:
        yield Sample(m.DIRTY_PERCENT, (topic, str(log.partition)), 100 * log.dirty_ratio)
        yield Sample(m.COMPACTION_DELAY, (topic, str(log.partition)), late[log.partition])
    dirtiest = max((log.dirty_ratio for log in logs if not quarantine_pause(log, now_ms)), default=0.0)
    yield Sample(m.MAX_DIRTY_PERCENT, (topic,), 100 * dirtiest)
    yield Sample(m.MAX_COMPACTION_DELAY, (topic,), max(late.values(), default=0.0))
    yield Sample(m.DIRTY_LIMIT, (topic,), 100 * configs.min_cleanable_dirty_ratio)


def lag_samples(topic: str, lag: SourceLag | SnapshotLag, now_ms: int) -> Iterator[Sample]:
    """Yield how far a table is behind its source. The time is left out if it is unknown."""
    if isinstance(lag, SourceLag):
        yield from (Sample(m.SOURCE_LAG, (topic, str(log.partition)), log.behind) for log in lag.logs)
    else:
        yield Sample(m.SOURCE_LAG_SNAPSHOTS, (topic,), lag.behind)
    since_ms = lag.unread_since_ms if lag.behind else now_ms
    if since_ms is not None:
        yield Sample(m.SOURCE_LAG_TIME, (topic,), max(now_ms - since_ms, 0) / 1000)


def saved_samples(topic: str, saved: Saved) -> list[Sample]:
    """Return samples of the savings of compaction, over the kept snapshots."""
    return [
        Sample(m.HIDDEN_BYTES, (topic,), saved.hidden_bytes),
        Sample(m.RECLAIMED_KEPT, (topic,), saved.reclaimed_bytes),
    ]


def compaction_samples(topic: str, last: LastCompaction | None) -> list[Sample]:
    """Return samples of the last compaction's cost. Empty before the first."""
    if last is None:
        return []
    return [
        Sample(m.MAX_CLEAN_TIME, (topic,), last.clean_ms / 1000),
        Sample(m.MAX_BUFFER_UTILIZATION, (topic,), last.buffer_percent),
        Sample(m.RECOPY_PERCENT, (topic,), last.recopy_percent),
        Sample(m.BYTES_READ, (topic,), last.bytes_read),
        Sample(m.BYTES_WRITTEN, (topic,), last.bytes_written),
        Sample(m.MESSAGES_READ, (topic,), last.messages_read),
        Sample(m.MESSAGES_WRITTEN, (topic,), last.messages_written),
        Sample(m.MAP_BYTES_READ, (topic,), last.map_bytes_read),
        Sample(m.MAP_MESSAGES_READ, (topic,), last.map_messages_read),
        Sample(m.INVALID_MESSAGES_READ, (topic,), last.invalid_messages_read),
    ]


def stored_samples(stored: Mapping[str, StoredBytes]) -> Iterator[Sample]:
    """Yield samples of the bytes of each topic and of the evidence. `stored`: topic -> its last measurement."""
    for topic, of_topic in stored.items():
        for part in ("data", "metadata", "data_docs"):
            yield Sample(m.STORED, (topic, part), getattr(of_topic, part))
    if stored:
        yield Sample(m.EVIDENCE_BYTES, (), max(stored.values(), key=lambda found: found.at_ms).evidence)


def erasure_samples(topic: str, requests: Sequence[ErasureRequest], now_ms: int) -> Iterator[Sample]:
    """Yield the gauges of a topic's requests to erase keys; no gauges if the topic never had a request."""
    if not requests:
        return
    still_open = [request for request in requests if request.is_open]
    yield Sample(m.ERASURES_OPEN, (topic,), len(still_open))
    yield Sample(m.ERASURES_OVERDUE, (topic,), sum(request.is_overdue(now_ms) for request in still_open))
    if still_open:
        first_ms = min(request.deadline_ms for request in still_open)
        yield Sample(m.ERASURE_LEFT, (topic,), (first_ms - now_ms) / 1000)


def totals_of(rows: Iterable[EvidenceRow]) -> Totals:
    """Return the sums over rows of the evidence table (past_rounds) as counters."""
    totals: Totals = Counter()
    for row in rows:
        topic, partition, outcome = row["topic"], row["partition"], outcome_of(row)
        if row["kind"] == RECLAIM:
            totals += Counter({(m.RECLAIMED, (topic,)): row["freed_bytes"]})
            continue
        if row["kind"] in (GAP, ERASED_BESIDE):
            totals += _dropped(topic, partition, deleted_of(row)) if partition is not None else Counter()
            continue
        if row["kind"] == ROLLBACK:
            totals += Counter({(m.TAKEN_AGAIN, (topic,)): row["freed_bytes"]})
        if outcome == PUBLISHED and (saved_bytes := row.get("saved_bytes")):
            totals[m.PUT_BACK if row["kind"] == ROLLBACK else m.SAVED, (topic,)] += saved_bytes
        totals += _failed(topic, partition, checks_of(row))
        rounds = row.get("rounds") or 1
        totals += _rounds(topic, partition, row["kind"], outcome, rounds) if outcome != CHECKED else Counter()
        totals += _dropped(topic, partition, deleted_of(row)) if outcome == PUBLISHED else Counter()
    return totals


def _rounds(topic: str, partition: int, kind: str, outcome: str, rounds: int = 1) -> Totals:
    return Counter({(m.ROUNDS, (topic, str(partition), kind, outcome)): rounds})


def _failed(topic: str, partition: int, checks: Iterable[CheckResult]) -> Totals:
    log = (topic, str(partition))
    return Counter((m.CHECKS_FAILED, (*log, check.severity)) for check in checks if not check.passed)


def _dropped(topic: str, partition: int, deleted: Mapping[str, int]) -> Totals:
    log = (topic, str(partition))
    return Counter({(m.DROPPED, (*log, reason)): count for reason, count in deleted.items() if count})


def total_samples(totals: Totals) -> list[Sample]:
    """Return counters as samples, in the order of their labels."""
    ordered = sorted(totals.items(), key=lambda item: (item[0][0].name, item[0][1]))
    return [Sample(metric, labels, count) for (metric, labels), count in ordered]


def job_samples(job: str, topic: str, result: RoundResult | ReclaimResult) -> list[Sample]:
    """Return samples of an ended Spark job, or of a station of a pack: increments for counters, values for gauges.

    The samples show what this job blocked and published, and what its compaction cost. A job that failed without a
    result has no samples.
    """
    if isinstance(result, ReclaimResult):
        return _freed(topic, result.reclaimed_bytes)
    station, totals = BY_NAME[job], Totals()
    if station.checks:
        totals += _held_back(topic, station.kind, result.verdicts)
    if station.publishes and not (isinstance(result, JobReport) and result.done_before):
        totals += _became(topic, result.kind or station.kind, result)
    if not isinstance(result, JobReport):
        return total_samples(totals)
    last = LastCompaction.of_round(result.units, result.measures)
    return [*_freed(topic, result.reclaimed_bytes), *total_samples(totals), *compaction_samples(topic, last)]


def _freed(topic: str, reclaimed_bytes: int) -> list[Sample]:
    return [Sample(m.RECLAIMED, (topic,), reclaimed_bytes)] if reclaimed_bytes > 0 else []


def _became(topic: str, kind: str, result: RoundResult) -> Totals:
    """Return the counters of a round's end: published logs with their dropped records, and rejected logs."""
    totals: Totals = Counter()
    for outcome, logs in ((PUBLISHED, result.published), (REJECTED, result.rejected)):
        totals += sum((_rounds(topic, p, kind, outcome) for p in logs), Counter())
    measures = (m for m in result.measures if m.partition in result.published)
    return sum((_dropped(topic, m.partition, m.deleted) for m in measures), totals)


def _held_back(topic: str, kind: str, verdicts: Iterable[Verdict]) -> Totals:
    """Return the counters of a check: failed logs, and expectations that were not met.

    Logs that passed count when they are published.
    """
    totals: Totals = Counter()
    for verdict in verdicts:
        totals += _failed(topic, verdict.partition, (*verdict.failures, *verdict.warnings))
        totals += _rounds(topic, verdict.partition, kind, HELD_BACK) if not verdict.passed else Counter()
    return totals

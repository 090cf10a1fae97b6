"""Make a round: a compaction, an expiry of tombstones, a reconciliation with the source, or an erasure, on a branch.

A compaction finds superseded records from key columns.

An expiry removes tombstones whose delete horizon has passed, even without new data. The ledgers in the current table
decide which are due (semantics.md 1.5, 3.3, 3.4).

A reconciliation removes keys that are alive in the table but gone at the brokers:
1. It compares the part of the table that was read from Kafka with all current records of the brokers. gone_keys defines
   when a key is gone.
2. It also removes records of the active segment, and records within min.compaction.lag.ms (semantics.md 3.12). The
   broker's own readers could see them, and a later tombstone, for as long as its configs guarantee.
3. Tombstones stay until their horizon, even tombstones of removed keys.

An erasure removes every record of erased keys, also in the active segment and in blocked logs. It removes tombstones
too, because a tombstone has the key. The denylist keeps later records out, and needs no tombstone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from pyroaring import BitMap64

from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.errors import CleantailError
from cleantail.kafka.read_plan import BrokerTopic
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.horizons import hold_offset, left_behind, spans_of
from cleantail.log.log_state import LogState
from cleantail.log.quarantine import quarantine_pause
from cleantail.log.task_shares import ends_where_full, map_slots, task_plan
from cleantail.log.work_units import PartitionWork, WorkUnit, round_name
from cleantail.rounds.checked_round import EXPIRED, STAGED_UNIT_JSON, UNIT, LeftBehind, StagedUnit, UnitCounts
from cleantail.rounds.run_plan import EvaluatedTopic
from cleantail.rounds.station_results import ComparedLog, ComparisonResult
from spark_jobs.engine.compared_readers import NOTHING_NEW, ReaderComparison, compare_readers
from spark_jobs.engine.erased_records import ERASED, find_erased
from spark_jobs.engine.expired_tombstones import find_expired
from spark_jobs.engine.gone_keys import GONE, GoneKeys, LogBounds, find_gone, merged_gone
from spark_jobs.engine.log_task import LogRemovals, merged_removals
from spark_jobs.engine.registrations import records_again, registered_twice, removed_with
from spark_jobs.engine.removals import INVALID, SUPERSEDED, decide_bucket, find_removals, read_share
from spark_jobs.engine.source_keys import buckets_of, comparable, compared, read_source_keys
from spark_jobs.engine.tally import TombstoneLedger
from spark_jobs.engine.tasks import LogWork, log_tasks, run_apart, run_work
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.snapshot_files import RemovedPositions, SnapshotFiles, count_by_log, union_of
from spark_jobs.iceberg.tables import TopicTable, branch_name
from spark_jobs.round.released_logs import note_rewritten


def expiry_unit(
    plan: EvaluatedTopic,
    partitions: Collection[int],
    hold_cap_ms: int,
    fresh_from: Mapping[int, int],
) -> WorkUnit:
    """Return the logs with due tombstones as one unit. Tombstones above a log's first dirty offset stay."""
    works = tuple(
        replace(
            _work(log, log.first_dirty_offset, log.records),
            hold_offset=hold_offset(plan.readers, log.partition),
            hold_cap_ms=hold_cap_ms,
            fresh_from=fresh_from.get(log.partition),
        )
        for log in plan.logs
        if log.partition in plan.swept and log.partition in partitions
    )
    horizons = {log.partition: log.horizons for log in plan.logs}
    due = tuple(w for w in works if spans_of(w, horizons[w.partition], plan.now_ms))
    return WorkUnit(plan.round, 0, plan.now_ms, plan.snapshot_id, branch_name(f"ct_{plan.round}_x0"), due)


def expire_unit(table: TopicTable, plan: EvaluatedTopic, unit: WorkUnit) -> StagedUnit:
    """Delete due tombstones on the unit's branch. Returns the unit with counts, and with readers whose hold ended."""
    began_ms = int(time.time() * 1000)
    note_rewritten(table, unit.now_ms)
    horizons = {log.partition: log.horizons for log in plan.logs}
    spans = {w.partition: spans_of(w, horizons[w.partition], unit.now_ms) for w in unit.partitions}
    files = table.files_at(unit.base_snapshot_id)
    ledgers = {w.partition: TombstoneLedger(tuple(spans[w.partition]), clean_to=w.end_offset) for w in unit.partitions}
    work, tasks = partial(find_expired, ledgers=ledgers), log_tasks(table, unit, files)
    expired = run_apart(table, work, merged_removals, tasks, "find what an expiry removes")
    compared = compare_readers(table, unit, files, tasks)
    blocked = compared.blocked
    removed = removed_positions(expired, blocked).get(EXPIRED, {})
    twice = registered_twice(tasks, blocked)
    deleted = {EXPIRED: count_by_log(removed)} | removed_with(twice, records_again(table, tasks, blocked))
    counts = UnitCounts(deleted, saved_bytes=files.bytes_by_log([removed]), misread=blocked)
    files.delete_positions(table, unit.branch, removed, twice, properties=compared.properties)
    last = {log: offset for each in expired for log, offset in each.last.items() if log not in blocked}
    behind = tuple(
        LeftBehind(**asdict(reader), gone_to=last[reader.partition]) for reader in left_behind(plan.readers, last)
    )
    return StagedUnit.of(unit, counts, began_ms=began_ms, left_behind=behind)


def reconciliation_unit(
    table: TopicTable, source: SourceTopic, now_ms: int, partitions: Collection[int] | None = None, wait: bool = False
) -> WorkUnit:
    """Return the logs to compare as one unit: `partitions`, or all. `wait` omits logs whose quarantine pause has not
    ended. Raises as SourceTopic.require_comparable does."""
    topic = table.topic
    facts = read_facts(topic)
    if facts is None or facts.snapshot_id is None:
        raise CleantailError(f"topic {topic.topic} has no records yet; nothing was compared, and nothing removed")
    broker = source.require_comparable(facts.source)
    works = tuple(
        work
        for log in log_states(topic, facts, now_ms)
        if (partitions is None or log.partition in partitions) and not (wait and quarantine_pause(log, now_ms))
        if (work := _compared(log, facts, broker)).end_offset > 0
    )
    name = round_name(now_ms, facts.sequence_number)
    return WorkUnit(name, 0, now_ms, facts.snapshot_id, branch_name(f"ct_{name}_r0"), works)


def _compared(log: LogState, facts: TableFacts, broker: BrokerTopic) -> PartitionWork:
    """Return the part of a log to compare: all records read so far, up to the last stable offset at that time."""
    p, source = log.partition, facts.source
    end = source.next_offsets.get(p, 0) if source and p in broker.logs else 0
    end = min(end, source.open_from.get(p, end)) if source else 0
    work = _work(log, end, sum(file.records for file in facts.files_of(p)))
    return replace(work, source_start=broker.logs[p].start if p in broker.logs else None)


def _work(log: LogState, end_offset: int, records: int) -> PartitionWork:
    """Return the work on a log that is read from its start up to the end. `records`: in its files."""
    return PartitionWork(
        partition=log.partition,
        first_dirty_offset=log.first_dirty_offset,
        end_offset=end_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        bytes=log.total_bytes,
        records=records,
    )


@dataclass(frozen=True, slots=True)
class SourceComparison:
    """The gone keys of a unit's logs. `unit` has the offsets up to which the brokers were read."""

    unit: WorkUnit
    gone: GoneKeys
    files: SnapshotFiles
    again: Mapping[str, Mapping[int, int]]
    twice: tuple[LogFile, ...] = ()
    readers: ReaderComparison = NOTHING_NEW

    @property
    def removed(self) -> dict[tuple[int, int], BitMap64]:
        """Return the positions of the records of gone keys, except in blocked logs."""
        kept = {name: bits for name, bits in self.gone.positions.items() if name[0] not in self.readers.blocked}
        return {name: BitMap64.deserialize(bits) for name, bits in kept.items()}


def compare(table: TopicTable, source: SourceTopic, unit: WorkUnit) -> SourceComparison:
    """Compare the table's keys with the brokers'. Changes nothing."""
    files = table.files_at(unit.base_snapshot_id)
    tasks = log_tasks(table, unit, files)
    context, memory_bytes = table.spark.sparkContext, table.platform.cleaner.cleantail_task_memory_bytes
    broker, logs = comparable(table, source), [w.partition for w in unit.partitions]
    offsets = sum(broker.logs[p].end - broker.logs[p].start for p in logs if p in broker.logs)
    buckets = buckets_of(tasks, offsets, memory_bytes, context.defaultParallelism)
    keys = read_source_keys(context, source, broker, logs, buckets, memory_bytes)
    try:
        works = tuple(
            replace(w, source_start=keys.starts[w.partition], source_end=keys.ends[w.partition])
            for w in unit.partitions
        )
        bounds = {w.partition: LogBounds(w.end_offset, keys.starts[w.partition], keys.ends[w.partition]) for w in works}
        gone = merged_gone(compared(table, tasks, keys, buckets, partial(find_gone, bounds)))
    finally:
        keys.release()
    readers = compare_readers(table, unit, files, tasks)
    twice = registered_twice(tasks, readers.blocked)
    again = removed_with(twice, records_again(table, tasks, readers.blocked))
    return SourceComparison(replace(unit, partitions=works), gone, files, again, tuple(twice), readers)


def reconcile_unit(table: TopicTable, source: SourceTopic, unit: WorkUnit) -> StagedUnit:
    """Delete the records of gone keys on the unit's branch. Returns the unit with its counts."""
    began_ms = int(time.time() * 1000)
    note_rewritten(table, unit.now_ms)
    comparison = compare(table, source, unit)
    removed = comparison.removed
    counts = UnitCounts(
        {GONE: count_by_log(removed)} | dict(comparison.again),
        saved_bytes=comparison.files.bytes_by_log([removed]),
        misread=comparison.readers.blocked,
    )
    staged = StagedUnit.of(comparison.unit, counts, began_ms=began_ms)
    done = {UNIT: STAGED_UNIT_JSON.packed(staged)}  # forces a commit even if no key is gone: the commit ends the state
    properties = comparison.readers.properties
    comparison.files.delete_positions(table, unit.branch, removed, comparison.twice, done, properties)
    return staged


def erasure_unit(table: TopicTable, now_ms: int, partitions: Collection[int]) -> WorkUnit:
    """Return these logs of an erasure as one unit. Without a table, the unit has no logs."""
    topic = table.topic
    facts = read_facts(topic) if table.exists() else None
    if facts is None or facts.snapshot_id is None:
        return WorkUnit("", 0, now_ms, 0, "", ())
    works = tuple(
        _work(log, log.log_end_offset, sum(file.records for file in facts.files_of(log.partition)))
        for log in log_states(topic, facts, now_ms)
        if log.partition in partitions and facts.files_of(log.partition)
    )
    name = round_name(now_ms, facts.sequence_number)
    return WorkUnit(name, 0, now_ms, facts.snapshot_id, branch_name(f"ct_{name}_e0"), works)


def erase_unit(table: TopicTable, keys: ErasedKeys, unit: WorkUnit) -> StagedUnit:
    """Delete every record of the keys on the unit's branch. Returns the unit with its counts."""
    began_ms = int(time.time() * 1000)
    note_rewritten(table, unit.now_ms)
    files = table.files_at(unit.base_snapshot_id)
    tasks = log_tasks(table, unit, files)
    found = run_apart(table, partial(find_erased, keys=keys), merged_removals, tasks, "find records of erased keys")
    compared = compare_readers(table, unit, files, tasks)
    blocked = compared.blocked
    removed = removed_positions(found, blocked).get(ERASED, {})
    twice = registered_twice(tasks, blocked)
    deleted = {ERASED: count_by_log(removed)} | removed_with(twice, records_again(table, tasks, blocked))
    counts = UnitCounts(deleted, saved_bytes=files.bytes_by_log([removed]), misread=blocked)
    staged = StagedUnit.of(unit, counts, began_ms=began_ms)
    done = {UNIT: STAGED_UNIT_JSON.packed(staged)}
    files.delete_positions(table, unit.branch, removed, twice, done, compared.properties)
    return staged


def dry_comparison(table: TopicTable, source: SourceTopic, now_ms: int) -> ComparisonResult:
    """Count the keys and records that a reconciliation would remove now. Changes nothing."""
    comparison = compare(table, source, reconciliation_unit(table, source, now_ms))
    records, gone = count_by_log(comparison.removed), comparison.gone
    logs = (
        ComparedLog(p, work.end_offset, gone.keys.get(p, 0), records.get(p, 0), gone.cut_off.get(p, 0))
        for work in comparison.unit.partitions
        for p in (work.partition,)
    )
    return ComparisonResult(table.topic.kafka_topic, tuple(sorted(logs, key=lambda log: log.partition)))


FIND_REMOVALS = LogWork("find what a round removes", find_removals, read_share, decide_bucket, merged_removals)


def compact_unit(table: TopicTable, unit: WorkUnit) -> StagedUnit:
    """Write the deletes of the unit to a branch. Returns the unit with its counts.

    Removes nothing from a log that `cleantail.keyless.policy` blocks, or in which two readers differ
    (compared_readers). The counts name such a log, and its check fails."""
    began_s, began_ms = time.monotonic(), int(time.time() * 1000)
    note_rewritten(table, unit.now_ms)
    files = table.files_at(unit.base_snapshot_id)
    unit = replace(unit, branch=branch_name(unit.branch))
    tasks = log_tasks(table, unit, files, by_rounds=ends_where_full(table.platform.cleaner))
    plan = task_plan(
        unit, table.platform, table.topic.config, any(file.log is None for task in tasks for file in task.files)
    )
    removals = run_work(table, FIND_REMOVALS, tasks)
    # counts all keyless records below the planned end, so that a log which must fail later does not start
    keyless = {log: records for each in removals for log, records in each.keyless.items()}
    kept = keyless if table.topic.config.cleantail_keyless_policy == "fail" else {}
    retained = {work.partition for work in unit.partitions if work.only_retention}
    compared = compare_readers(table, unit, files, tasks, retained)
    held = {**kept, **compared.blocked}
    by_reason = removed_positions(removals, held)
    # a log ends where its offset map was full
    ends = {log: end for each in removals for log, end in each.ends.items()}
    works = (w.ending_at(ends[w.partition]) if w.partition in ends else w for w in unit.partitions)
    unit = replace(unit, partitions=tuple(works))
    twice = registered_twice(tasks, held)
    counts = UnitCounts(
        deleted={reason: count_by_log(positions) for reason, positions in by_reason.items()}
        | removed_with(twice, records_again(table, tasks, held)),
        hidden_bytes=files.bytes_by_log(positions for reason, positions in by_reason.items() if reason != "retention"),
        saved_bytes=files.bytes_by_log(by_reason.values()),
        plan=plan,
        keyless=kept,
        misread=compared.blocked,
    )
    staged = StagedUnit.of(
        unit,
        counts,
        began_ms=began_ms,
        clean_ms=int((time.monotonic() - began_s) * 1000),
        map_slots=map_slots(table.platform.cleaner, table.topic.config),
    )
    done = {UNIT: STAGED_UNIT_JSON.packed(staged)}
    files.delete_positions(table, unit.branch, union_of(by_reason.values()), twice, done, compared.properties)
    return staged


def removed_positions(removals: Sequence[LogRemovals], held: Collection[int]) -> dict[str, RemovedPositions]:
    """Return the positions by reason, without the `held` logs."""
    by_reason: dict[str, dict[tuple[int, int], BitMap64]] = {SUPERSEDED: {}}
    for each in removals:
        for reason, positions in each.positions.items():
            kept = {name: BitMap64.deserialize(bits) for name, bits in positions.items() if name[0] not in held}
            by_reason.setdefault(reason, {}).update(kept)
    return {reason: positions for reason, positions in by_reason.items() if positions or reason != INVALID}

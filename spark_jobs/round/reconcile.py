"""Reconcile a table with its source: remove keys that are alive here and gone at the brokers, by a round of its own.

1. The table, as far as it was read from Kafka, is compared with all that the brokers have now (gone_keys says when a
   key is gone).
2. Records of the active segment, and those within min.compaction.lag.ms, go as any other (semantics.md 3.12): the
   broker has let its own readers see them for as long as its configs promise, and a tombstone after them.
3. Tombstones stay, also those of keys that go: they leave by their horizon, as ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyroaring import BitMap64

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.kafka.read_plan import BrokerTopic
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.runs.evaluate import log_states, read_facts
from cleantail.lake.table_metadata import TableFacts
from cleantail.log.log_state import LogState
from cleantail.log.triggers import quarantine_pause
from cleantail.log.work_units import PartitionWork, WorkUnit, round_name
from cleantail.rounds.checked_round import STAGED_UNIT_JSON, UNIT, StagedUnit, UnitCounts
from cleantail.rounds.station_results import ComparedLog, ComparisonResult
from spark_jobs.engine.compared_readers import NOTHING_NEW, ReaderComparison, compare_readers
from spark_jobs.engine.registrations import records_again, registered_twice, removed_with
from spark_jobs.engine.source.broker_keys import read_source_keys
from spark_jobs.engine.source.comparison import buckets_of, comparable, compared
from spark_jobs.engine.source.gone_keys import GONE, GoneKeys, LogBounds, find_gone, merged_gone
from spark_jobs.engine.tasks import log_tasks
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.snapshot_files import SnapshotFiles, count_by_log
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.released_logs import note_rewritten

_NOTHING = "nothing was compared, and nothing removed"


def reconciliation_unit(
    table: TopicTable,
    platform: Platform,
    source: SourceTopic,
    now_ms: int,
    partitions: Collection[int] | None = None,
    wait: bool = False,
) -> WorkUnit:
    """Returns the logs to compare as one unit: `partitions`, or all. `wait`: without those whose pause of a quarantine
    is not over. Raises as SourceTopic.require_comparable does."""
    topic = table.topic
    facts = read_facts(topic, platform)
    if facts is None or facts.snapshot_id is None:
        raise CleantailError(f"topic {topic.topic} has no records yet; {_NOTHING}")
    broker = source.require_comparable(facts.source)
    works = tuple(
        work
        for log in log_states(topic, facts, now_ms)
        if (partitions is None or log.partition in partitions) and not (wait and quarantine_pause(log, now_ms))
        if (work := _work(log, facts, broker)).end_offset > 0
    )
    name = round_name(now_ms, facts.sequence_number)
    return WorkUnit(name, 0, now_ms, facts.snapshot_id, branch_name(f"ct_{name}_r0"), works)


def _work(log: LogState, facts: TableFacts, broker: BrokerTopic) -> PartitionWork:
    """Returns what is compared of a log: all that was read of it, up to the last stable offset of that time."""
    p, source = log.partition, facts.source
    end = source.next_offsets.get(p, 0) if source and p in broker.logs else 0
    return PartitionWork(
        partition=p,
        first_dirty_offset=log.first_dirty_offset,
        end_offset=min(end, source.open_from.get(p, end)) if source else 0,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        bytes=log.total_bytes,
        records=sum(file.records for file in facts.files_of(p)),
        source_start=broker.logs[p].start if p in broker.logs else None,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Holds what is gone of a unit's logs, and the unit with how far the brokers were read."""

    unit: WorkUnit
    gone: GoneKeys
    files: SnapshotFiles
    again: Mapping[str, Mapping[int, int]]
    twice: tuple[LogFile, ...] = ()
    readers: ReaderComparison = NOTHING_NEW

    @property
    def removed(self) -> dict[tuple[int, int], BitMap64]:
        """Returns the positions of the records of keys that are gone, without those of logs that are blocked."""
        kept = {name: bits for name, bits in self.gone.positions.items() if name[0] not in self.readers.blocked}
        return {name: BitMap64.deserialize(bits) for name, bits in kept.items()}


def compare(table: TopicTable, platform: Platform, source: SourceTopic, unit: WorkUnit) -> Comparison:
    """Reads the brokers' keys and the table's, and returns what is gone; changes nothing."""
    files = table.files_at(unit.base_snapshot_id)
    tasks = log_tasks(table, platform, unit, files)
    context, memory_bytes = table.spark.sparkContext, platform.cleaner.cleantail_task_memory_bytes
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
        gone = merged_gone(compared(table, platform, tasks, keys, buckets, partial(find_gone, bounds)))
    finally:
        keys.release()
    readers = compare_readers(table, platform, unit, files, tasks)
    twice = registered_twice(tasks, readers.blocked)
    again = removed_with(twice, records_again(table, platform, tasks, readers.blocked))
    return Comparison(replace(unit, partitions=works), gone, files, again, tuple(twice), readers)


def reconcile_unit(table: TopicTable, platform: Platform, source: SourceTopic, unit: WorkUnit) -> StagedUnit:
    """Deletes on the unit's branch what is gone at its source; returns the unit with its counts."""
    began_ms = int(time.time() * 1000)
    note_rewritten(table, unit.now_ms)
    comparison = compare(table, platform, source, unit)
    removed = comparison.removed
    counts = UnitCounts(
        {GONE: count_by_log(removed)} | dict(comparison.again),
        saved_bytes=comparison.files.bytes_by_log([removed]),
        misread=comparison.readers.blocked,
    )
    staged = StagedUnit.of(comparison.unit, counts, began_ms=began_ms)
    done = {UNIT: STAGED_UNIT_JSON.packed(staged)}  # a commit also where nothing is gone: that ends the state, too
    properties = comparison.readers.properties
    table.delete_positions(unit.branch, comparison.files, removed, comparison.twice, done, properties)
    return staged


def dry_comparison(table: TopicTable, platform: Platform, source: SourceTopic, now_ms: int) -> ComparisonResult:
    """Returns what a reconciliation would remove now; changes nothing."""
    comparison = compare(table, platform, source, reconciliation_unit(table, platform, source, now_ms))
    records, gone = count_by_log(comparison.removed), comparison.gone
    logs = (
        ComparedLog(p, work.end_offset, gone.keys.get(p, 0), records.get(p, 0), gone.cut_off.get(p, 0))
        for work in comparison.unit.partitions
        for p in (work.partition,)
    )
    return ComparisonResult(table.topic.kafka_topic, tuple(sorted(logs, key=lambda log: log.partition)))

"""Measure the result of a round in its logs, on base and branch: violations of each rule, and the new state.

Tombstones, and the ledger of their horizons after the publish (semantics.md 1.5, 3.3):

1. An entry of the ledger covers the tombstones from the end of the previous entry to its own end. All share a horizon.
2. A round adds an entry up to its end. This starts the clock of the tombstones that no earlier round has kept.
3. The round also starts the clock of late tombstones, which are below the ledger's end. Each gets a separate entry. For
   more than LATE_LIMIT late tombstones, one entry with a new horizon replaces all entries.
4. An expiry sweeps due entries, up to the first tombstone that a record still needs (2, hazards 2 and 3).
5. Tombstones are counted only in entries that had tombstones, and in offsets that no round has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, VALUE
from cleantail.errors import ConflictError, TableError
from cleantail.log.horizons import as_due, new_horizon_ms, spans_of, swept
from cleantail.log.partition_state import (
    Horizon,
    PartitionState,
    spans_with_tombstones,
    states_of_properties,
    with_late_tombstones,
    with_round,
)
from cleantail.log.round_state import proof_due
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.checked_round import StagedUnit
from cleantail.rounds.commit_summaries import BEFORE, unpacked
from cleantail.rounds.publications import COUNTS
from cleantail.sources.kcat import LONG_MAX
from spark_jobs.engine.contradictions import LateFiles, late_files, of_expiry, of_round
from spark_jobs.engine.expired_tombstones import judge_expiry
from spark_jobs.engine.log_task import EntryCounts, LogCounts, LogTask, merged_counts
from spark_jobs.engine.registrations import on_branch, records_again
from spark_jobs.engine.removals import COPIES
from spark_jobs.engine.tally import Ledgers, TombstoneLedger
from spark_jobs.engine.tasks import LogWork, log_tasks, run_apart, run_work
from spark_jobs.engine.violations import count_violations, decide_bucket, read_share
from spark_jobs.iceberg.iceberg_reads import branch_change, rounds_since
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.log_files import with_branch
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable, below_end, spans_read

LATE_LIMIT = 2_000
"""Maximum number of late tombstones with separate horizons. If there are more, all tombstones of the log get one new
horizon."""


def ledgers_of(
    unit: WorkUnit,
    states: Mapping[int, PartitionState],
    next_ledgers: Mapping[int, tuple[Horizon, ...]],
    expiring: bool,
) -> dict[int, TombstoneLedger]:
    """Return the ledger of each log for tasks. Its spans cover all live tombstones: entries of the ledger that had
    tombstones, and offsets that no round has read."""
    ledgers = {}
    for work in unit.partitions:
        horizons = states[work.partition].horizons
        counted = spans_with_tombstones(horizons, work.first_dirty_offset)
        swept_spans = spans_of(work, horizons, unit.now_ms) if expiring else []
        ledgers[work.partition] = TombstoneLedger(
            spans=(*counted, *swept_spans, (work.first_dirty_offset, LONG_MAX)),
            entries=next_ledgers[work.partition],
            due=as_due(work, horizons, unit.now_ms),
            clean_to=work.end_offset,
            hold_offset=work.hold_offset,
            hold_cap_ms=work.hold_cap_ms,
        )
    return ledgers


def with_tombstones(
    measure: LogMeasure, ledger: tuple[Horizon, ...], by_entry: Mapping[int | None, EntryCounts]
) -> LogMeasure:
    """Add the counts of tombstones (end of a ledger's entry -> counts) to the measures of a log. An entry is swept up
    to its first guard, a due tombstone that must still hide a record."""
    none = EntryCounts()
    return replace(
        measure,
        tombstones_in=sum(counts.before for counts in by_entry.values()),
        tombstones_out=sum(counts.after for counts in by_entry.values()),
        guards=sum(counts.guards for counts in by_entry.values()),
        horizons=tuple(
            replace(
                horizon,
                tombstones=(counts := by_entry.get(horizon.end_offset, none)).after,
                swept_to=min(
                    horizon.swept_to, LONG_MAX if counts.guard_from is None or not counts.guards else counts.guard_from
                ),
            )
            for horizon in ledger
        ),
        head_tombstones=by_entry.get(None, none).after,
    )


def next_ledger(
    table: TopicTable,
    unit: WorkUnit,
    work: PartitionWork,
    state: PartitionState,
    late_by_log: Mapping[int, LateFiles],
    expiring: bool,
) -> tuple[Horizon, ...]:
    """Return the ledger of horizons after this round's publish. The clock of a tombstone that no earlier round has kept
    starts now (semantics.md 1.5)."""
    if expiring:
        return swept(work, state.horizons, unit.now_ms)
    horizon_ms = new_horizon_ms(table.topic.config, unit.now_ms)
    tombstones = _late_tombstones(table, unit, work, late_by_log[work.partition])
    if len(tombstones) > LATE_LIMIT:
        return (Horizon(max(work.end_offset, state.ledger_end_offset), horizon_ms),)
    return with_late_tombstones(with_round(state.horizons, work.end_offset, horizon_ms), tombstones, horizon_ms)


def _late_tombstones(table: TopicTable, unit: WorkUnit, work: PartitionWork, ranges: LateFiles) -> list[int]:
    """Return the offsets of live tombstones below the ledger's end that no earlier round has read."""
    if not ranges:
        return []
    offsets = set[int]()
    for low, high, files in ranges:
        with table.on_branch(unit.branch, {work.partition: (low, high)}, set(files)) as late:
            rows = late.where(F.col(VALUE).isNull()).select(OFFSET).limit(LATE_LIMIT + 1).collect()
        offsets.update(row[OFFSET] for row in rows)
    return sorted(offsets)


HASH = "ct_hash"
NO_COUNTS = LogCounts(-1, {}, {})


def measure_unit(table: TopicTable, unit: StagedUnit, expiring: bool, iceberg: Any = None) -> list[LogMeasure]:
    """Return the measures of each log of the unit: violations of each rule, and values of its new state. `iceberg`: the
    table, if this round's check has loaded it before."""
    iceberg = iceberg or table.load()
    known = states_at_base(table, unit, iceberg)
    states = {w.partition: known.get(w.partition) or PartitionState() for w in unit.partitions}
    files = RoundFiles.of(table, unit, iceberg)
    late_by_log = {
        w.partition: [] if expiring else late_files(table, unit, w, states[w.partition]) for w in unit.partitions
    }
    next_ledgers = {
        w.partition: next_ledger(table, unit, w, states[w.partition], late_by_log, expiring) for w in unit.partitions
    }
    ledgers = ledgers_of(unit, states, next_ledgers, expiring)
    if expiring:
        of_share = partial(judge_expiry, ledgers=ledgers)
        counted = run_apart(table, of_share, merged_logs, files.tasks, "count what an expiry has done")
    else:
        counted = run_work(table, counting(ledgers), files.tasks)
    by_log = {log.partition: log for logs in counted for log in logs}
    interval_ms = table.topic.config.cleantail_full_proof_interval_ms
    to_prove = [
        w
        for w in unit.partitions
        if not (expiring or _all_dirty(w)) and proof_due(states[w.partition].proven_ms, unit.now_ms, interval_ms)
    ]
    proven: dict[int, KeyCounts] = {}
    if to_prove:
        with table.on_branch(unit.branch, spans_read(to_prove)) as records:
            proven = prove_keys(records, to_prove)
    has_copies = any(log.counts.get(COPIES) for log in by_log.values())
    if expiring:  # tasks do not compare the shares of a log with each other
        may_differ = has_copies or any(task.shares > 1 for task in files.tasks)
        contradictions = of_expiry(table, unit, states, files.base) if may_differ else {}
    else:
        contradictions = of_round(table, unit, late_by_log, has_copies, files.base)
    measures = []
    for work in unit.partitions:
        p = work.partition
        log = by_log.get(p, NO_COUNTS)
        measure = files.measure(work, log.counts, proven[p].twice if p in proven else 0)
        is_proven = p in proven or _all_dirty(work)
        measure = replace(measure, proven_ms=unit.now_ms if is_proven else states[p].proven_ms)
        if found := contradictions.get(p):
            measure = replace(measure, contradicting_offsets=found.offsets, first_contradiction=found.text)
        measures.append(with_tombstones(measure, next_ledgers[p], log.tombstones))
    return measures


def states_at_base(table: TopicTable, unit: StagedUnit, iceberg: Any) -> Mapping[int, PartitionState | None]:
    """Return partition -> its state when the round read the table, also if other rounds were published since.

    By a later ledger, a tombstone that both rounds removed would not be due, and the check would fail. Publishing this
    round raises a ConflictError, and it starts over. Raises it here if the ledgers cannot be followed back.
    """
    states: dict[int, PartitionState | None] = {**states_of_properties(texts(iceberg.properties()), table.name)}
    for later, before in rounds_since(iceberg, unit.base_snapshot_id).items():
        try:
            states |= unpacked(before, states, f"{BEFORE} of snapshot {later}")
        except TableError as e:  # another program has rewritten the history of `main`
            raise ConflictError(f"{table.topic.table}: a later round's ledger does not fit: {e}") from None
    return states


def counting(ledgers: Ledgers) -> LogWork[list[LogCounts]]:
    return LogWork(
        "count what a round has done",
        partial(count_violations, ledgers=ledgers),
        partial(read_share, ledgers=ledgers),
        partial(decide_bucket, ledgers=ledgers),
        merged_logs,
    )


def merged_logs(parts: Iterable[Sequence[LogCounts]]) -> list[LogCounts]:
    return merged_counts(log for part in parts for log in part)


@dataclass(frozen=True, slots=True)
class RoundFiles:
    """The files of a round before and after it.

    base     the files that the round has read
    tasks    of the unit's logs; their files have the deletes of base and branch
    again    before and after the round: partition -> the records that repeated registrations of files duplicate
    changed  number of data files that the branch added or removed
    """

    unit: StagedUnit
    base: SnapshotFiles
    tasks: Sequence[LogTask]
    again: Sequence[Mapping[int, int]]
    changed: int

    @classmethod
    def of(cls, table: TopicTable, unit: StagedUnit, iceberg: Any) -> RoundFiles:
        """Read the files from manifests, in three threads."""
        with ThreadPoolExecutor(3) as threads:
            change = threads.submit(branch_change, iceberg, unit.branch, unit.base_snapshot_id)
            base = threads.submit(table.files_at, unit.base_snapshot_id, iceberg)
            branch = threads.submit(table.files_at, table.head_of(unit.branch, iceberg), iceberg)
        planned, deletes = log_tasks(table, unit, base.result()), branch.result().deletes_by_path()
        again = [records_again(table, tasks) for tasks in (planned, on_branch(planned, deletes))]
        tasks = [replace(task, files=tuple(with_branch(task.files, deletes))) for task in planned]
        return cls(unit, base.result(), tasks, again, change.result().data_files_changed)

    def measure(self, work: PartitionWork, counts: Mapping[str, int], proven_twice: int = 0) -> LogMeasure:
        """Return the measures of one log. `counts`: by measure. `proven_twice`: keys that a proof found twice."""
        before, after = (records.get(work.partition, 0) for records in self.again)
        named = {name: count for name, count in counts.items() if name != COPIES}
        fields: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), **named, PARTITION: work.partition}
        measure = LogMeasure(**fields)
        deleted = {reason: by_log.get(work.partition, 0) for reason, by_log in self.unit.counts.deleted.items()}
        return replace(
            measure,
            records_in=measure.records_in + before,
            records_out=measure.records_out + after,
            duplicate_keys=measure.duplicate_keys + proven_twice + after,
            data_files_changed=self.changed,
            imbalance=measure.records_in + before - sum(deleted.values()) - measure.records_out - after,
            deleted=deleted,
        )


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The number of a log's keys, and the number of keys with several records."""

    keys: int
    twice: int


def prove_keys(records: DataFrame, works: Sequence[PartitionWork]) -> dict[int, KeyCounts]:
    """Count the keys of the logs in [log start, end), as Spark's Iceberg reader sees them.

    A first query counts hashes, and so shuffles eight bytes of each key. If a hash occurs twice, a second query
    compares the keys with that hash.
    """
    hashed = below_end(records, works).where(F.col(KEY).isNotNull()).withColumn(HASH, F.xxhash64(KEY))
    by_hash = hashed.groupBy(PARTITION, HASH).agg(F.count("*").alias("records"))
    repeated = F.count_if(F.col("records") > 1).alias("repeated")
    counted = by_hash.groupBy(PARTITION).agg(F.sum("records").alias("records"), repeated).collect()
    more: dict[int, tuple[int, int]] = {}
    if any(row["repeated"] for row in counted):
        same_hash = hashed.join(by_hash.where("records > 1").select(PARTITION, HASH), [PARTITION, HASH], "left_semi")
        by_key = same_hash.groupBy(PARTITION, KEY).agg(F.count("*").alias("records")).where("records > 1")
        rows = by_key.groupBy(PARTITION).agg(F.sum("records").alias("records"), F.count("*").alias("keys")).collect()
        more = {row[PARTITION]: (row["records"] - row["keys"], row["keys"]) for row in rows}
    by_log = {row[PARTITION]: row["records"] for row in counted}
    proven = ((work.partition, *more.get(work.partition, (0, 0))) for work in works)
    return {log: KeyCounts(by_log.get(log, 0) - again, twice) for log, again, twice in proven}


def _all_dirty(work: PartitionWork) -> bool:
    """Return whether the round reads the whole log as dirty. Such a round proves every key by itself."""
    return work.first_dirty_offset <= work.log_start_offset

"""The evidence: an Iceberg table with the results of checks and the outcomes of rounds (cleantail.rounds.past_rounds).

PyIceberg reads and appends its rows: a Spark job for each row took longer than all checks of a log.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyiceberg.expressions import And, EqualTo, In, LessThan, NotIn, NotStartsWith
from pyiceberg.table import Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import ExpireSnapshots

from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE, FILE_FORMAT, PROPERTY_FORMAT, STATE_FORMAT
from cleantail.home.home_folder import exclusive
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.recorded_rounds import evidence_rows, load_evidence
from cleantail.log.rules import LogMeasure
from cleantail.retries import settled
from cleantail.rounds.approval import approved_note
from cleantail.rounds.check_results import CHECK_RESULTS_JSON, CheckResult, sample_column
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.commit_summaries import OPERATION, ROLLBACK, ROUND, Commit
from cleantail.rounds.evidence_row import CHECKED_ROUND, DELETED_JSON, EVIDENCE_COLUMNS, EvidenceRow, columns_of
from cleantail.rounds.past_rounds import (
    CHECKED,
    CHECKS,
    DAY,
    DAY_MS,
    HELD_BACK,
    OF_DAYS,
    PUBLISHED,
    RECLAIM,
    day_rows,
    undone_or_open,
)
from cleantail.rounds.recorded_checks import parts_of
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate


logger = logging.getLogger("cleantail.evidence")
T = TypeVar("T")

SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in EVIDENCE_COLUMNS.items()])
FORMAT = {"format-version": "2"}
PROPERTIES = {
    FILE_FORMAT: "parquet",  # the only format that PyIceberg writes
    "commit.retry.num-retries": "20",  # rounds of many topics append at the same time
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "30",  # every read opens all manifests, at some milliseconds each
    "write.metadata.delete-after-commit.enabled": "true",
    PROPERTY_FORMAT: str(STATE_FORMAT),
}
SNAPSHOTS_KEPT = 5
MAY_BE_UNKNOWN = ("partition", "began_ms", "saved_bytes", "rounds")
"""Numeric columns that are null if unknown, because 0 has a meaning. A reclaim has no partition."""
EMPTY = {f.name: 0 for f in SCHEMA if pa.types.is_integer(f.type) and f.name not in MAY_BE_UNKNOWN} | {
    "note": "",
    "deleted": "{}",
    "passed": True,
    "checks": "[]",
    "sample": "[]",
}
"""Defaults of a row's columns."""

RowsOfTopic = tuple[TopicTable, Iterable[EvidenceRow]]


def evidence_table(platform: Platform) -> Table:
    """Load or create the evidence table. Adds the columns and properties that it lacks."""
    catalog, namespace = kept_catalog(platform), platform.catalog.namespace
    found = load_evidence(catalog, platform)
    if found is not None:
        table = found
    else:
        with exclusive(platform.home, "evidence"):  # PyIceberg fails if two create a namespace at the same time
            settled(lambda: catalog.create_namespace_if_not_exists(namespace))
            properties, name = FORMAT | PROPERTIES, f"{namespace}.{EVIDENCE}"
            table = settled(lambda: catalog.create_table_if_not_exists(name, SCHEMA, properties=properties))

    def complete() -> None:
        lacks = {name: value for name, value in PROPERTIES.items() if name not in table.properties}
        if not lacks and not set(SCHEMA.names) - set(table.schema().column_names):
            return
        with table.transaction() as change:
            if lacks:
                change.set_properties(lacks)
            with change.update_schema() as update:
                update.union_by_name(SCHEMA)

    settled(complete, lambda: None if table.refresh() else None)
    return table


def rows_of(evidence: Table, values: Mapping[str, str | None]) -> list[EvidenceRow]:
    """Return the rows that have all these values."""
    return evidence_rows(evidence, And(*(EqualTo(name, value) for name, value in values.items())))


def append_rows(evidence: Table, table: TopicTable, rows: Iterable[EvidenceRow]) -> None:
    append_rows_of(evidence, [(table, rows)])


def append_rows_of(evidence: Table, rows: Iterable[RowsOfTopic]) -> None:
    """Append rows about topics in one commit. Adds the writer, the time, and the defaults of missing columns."""
    common = EMPTY | columns_of(os.environ) | {"checked_at_ms": int(time.time() * 1000)}
    of_topics = [{**common, "topic": table.topic.topic, **row} for table, of_table in rows for row in of_table]
    if of_topics:
        _append(evidence, pa.Table.from_pylist(of_topics, SCHEMA))


def append_once(table: TopicTable, rows: Sequence[EvidenceRow], identified_by: Sequence[str]) -> None:
    """Append the rows that the evidence lacks, so that a repeated task records each once.

    All rows have one kind and one topic. `identified_by`: the columns that identify a row among them."""
    if not rows:
        return

    def identity(row: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(row[column] for column in identified_by)

    evidence = evidence_table(table.platform)
    there = rows_of(evidence, {"topic": table.topic.topic, "kind": rows[0]["kind"]})
    recorded = {identity(row) for row in there}
    append_rows(evidence, table, [row for row in rows if identity(row) not in recorded])


def _old_snapshots(evidence: Table) -> list[int]:
    """Return the snapshots to expire: each in the metadata slows every commit. They go some at a time.

    The rows stay. merge_evidence removes the files that only old snapshots have."""
    oldest_first = sorted(evidence.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    if len(oldest_first) < 2 * SNAPSHOTS_KEPT:
        return []
    heads = [ref.snapshot_id for name, ref in evidence.metadata.refs.items() if name != MAIN_BRANCH]
    held = {*heads, *(s.parent_snapshot_id for s in oldest_first if s.snapshot_id in heads)}  # a merge is under way
    old = oldest_first[: len(oldest_first) - SNAPSHOTS_KEPT + 1]
    return [snapshot.snapshot_id for snapshot in old if snapshot.snapshot_id not in held]


def _append(table: Table, rows: pa.Table) -> None:
    """Append rows in exactly one commit. The commit also expires old snapshots."""

    def stage(transaction: Transaction) -> bool:
        transaction.append(rows)
        if old := _old_snapshots(table):
            ExpireSnapshots(transaction).by_ids(old).commit()
        return True

    _commit(table, stage)


def _commit(table: Table, stage: Callable[[Transaction], T]) -> T:
    """Stage a change of the table's rows on its current metadata, commit it exactly once, and return its result.

    Replaces PyIceberg's own retry. It finds only the last attempt's commit, and deletes the files of a refused one."""
    sent: list[tuple[int, T]] = []

    def change() -> T:
        transaction = _Remembering(table)
        result = stage(transaction)
        sent.extend((producer._snapshot_id, result) for producer in transaction._snapshot_producers)
        uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
        if transaction._updates:
            table._do_commit(transaction._updates, (*transaction._requirements, uuid))
        return result

    def taken() -> T | None:
        table.refresh()
        return next((result for number, result in sent if table.metadata.snapshot_by_id(number)), None)

    return settled(change, taken)


def summarize_days(table: TopicTable, until_ms: int) -> int:
    """Replace the topic's rows past cleantail.evidence.retention.ms by one row a day, in one commit.

    Returns their number. Today's rows, and those of rounds that undone_or_open names, stay. `until_ms`: the clock."""
    before_ms = (until_ms - table.topic.config.cleantail_evidence_retention_ms) // DAY_MS * DAY_MS
    of_topic = EqualTo("topic", table.topic.topic)
    evidence = evidence_table(table.platform)

    def stage(transaction: Transaction) -> int:
        past = And(of_topic, LessThan("now_ms", before_ms), In("kind", OF_DAYS), NotStartsWith("round", DAY))
        rows = evidence_rows(evidence, past)
        if not rows:
            return 0
        kept = undone_or_open([*rows, *evidence_rows(evidence, And(of_topic, EqualTo("kind", ROLLBACK)))])
        old = [row for row in rows if row["round"] not in kept]
        if old:
            days = pa.Table.from_pylist(day_rows(old), SCHEMA)
            transaction.overwrite(days, And(past, NotIn("round", kept)))
        return len(old)

    return _commit(evidence, stage)


class _Remembering(Transaction):
    """A transaction that computes the table's metadata only after a change.

    PyIceberg's own copies them at each access: some twenty times per append, and once per expired snapshot."""

    _basis: tuple[TableMetadata, tuple[TableUpdate, ...]] | None = None
    _known: TableMetadata

    @property
    def table_metadata(self) -> TableMetadata:
        basis = self._table.metadata, self._updates
        if self._basis is None or any(before is not now for before, now in zip(self._basis, basis, strict=True)):
            self._known, self._basis = super().table_metadata, basis
        return self._known


ROUNDS_BACK, COMMITS_BACK = 8, 64
"""Number of the newest rounds, and of commits, that a check searches for unreported publications."""
DEAD_AFTER_MS = 5_000
"""Age of a published round without an outcome after which its publisher counts as dead. A live one needs a fraction of
this."""
Evidence = tuple[TopicTable, CheckedRound, Sequence[CheckResult]]
"""A checked round of a topic's table, and all results of its check."""


def append_evidence(platform: Platform, rounds: Sequence[Evidence]) -> None:
    """Append one row per log of these checked rounds in one commit. Publish reads them.

    `deleted` (by reason), `checks` and `sample` are JSON without record data."""
    evidence = evidence_table(platform)
    unreported = _unreported(evidence, [table for table, _, _ in rounds])
    appended = [(table, checked_rows(checked, results)) for table, checked, results in rounds]
    append_rows_of(evidence, [*unreported, *appended])


def checked_rows(checked: CheckedRound, results: Sequence[CheckResult]) -> list[EvidenceRow]:
    """Return one row for each log with the result of its check."""
    parts, rows = parts_of(checked), []
    for measure in checked.measures:
        log, passed = measure.partition, measure.partition in checked.green
        own_results = tuple(result for result in results if result.partition == log)
        rows.append(
            _measured(checked, measure)
            | {"outcome": CHECKED if passed else HELD_BACK, "passed": passed}
            | {"checks": CHECK_RESULTS_JSON.text(own_results), "sample": sample_column(checked.sample, log)}
            | {CHECKED_ROUND: parts[log]}
        )
    return rows


def append_answer(table: TopicTable, checked: CheckedRound, outcome: str, note: str = "") -> None:
    append_rows(evidence_table(table.platform), table, answer_rows(checked, outcome, note))


def answer_rows(checked: CheckedRound, outcome: str, note: str = "") -> list[EvidenceRow]:
    """Return one row with the outcome for each log that passed its check."""
    passed = (m for m in checked.measures if m.partition in checked.green)
    rows = [_measured(checked, measure) | {"outcome": outcome, "note": note} for measure in passed]
    if outcome != PUBLISHED:  # every record is still there
        rows = [row | {"records_out": row["records_in"], "tombstones_out": row["tombstones_in"]} for row in rows]
    return rows


def append_reclaim(table: TopicTable, freed_bytes: int, now_ms: int) -> None:
    """Record the freed bytes of a topic, which its snapshots show only until they expire."""
    row: EvidenceRow = {"round": "", "kind": RECLAIM, "outcome": PUBLISHED}
    append_rows(evidence_table(table.platform), table, [row | {"now_ms": now_ms, "freed_bytes": freed_bytes}])


def _unreported(evidence: Table, tables: Iterable[TopicTable]) -> list[RowsOfTopic]:
    """Return rows for the newest rounds on `main` without an outcome: their publisher died, or could not append it."""
    commits = [(table, commit) for table in tables for commit in _ended_rounds(table)]
    if not commits:
        return []
    names = {str(commit.summary.get(ROUND)) for _, commit in commits}
    by_round: dict[tuple[str, str, str], list[EvidenceRow]] = {}
    for row in evidence_rows(evidence, In("round", names)):
        by_round.setdefault((row["topic"], row["round"], row["kind"]), []).append(row)
    unreported: list[RowsOfTopic] = []
    for table, commit in commits:
        named = table.topic.topic, str(commit.summary.get(ROUND)), commit.summary[OPERATION]
        unreported.append((table, _published(by_round.get(named, []), approved_note(commit.approved_by))))
    return unreported


def _ended_rounds(table: TopicTable) -> list[Commit]:
    """Return the newest rounds on `main` whose publishers have recorded the outcome, or died.

    Earlier checks have recorded the rounds before them."""
    rounds = [c for c in islice(history(table.load()), COMMITS_BACK) if c.is_round]
    return [c for c in rounds[:ROUNDS_BACK] if time.time() * 1000 - c.at_ms >= DEAD_AFTER_MS]


def _published(rows: Sequence[EvidenceRow], note: str) -> list[EvidenceRow]:
    """Return the outcome rows of a published round if `rows` of it have none."""
    if any(row["outcome"] not in CHECKS for row in rows):
        return []
    last = {row["partition"]: row for row in sorted(rows, key=lambda r: r["checked_at_ms"])}
    published: EvidenceRow = {
        "outcome": PUBLISHED,
        "note": note,
        "checks": "[]",
        CHECKED_ROUND: None,
        "checked_at_ms": int(time.time() * 1000),
    }
    return [row | published for row in last.values() if row["outcome"] == CHECKED]


def has_answer(table: TopicTable, checked: CheckedRound, outcome: str) -> bool:
    """Return whether append_answer has recorded this outcome of the round.

    Compares the heads of the branches too: a repeated round may have the same name."""
    values = {"topic": table.topic.topic, "round": checked.round, "kind": checked.kind, "outcome": outcome}
    heads = {row["head_snapshot_id"] for row in rows_of(evidence_table(table.platform), values)}
    return not heads.isdisjoint(checked.heads)


def _measured(checked: CheckedRound, measure: LogMeasure) -> EvidenceRow:
    unit, work = next((u, w) for u, w in checked.works() if w.partition == measure.partition)
    return {
        "partition": measure.partition,
        "round": checked.round,
        "kind": checked.kind,
        "now_ms": unit.now_ms,
        "base_snapshot_id": unit.base_snapshot_id,
        "head_snapshot_id": unit.head_snapshot_id,
        "first_dirty_offset": work.first_dirty_offset,
        "end_offset": work.end_offset,
        "records_in": measure.records_in,
        "records_out": measure.records_out,
        "tombstones_in": measure.tombstones_in,
        "tombstones_out": measure.tombstones_out,
        "deleted": DELETED_JSON.text(measure.deleted),
        "began_ms": unit.began_ms,
        "saved_bytes": unit.counts.saved_bytes.get(measure.partition),
    }

"""The evidence: what checks found and what became of the rounds, in an Iceberg table of its own beside the topics.

Meaning of the outcomes: cleantail.rounds.past_rounds.

Rows are read from the table and appended to it through PyIceberg: a Spark job for a row a log took longer than all its
checks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, EqualTo
from pyiceberg.table import Transaction
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import ExpireSnapshots

from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE, FILE_FORMAT, PROPERTY_FORMAT, STATE_FORMAT
from cleantail.home.home_folder import exclusive
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.recorded_rounds import evidence_rows, load_evidence
from cleantail.log.rules import LogMeasure
from cleantail.retries import settled
from cleantail.rounds.check_results import CHECK_RESULTS_JSON, CheckResult, sample_column
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.commit_summaries import OPERATION, ROUND, Commit
from cleantail.rounds.evidence_row import CHECKED_ROUND, DELETED_JSON, EVIDENCE_COLUMNS, EvidenceRow, columns_of
from cleantail.rounds.past_rounds import CHECKED, CHECKS, HELD_BACK, PUBLISHED, RECLAIM
from cleantail.rounds.recorded_checks import parts_of
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate


logger = logging.getLogger("cleantail.evidence")

SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in EVIDENCE_COLUMNS.items()])
FORMAT = {"format-version": "2"}
PROPERTIES = {
    FILE_FORMAT: "parquet",  # PyIceberg writes no other
    "commit.retry.num-retries": "20",  # rounds of many topics append at the same time
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "30",  # every read opens all manifests, each of which takes milliseconds
    "write.metadata.delete-after-commit.enabled": "true",
    PROPERTY_FORMAT: str(STATE_FORMAT),
}
SNAPSHOTS_KEPT = 5
MAY_BE_UNKNOWN = ("partition", "began_ms", "saved_bytes")
"""Numbers that are null where nobody knows them, and the partition of a reclaim: 0 would be a statement."""
EMPTY = {f.name: 0 for f in SCHEMA if pa.types.is_integer(f.type) and f.name not in MAY_BE_UNKNOWN} | {
    "note": "",
    "deleted": "{}",
    "passed": True,
    "checks": "[]",
    "sample": "[]",
}
"""What a row says of itself where it says nothing else."""


RowsOfTopic = tuple[TopicTable, Iterable[EvidenceRow]]
"""Rows about one topic."""


def evidence_table(platform: Platform) -> Table:
    """Loads the evidence table, with all columns and properties of this version; creates it where there is none."""
    catalog, namespace = kept_catalog(platform), platform.catalog.namespace
    found = load_evidence(catalog, platform)
    if found is not None:
        table = found
    else:
        with exclusive(platform.home, "evidence"):  # PyIceberg lets one of two that make a namespace at once fail
            settled(lambda: catalog.create_namespace_if_not_exists(namespace))
            properties, name = FORMAT | PROPERTIES, f"{namespace}.{EVIDENCE}"
            table = settled(lambda: catalog.create_table_if_not_exists(name, SCHEMA, properties=properties))

    def as_of_this_version() -> None:
        lacks = {name: value for name, value in PROPERTIES.items() if name not in table.properties}
        if not lacks and not set(SCHEMA.names) - set(table.schema().column_names):
            return
        with table.transaction() as change:  # made by an earlier version
            if lacks:
                change.set_properties(lacks)
            with change.update_schema() as update:
                update.union_by_name(SCHEMA)

    settled(as_of_this_version, lambda: None if table.refresh() else None)
    return table


def rows_of(evidence: Table, values: Mapping[str, str | None]) -> list[EvidenceRow]:
    """Returns the rows that have all these values."""
    return rows_where(evidence, And(*(EqualTo(name, value) for name, value in values.items())))


def rows_where(evidence: Table, condition: BooleanExpression) -> list[EvidenceRow]:
    return evidence_rows(evidence, condition)


def append_rows(evidence: Table, table: TopicTable, rows: Iterable[EvidenceRow]) -> None:
    """Appends rows about one topic, as append_rows_of does."""
    append_rows_of(evidence, [(table, rows)])


def append_rows_of(evidence: Table, rows: Iterable[RowsOfTopic]) -> None:
    """Appends rows about topics in one commit, with who writes them and when; columns that a row leaves out are
    empty."""
    common = EMPTY | columns_of(os.environ) | {"checked_at_ms": int(time.time() * 1000)}
    of_topics = [{**common, "topic": table.topic.topic, **row} for table, of_table in rows for row in of_table]
    if of_topics:
        _append(evidence, pa.Table.from_pylist(of_topics, SCHEMA))
        forget_old_snapshots(evidence)


def append_once(table: TopicTable, rows: Sequence[EvidenceRow], told_by: Sequence[str]) -> None:
    """Appends those rows that the evidence does not have yet. All are of one kind and about one topic, and say in the
    columns `told_by` what they are about: a crash right after such a row was due loses none, and none is told twice."""
    if not rows:
        return
    evidence = evidence_table(table.platform)
    there = rows_of(evidence, {"topic": table.topic.topic, "kind": rows[0]["kind"]})
    recorded = {_values(row, told_by) for row in there}
    append_rows(evidence, table, [row for row in rows if _values(row, told_by) not in recorded])


def _values(row: Mapping[str, object], columns: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[column] for column in columns)


def forget_old_snapshots(evidence: Table) -> None:
    """Expires the table's old snapshots, since every commit costs time for each snapshot in the metadata, and nobody
    reads an older state of a table to which rows are only added. The rows stay; evidence_upkeep removes the files that
    only old snapshots have."""
    oldest_first = sorted(evidence.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    if len(oldest_first) <= 2 * SNAPSHOTS_KEPT:
        return
    old = [snapshot.snapshot_id for snapshot in oldest_first[:-SNAPSHOTS_KEPT]]
    try:
        ExpireSnapshots(_Remembering(evidence, autocommit=True)).by_ids(old).commit()
    except Exception as e:  # PyIceberg raises a ValueError where another round was faster; the rows are there anyway
        logger.info("old snapshots of the evidence are left for a later round: %s", e)


def _append(table: Table, rows: pa.Table) -> None:
    """Appends rows in one commit, once: PyIceberg's own way to send a commit again does not look for what a try before
    the last one has left, and deletes the files of one that was refused. Their names are not used again."""
    sent: list[int] = []

    def append() -> bool:
        transaction = _Remembering(table)
        transaction.append(rows)
        sent.extend(producer._snapshot_id for producer in transaction._snapshot_producers)
        uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
        table._do_commit(transaction._updates, (*transaction._requirements, uuid))
        return True

    def taken() -> bool | None:
        table.refresh()
        return True if any(table.metadata.snapshot_by_id(snapshot_id) for snapshot_id in sent) else None

    settled(append, taken)


class _Remembering(Transaction):
    """Works the table's metadata out anew only where they have changed. PyIceberg's own copies all of them each time
    that it looks at one of their fields, some twenty times for an append, and for each snapshot that expires."""

    _basis: tuple[TableMetadata, tuple[TableUpdate, ...]] | None = None
    _known: TableMetadata

    @property
    def table_metadata(self) -> TableMetadata:
        basis = self._table.metadata, self._updates
        if self._basis is None or any(before is not now for before, now in zip(self._basis, basis, strict=True)):
            self._known, self._basis = super().table_metadata, basis
        return self._known


ROUNDS_BACK, COMMITS_BACK = 8, 64
"""A check looks for what became of the newest rounds, so far back."""
DEAD_AFTER_MS = 5_000
"""A live publisher tells what became of its round within a fraction of this after its commit."""
Evidence = tuple[TopicTable, CheckedRound, Sequence[CheckResult]]
"""A checked round of a topic's table, and all results of its check."""


def append_evidence(platform: Platform, rounds: Sequence[Evidence]) -> None:
    """Appends one row a log of these checked rounds, which publish goes by, in one commit. `deleted` (by reason),
    `checks` and `sample` are JSON; none of them says what a record holds."""
    evidence = evidence_table(platform)
    untold = _untold(evidence, [table for table, _, _ in rounds])
    appended = [(table, checked_rows(checked, results)) for table, checked, results in rounds]
    append_rows_of(evidence, [*untold, *appended])


def checked_rows(checked: CheckedRound, results: Sequence[CheckResult]) -> list[EvidenceRow]:
    """Returns what a check has found, a row for each log."""
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
    """Appends what became of the logs that passed, one row each. Of one that was not published every record is still
    there."""
    append_rows(evidence_table(table.platform), table, answer_rows(checked, outcome, note))


def answer_rows(checked: CheckedRound, outcome: str, note: str = "") -> list[EvidenceRow]:
    """Returns what became of the logs of a checked round that passed, a row for each."""
    passed = (m for m in checked.measures if m.partition in checked.green)
    rows = [_measured(checked, measure) | {"outcome": outcome, "note": note} for measure in passed]
    if outcome != PUBLISHED:
        rows = [row | {"records_out": row["records_in"], "tombstones_out": row["tombstones_in"]} for row in rows]
    return rows


def append_reclaim(table: TopicTable, freed_bytes: int, now_ms: int) -> None:
    """Appends one row for the topic, so that the freed bytes are still recorded when the snapshots that show them have
    expired."""
    row: EvidenceRow = {"round": "", "kind": RECLAIM, "outcome": PUBLISHED}
    append_rows(evidence_table(table.platform), table, [row | {"now_ms": now_ms, "freed_bytes": freed_bytes}])


def _untold(evidence: Table, tables: Iterable[TopicTable]) -> list[RowsOfTopic]:
    """Return rows for the newest rounds on `main` that no row calls published: the process that published one died, or
    could not append them. The evidence is read once for all tables."""
    commits = [(table, commit) for table in tables for commit in _ended_rounds(table)]
    if not commits:
        return []
    from pyiceberg.expressions import In

    names = {str(commit.summary.get(ROUND)) for _, commit in commits}
    by_round: dict[tuple[str, str, str], list[EvidenceRow]] = {}
    for row in rows_where(evidence, In("round", names)):
        by_round.setdefault((row["topic"], row["round"], row["kind"]), []).append(row)
    untold: list[RowsOfTopic] = []
    for table, commit in commits:
        named = table.topic.topic, str(commit.summary.get(ROUND)), commit.summary[OPERATION]
        untold.append((table, _published(by_round.get(named, []))))
    return untold


def _ended_rounds(table: TopicTable) -> list[Commit]:
    """Return the newest rounds on `main` whose publishers have recorded what became of them, or died. A round before
    them is not looked for: each check that came between has recorded it."""
    rounds = [c for c in islice(history(table.load()), COMMITS_BACK) if c.is_round]
    return [c for c in rounds[:ROUNDS_BACK] if time.time() * 1000 - c.at_ms >= DEAD_AFTER_MS]


def _published(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Returns the answer to a round that was published, where these rows of it have none."""
    if any(row["outcome"] not in CHECKS for row in rows):
        return []
    last = {row["partition"]: row for row in sorted(rows, key=lambda r: r["checked_at_ms"])}
    published: EvidenceRow = {
        "outcome": PUBLISHED,
        "checks": "[]",
        CHECKED_ROUND: None,
        "checked_at_ms": int(time.time() * 1000),
    }
    return [row | published for row in last.values() if row["outcome"] == CHECKED]


def has_answer(table: TopicTable, checked: CheckedRound, outcome: str) -> bool:
    """Returns whether append_answer has recorded this of the round before. A round that was made a second time may have
    the same name, but its branches have other snapshots."""
    values = {"topic": table.topic.topic, "round": checked.round, "kind": checked.kind, "outcome": outcome}
    heads = {row["head_snapshot_id"] for row in rows_of(evidence_table(table.platform), values)}
    return not heads.isdisjoint(checked.heads)


def _measured(checked: CheckedRound, measure: LogMeasure) -> EvidenceRow:
    """Returns the row of one log of a checked round, without checks and outcome."""
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

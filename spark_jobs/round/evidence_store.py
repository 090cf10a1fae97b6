"""The evidence table: its columns, and rows that are read from it and appended to it, through PyIceberg.

A Spark job for a row a log took longer than all its checks.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
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
from cleantail.lake.evidence_table import evidence_rows, load_evidence
from cleantail.retries import settled
from cleantail.rounds.evidence_row import EVIDENCE_COLUMNS, EvidenceRow, columns_of
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
    catalog, namespace = kept_catalog(platform, os.environ), platform.catalog.namespace
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


def append_once(table: TopicTable, platform: Platform, rows: Sequence[EvidenceRow], told_by: Sequence[str]) -> None:
    """Appends those rows that the evidence does not have yet. All are of one kind and about one topic, and say in the
    columns `told_by` what they are about: a crash right after such a row was due loses none, and none is told twice."""
    if not rows:
        return
    evidence = evidence_table(platform)
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

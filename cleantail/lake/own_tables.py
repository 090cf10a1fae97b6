"""Cleantail's own tables, next to the topics' tables: the evidence, and the tables of erasures.

PyIceberg creates and changes these tables, because a Spark job for each row would take longer than all checks of a log.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from cleantail.codec import FORMAT
from cleantail.config.platform import Platform
from cleantail.config.topic_table import FILE_FORMAT, PROPERTY_FORMAT
from cleantail.home.home_folder import exclusive
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.manifest_entries import named_if_damaged
from cleantail.lake.storage_locations import keep_first_metadata
from cleantail.retries import settled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

T = TypeVar("T")

FORMAT_VERSION = {"format-version": "2"}
PROPERTIES = {
    FILE_FORMAT: "parquet",  # the only format that PyIceberg writes
    "commit.retry.num-retries": "20",  # rounds of many topics append at the same time
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "30",  # every read opens all manifests, some milliseconds each
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    PROPERTY_FORMAT: str(FORMAT),
}
SNAPSHOTS_KEPT = 5


def own_table(platform: Platform, name: str, schema: pa.Schema, found: Table | None) -> Table:
    """Return the table, and add missing columns and properties. Creates the table if `found` is None.

    `name`: without the catalog's namespace."""
    catalog, namespace = kept_catalog(platform), platform.catalog.namespace
    if found is not None:
        table = found
    else:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        def create() -> Table:
            catalog.create_namespace_if_not_exists(namespace)
            properties = FORMAT_VERSION | PROPERTIES
            return catalog.create_table_if_not_exists(f"{namespace}.{name}", schema, properties=properties)

        with exclusive(platform.home, "evidence"):  # PyIceberg fails if two create a namespace at the same time
            # a catalog may refuse namespace or table as existing, and not have it
            table = settled(create, unsure=(NoSuchNamespaceError, NoSuchTableError))
            keep_first_metadata(table)

    def complete() -> None:
        lacks = {name: value for name, value in PROPERTIES.items() if name not in table.properties}
        if not lacks and not set(schema.names) - set(table.schema().column_names):
            return
        with table.transaction() as change:
            if lacks:
                change.set_properties(lacks)
            with change.update_schema() as update:
                update.union_by_name(schema)

    settled(complete, lambda: None if table.refresh() else None)
    return table


def append_to(table: Table, rows: pa.Table) -> None:
    """Append rows in one commit, which also expires old snapshots."""

    def stage(transaction: Transaction) -> bool:
        stage_rows(transaction, table, rows)
        return True

    commit_once(table, stage)


def stage_rows(transaction: Transaction, table: Table, rows: pa.Table) -> None:
    """Add rows to a transaction of commit_once, and expire old snapshots in it."""
    from pyiceberg.table.update.snapshot import ExpireSnapshots

    written = _written(table, rows)
    with (
        named_if_damaged(table, f"a file of snapshot {table.metadata.current_snapshot_id}"),
        transaction.update_snapshot().merge_append() as append,
    ):
        append.append_data_file(written)
    if old := _old_snapshots(table):
        ExpireSnapshots(transaction).by_ids(old).commit()


BOUND_BYTES = 64
"""Maximum length of a text with bounds. A column with a longer text has no bounds in its file."""


def _written(table: Table, rows: pa.Table) -> DataFile:
    """Write rows to a new data file of a table without partitions.

    Does not use PyIceberg's own writer. It also writes a copy of the schema, and the least and greatest value of each
    column up to six times. That is two thirds of a file with the JSON of few rows, and no reader selects rows by bounds
    of JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
        schema_to_pyarrow,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema, nothing = schema_to_pyarrow(table.schema()), pa.nulls(len(rows))
    found = dict(zip(rows.column_names, rows.columns, strict=True))
    full = pa.table({field.name: found.get(field.name, nothing).cast(field.type) for field in schema}, schema)
    bounded = [name for name in full.column_names if _longest_bytes(full[name]) <= BOUND_BYTES]
    metrics = {f"write.metadata.metrics.column.{name}": "none" for name in full.column_names if name not in bounded}
    # does not use PyIceberg's location provider, because the table's properties may name a class for it
    output = table.io.new_output(f"{table.location().rstrip('/')}/data/{uuid.uuid4()}.parquet")
    options = {"compression": "zstd", "store_schema": False, "use_dictionary": False, "write_statistics": bounded}
    with output.create() as stream, pq.ParquetWriter(stream, schema, **options) as writer:
        writer.write_table(full)
    statistics = data_file_statistics_from_parquet_metadata(
        writer.writer.metadata,
        compute_statistics_plan(table.schema(), table.properties | metrics),
        parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=len(output),
        spec_id=table.metadata.default_spec_id,
        **statistics.to_serialized_dict(),
    )


def _longest_bytes(column: pa.ChunkedArray) -> int:
    """Return the length of the longest text or binary value of a column, 0 for other columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    has_length = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    return int(pc.max(pc.binary_length(column)).as_py() or 0) if has_length else 0


def _old_snapshots(table: Table) -> list[int]:
    """Return the snapshots to expire, because each snapshot in the metadata slows every commit.

    The rows stay. A reclaim (merge_files_of) removes the files that only old snapshots have."""
    from pyiceberg.table.refs import MAIN_BRANCH

    oldest_first = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    if len(oldest_first) < 2 * SNAPSHOTS_KEPT:
        return []
    heads = [ref.snapshot_id for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH]
    held = {*heads, *(s.parent_snapshot_id for s in oldest_first if s.snapshot_id in heads)}  # a merge is under way
    old = oldest_first[: len(oldest_first) - SNAPSHOTS_KEPT + 1]
    return [snapshot.snapshot_id for snapshot in old if snapshot.snapshot_id not in held]


def commit_once(table: Table, stage: Callable[[Transaction], T]) -> T:
    """Stage a change of the table's rows on its current metadata, commit it exactly once, and return its result.

    Replaces PyIceberg's own retry, which finds only the last attempt's commit, and deletes the files of a refused
    commit."""
    from pyiceberg.table.update import AssertTableUUID

    sent: list[tuple[int, T]] = []

    def change() -> T:
        transaction = _transaction(table)
        result = stage(transaction)
        sent.extend((producer._snapshot_id, result) for producer in transaction._snapshot_producers)
        uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
        if transaction._updates:
            updates = _in_order_of_time(transaction._updates, table.metadata)
            table._do_commit(updates, (*transaction._requirements, uuid))
        return result

    def taken() -> T | None:
        table.refresh()
        return next((result for number, result in sent if table.metadata.snapshot_by_id(number)), None)

    return settled(change, taken)


def _in_order_of_time(updates: Iterable[TableUpdate], metadata: TableMetadata) -> tuple[TableUpdate, ...]:
    """Return the updates, with each snapshot later than the table's last change.

    Iceberg loads no table whose log goes back by more than a minute, and PyIceberg writes the time of this machine's
    clock, which may be behind the clock of the last commit."""
    from pyiceberg.table.update import AddSnapshotUpdate

    ordered, last = [], metadata.last_updated_ms
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            last = max(update.snapshot.timestamp_ms, last + 1)
            update = AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": last}))
        ordered.append(update)
    return tuple(ordered)


def _transaction(table: Table) -> Transaction:
    """Return a transaction that makes its metadata once for each staged change.

    PyIceberg's own transaction copies all metadata at each access, 16 times for one append."""
    from pyiceberg.table import Transaction

    class StagedOnce(Transaction):
        _made: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

        @property
        def table_metadata(self) -> TableMetadata:
            if self._made is None or self._made[0] is not self._updates:
                self._made = self._updates, super().table_metadata
            return self._made[1]

    return StagedOnce(table)

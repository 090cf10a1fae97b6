"""The records that a plan names, in the columns of a topic table, as Spark plans that read them.

1. A snapshot that is read whole, or for the files it has added, is read as of itself: what it had deleted is left out.
   Spark then has the columns by their names of that time, and they get their names of now.
2. Of a snapshot that has written files anew, or has deletes beside its new files, it is only what was not there before.
3. What appends have brought is one incremental scan of Iceberg's, which opens their files alone.
4. A record that no topic's table can hold ends the plan, with column and offset (`guarded`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cleantail.config.topic_table import OFFSET, PARTITION, Columns, quoted
from cleantail.config.unholdable import ALL, UNHELD, Keep
from cleantail.errors import SourceError
from cleantail.log.adopted_table import problem_of
from cleantail.log.snapshot_plan import SnapshotPlan
from spark_jobs.iceberg.iceberg_reads import added_by
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.snapshot_files import BYTE_BUFFERS
from spark_jobs.round.source_table.columns_at import column_of, columns_at
from spark_jobs.round.source_table.guards import beyond, guarded, unheld, unheld_columns
from spark_jobs.round.source_table.session_catalog import SessionTable


@dataclass(frozen=True, slots=True)
class SourceFrames:
    """Reads a source table. `iceberg` is Iceberg's own object for it; `kinds`: path of a mapped column -> Spark's name
    of its type, as the table's schema is now, which `types` is."""

    table: SessionTable
    iceberg: Any
    columns: Columns
    kinds: Mapping[str, str]
    types: StructType

    @classmethod
    def of(cls, table: SessionTable, iceberg: Any, columns: Columns) -> SourceFrames:
        """Raises SourceError for a column of a type that cannot be what it is mapped to."""
        paths = list(dict.fromkeys(columns.paths.values()))
        now = table.spark.table(table.name)
        schema = now.select(*map(quoted, paths)).schema
        kinds = dict(zip(paths, (field.dataType.simpleString() for field in schema), strict=True))
        for name, path in columns.paths.items():
            if problem := problem_of(name.partition(".")[0], kinds[path]):
                raise SourceError(f"{table.shown}: column {path} is {kinds[path]}: {problem}; nothing was appended")
        return cls(table, iceberg, columns, kinds, now.schema)

    def records(self, plan: SnapshotPlan, known: Mapping[int, int], keep: Keep = ALL) -> DataFrame:
        """Returns the records of the plan, in no order, and as often as the source has them, in the columns of a topic
        table; those that it cannot hold in UNHELD_COLUMNS. `known`: the next offsets of what was read before."""
        if plan.start_id is None:
            whole = self._at(plan.end.snapshot_id)
            unread = whole.where(beyond(self.columns, plan.from_offsets)) if plan.from_offsets else whole
            return self._kept(unread, keep)
        stored = self._stored(plan, plan.start_id, known)
        return reduce(DataFrame.unionByName, (self._kept(frame, keep) for frame in stored))

    def _stored(self, plan: SnapshotPlan, start_id: int, known: Mapping[int, int]) -> Iterator[DataFrame]:
        read = self.table.spark.read
        if plan.appends:
            span = {"start-snapshot-id": str(start_id), "end-snapshot-id": str(plan.end.snapshot_id)}
            yield read.options(**span).table(self.table.name)
        for snapshot_id in plan.one_by_one:
            yield self._added(snapshot_id, known)

    def _added(self, snapshot_id: int, known: Mapping[int, int]) -> DataFrame:
        """Returns the records of the files that a snapshot has added, without those that the snapshot before had where
        it has taken any away.

        Who deletes or changes a record by writing its file anew copies the others, and who marks one as deleted may
        write it again: such records came before, and it may be so long ago that a round has removed the deletion of
        their key since. Where the snapshot before is not kept, what lies below the known offsets counts as such.
        """
        snapshot, io = self.iceberg.snapshot(snapshot_id), self.iceberg.io()
        files = added_by(self.iceberg, snapshot_id)
        added = self._at(snapshot_id, files)
        removed, has_deletes = list(each(snapshot.removedDataFiles(io))), any(each(snapshot.addedDeleteFiles(io)))
        parent = snapshot.parentId()
        if not (removed or has_deletes):
            return added
        if parent is None or self.iceberg.snapshot(parent) is None:
            return added.where(beyond(self.columns, known))
        # a deletion may be in any file of the snapshot before, a removal is of the whole file
        whole = self._at(int(parent)).where(self._between(files)) if has_deletes else self._at(int(parent), removed)
        at = {name: column_of(path) for name, path in self.columns.paths.items() if name in (PARTITION, OFFSET)}
        before = whole.select(*(column.alias(f"ct_{name}") for name, column in at.items()))
        same = reduce(Column.__and__, (column == F.col(f"ct_{name}") for name, column in at.items()))
        return added.join(before, same, "left_anti")

    def _at(self, snapshot_id: int, files: Sequence[Any] | None = None) -> DataFrame:
        """Returns the mapped columns at a snapshot by their names of now; of these data files alone, where they are
        given."""
        stored = self.table.spark.read.option("versionAsOf", str(snapshot_id)).table(self.table.name)
        columns = columns_at(self._schema_at(snapshot_id), self.iceberg.schema(), self.types, self.kinds)
        if files is None:
            return stored.select(*columns)
        inside = stored["_file"].isin([str(file.location()) for file in files])
        return stored.where(inside).select(*columns).where(self._between(files))

    def _between(self, files: Sequence[Any]) -> Column:
        """Returns a condition by which Iceberg leaves most other files unopened: between which partitions and offsets
        these lie, where their metadata say so. A null is of any: the guards tell of it."""
        partition, offset = self.columns.partition_and_offset
        return self._inside(files, partition) & self._inside(files, offset)

    def _inside(self, files: Sequence[Any], path: str) -> Column:
        number = self.iceberg.schema().findField(path).fieldId()
        sides = [(file.lowerBounds(), file.upperBounds()) for file in files]
        bounds = [(self._bound(low, number), self._bound(high, number)) for low, high in sides]
        known = [(low, high) for low, high in bounds if low is not None and high is not None]
        if not known or len(known) < len(bounds):
            return F.lit(True)
        column = column_of(path)
        return column.isNull() | column.between(min(low for low, _ in known), max(high for _, high in known))

    def _bound(self, bounds: Any, field_id: int) -> int | None:
        """Returns a bound of a whole number, None where the metadata have none."""
        data = bounds.get(field_id) if bounds is not None else None
        if data is None:
            return None
        return int.from_bytes(getattr(self.table.spark._jvm, BYTE_BUFFERS).toByteArray(data), "little", signed=True)

    def _schema_at(self, snapshot_id: int) -> Any:
        util = self.table.spark._jvm.org.apache.iceberg.util.SnapshotUtil  # type: ignore[union-attr]
        return util.schemaFor(self.iceberg, snapshot_id)

    def _kept(self, stored: DataFrame, keep: Keep) -> DataFrame:
        if keep == UNHELD:
            is_unheld = stored.where(unheld(self.columns, self.kinds))
            return is_unheld.selectExpr(*unheld_columns(self.columns, self.kinds))
        held = stored if keep == ALL else stored.where(f"NOT {unheld(self.columns, self.kinds)}")
        return held.selectExpr(*guarded(self.columns, self.kinds))

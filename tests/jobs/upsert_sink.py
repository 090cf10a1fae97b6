"""A sink in upsert mode, as Flink's is, by Iceberg's own Java writers in the JVM of the tests' Spark.

As Flink's delta writer does it: a row replaces the one with its key. One of an earlier commit is deleted by an equality
delete, of which the sink needs to know no more than the key; one of this very commit by its position, since a delete by
values is not of what comes with it.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from spark_jobs.iceberg.java_calls import described_file
from spark_jobs.iceberg.log_files import write_deletes

Row = Mapping[str, Any]
DELETE, UPSERT = "-", "+"


class UpsertSink:
    """Commits changes to a table; `key`: the names of its columns that name a row."""

    def __init__(self, spark: SparkSession, full: str, key: Sequence[str]) -> None:
        self.spark, self.jvm, self.full, self.key = spark, spark._jvm, full, tuple(key)

    def load(self) -> Any:
        return self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.full)

    def commit(self, *changes: tuple[str, Row], files: int = 1, spec: Any = None) -> None:
        """Commits the changes in their order: (DELETE or UPSERT, row), dealt out over so many data files for each
        partition. A row's partition is what the values under its spec's fields say (identity)."""
        table = self.load()
        spec = table.spec() if spec is None else spec
        parts: dict[str, list[tuple[str, Row]]] = {}
        names = [str(table.schema().findColumnName(field.sourceId())) for field in spec.fields()]
        for change in changes:
            parts.setdefault(json.dumps([change[1][name] for name in names]), []).append(change)
        delta = table.newRowDelta()
        for of_partition in parts.values():
            Commit(self, table, spec, delta, files).write(of_partition)
        delta.commit()


class Commit:
    """What one commit writes into one partition."""

    def __init__(self, sink: UpsertSink, table: Any, spec: Any, delta: Any, files: int) -> None:
        self.sink, self.table, self.spec, self.delta, self.files = sink, table, spec, delta, files
        self.jvm = jvm = sink.jvm
        self.format = jvm.org.apache.iceberg.FileFormat.PARQUET
        self.schema = Fields(jvm, table.schema())
        self.key_schema = table.schema().select(list(sink.key))
        self.keys = Fields(jvm, self.key_schema)
        ids = sink.spark.sparkContext._gateway.new_array(jvm.int, len(sink.key))
        for n, name in enumerate(sink.key):
            ids[n] = table.schema().findField(name).fieldId()
        generic = jvm.org.apache.iceberg.data.GenericAppenderFactory
        self.writers = generic(table.schema(), spec, ids, self.key_schema, None)
        factory = jvm.org.apache.iceberg.io.OutputFileFactory
        self.output = factory.builderFor(table, 1, 1).format(self.format).build()

    def write(self, changes: Sequence[tuple[str, Row]]) -> None:
        partition = self._partition(changes[0][1])
        data = [self.writers.newDataWriter(self._new(partition), self.format, partition) for _ in range(self.files)]
        rows = [0] * self.files
        here: dict[tuple[Any, ...], tuple[int, int]] = {}
        replaced: list[tuple[int, int]] = []
        by_value = []
        for number, (kind, row) in enumerate(changes):
            key = tuple(row[name] for name in self.sink.key)
            if key in here:
                replaced.append(here.pop(key))
            else:
                by_value.append(self.keys.record(row))
            if kind == UPSERT:
                file = number % self.files
                data[file].write(self.schema.record(row))
                here[key] = (file, rows[file])
                rows[file] += 1
        made = []
        for writer in data:
            writer.close()
            made.append(writer.toDataFile())
            if made[-1].recordCount():
                self.delta.addRows(made[-1])
        self._delete_by_value(by_value, partition)
        self._delete_by_position(made, sorted(replaced), partition)

    def _delete_by_value(self, keys: Sequence[Any], partition: Any) -> None:
        if not keys:
            return
        writer = self.writers.newEqDeleteWriter(self._new(partition), self.format, partition)
        for key in keys:
            writer.write(key)
        writer.close()
        self.delta.addDeletes(writer.toDeleteFile())

    def _delete_by_position(self, files: Sequence[Any], places: Sequence[tuple[int, int]], partition: Any) -> None:
        """In version 2 one file for all data files of the commit, as Flink's did; in version 3 vectors."""
        if not places:
            return
        if int(self.table.operations().current().formatVersion()) > 2:
            for number, file in enumerate(files):
                positions = BitMap64(pos for n, pos in places if n == number)
                if positions:
                    lost = [(described_file(self.jvm, self.table, file), positions)]
                    self.delta.addDeletes(write_deletes(self.jvm, self.table, lost)[0])
            return
        writer = self.writers.newPosDeleteWriter(self._new(partition), self.format, partition)
        delete = self.jvm.org.apache.iceberg.deletes.PositionDelete.create()
        for path, pos in sorted((str(files[number].location()), pos) for number, pos in places):
            writer.write(delete.set(path, pos, None))
        writer.close()
        self.delta.addDeletes(writer.toDeleteFile())

    def _new(self, partition: Any) -> Any:
        return self.output.newOutputFile(self.spec, partition) if partition else self.output.newOutputFile()

    def _partition(self, row: Row) -> Any:
        if self.spec.isUnpartitioned():
            return None
        key = self.jvm.org.apache.iceberg.PartitionKey(self.spec, self.table.schema())
        key.partition(self.schema.record(row))
        return key


class Fields:
    """The fields of a schema, which is asked for them once: each question is a call of the JVM."""

    def __init__(self, jvm: Any, schema: Any) -> None:
        self.jvm, self.struct = jvm, schema.asStruct()
        self.ids = {str(field.name()): str(field.fieldId()) for field in schema.columns()}
        self.parsed = jvm.org.apache.iceberg.SingleValueParser.fromJson

    def record(self, row: Row) -> Any:
        """Returns the row as Iceberg's record. Numbers go in by their text: through py4j alone a long becomes an int."""
        plain = {number: _plain(row.get(name)) for name, number in self.ids.items() if not _is_time(row.get(name))}
        record = self.parsed(self.struct, json.dumps(plain))
        for name in self.ids:
            if _is_time(row.get(name)):
                kind = "LocalDateTime" if isinstance(row[name], datetime.datetime) else "LocalDate"
                record.setField(name, getattr(self.jvm.java.time, kind).parse(row[name].isoformat()))
        return record


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime.date)


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value

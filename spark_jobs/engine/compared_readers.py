"""Compare Cleantail's reader of data files with Spark's Iceberg reader, once for each kind of files (file_columns).

A round decides by the columns that its tasks read themselves (spark_jobs.iceberg.log_files). Iceberg's own reader
is the reference (docs/architecture.md, decision 10). Before a round stages its removals:

1. The tasks have recorded the kinds of the files that they opened. Kinds that the table remembers are not compared
   again.
2. Both readers read up to three files of each other kind, up to 10,000 live records of each. Spark computes a digest of
   each column by its own plan (cleantail.log.adopted_table). Tasks digest the columns of rounds (records_of).
   The digest includes a record's number among the live ones of its file, so two exchanged values count as a difference.
3. If the digests differ, nothing is removed from the logs that have such files. Their check is red, and names file and
   columns.
4. If they are equal, the round's commit adds the kind to a property of the table. Another version of Cleantail's
   reader, Spark, Iceberg or PyArrow, another schema, mapping or strategy voids the property.

A conversion of equality deletes needs no such comparison, because it compares every position with Spark's reader.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import HEADERS, KEY, OFFSET, ORDER, PARTITION, TIMESTAMP, TOMBSTONE, VALUE
from cleantail.human import counted
from cleantail.lake.records import projection, topic_columns
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine import task_records
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.task_records import VERSION_COLUMN, Records, records_of
from spark_jobs.engine.tasks import described, run_tasks
from spark_jobs.iceberg import file_columns, log_files
from spark_jobs.iceberg.file_columns import Kinds, digest
from spark_jobs.iceberg.java_calls import static
from spark_jobs.iceberg.log_files import live_before
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import FILE, PLACE, TopicTable

PROPERTY_COMPARED = "cleantail.compared.files"
"""Table property with the kinds of files that were compared, and the version of the readers."""
RECORDS = 10_000
"""Maximum number of records that are compared in a file."""
MOST_KINDS = 64
"""Maximum number of kinds that a table remembers. If there are more, the oldest are forgotten and compared again."""
FILES_AT_ONCE = 24
NEXT_STEP = (
    "Report this file's Parquet schema as a bug of Cleantail. To continue before it is fixed, let Iceberg rewrite the "
    "file: CALL system.rewrite_data_files(table => …, options => map('rewrite-all', 'true'))"
)
_equal: set[tuple[str, str]] = set()
"""(readers, kind) of the comparisons without a difference in this process: topics of a pack have files of the same
kinds."""


@dataclass(frozen=True, slots=True)
class ReaderComparison:
    """Result for a work unit: partition -> why nothing is removed from it, and properties for the round's commit."""

    blocked: Mapping[int, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


NOTHING_NEW = ReaderComparison()


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A reader's view of a file: the number of records, and column -> a digest of its values, each with the number of
    its record. The order of records does not count."""

    records: int
    columns: Mapping[str, int]


def compare_readers(
    table: TopicTable, unit: WorkUnit, files: SnapshotFiles, tasks: Sequence[LogTask], retained: Collection[int] = ()
) -> ReaderComparison:
    """Compare the kinds of files that the tasks of a round have opened, if they are new to the table. `files`: of the
    snapshot that the tasks have read. `retained`: logs for which only retention is due."""
    met, table.met.value = table.met.value, {}
    met = {kind: found for kind, found in met.items() if any(files.planned(path) for _, path in found.files)}
    if not met:
        return NOTHING_NEW
    readers = readers_of(table, files)
    remembered = _remembered(files.iceberg.properties().get(PROPERTY_COMPARED), readers)
    new = {kind: found for kind, found in met.items() if kind not in remembered}
    if not new:
        return NOTHING_NEW
    unknown = {kind: found for kind, found in new.items() if (readers, kind) not in _equal}
    differing, empty = _differing(table, unit, files, tasks, unknown) if unknown else ({}, frozenset())
    equal = [kind for kind in sorted(new) if kind not in differing and kind not in empty]
    _equal.update((readers, kind) for kind in equal)
    text = json.dumps({"readers": readers, "kinds": [*remembered, *equal][-MOST_KINDS:]}, separators=(",", ":"))
    blocked = _blocked(unit.partitions, differing, unknown, retained)
    return ReaderComparison(blocked, {PROPERTY_COMPARED: text} if equal else {})


def forget(table: TopicTable) -> None:
    """Forget all comparisons, in the table and in this process: the next round compares again."""
    _equal.clear()
    table.set_properties({PROPERTY_COMPARED: ""})


def readers_of(table: TopicTable, files: SnapshotFiles) -> str:
    """Return a digest of everything that decides how files are read, apart from their kind."""
    iceberg, configs = files.iceberg, table.topic.config
    return digest(
        _source_of_reader(),
        [version(package) for package in ("pyspark", "pyarrow")],
        str(static(table.jvm, "org.apache.iceberg.IcebergBuild", "version")()),
        int(iceberg.schema().schemaId()),
        iceberg.properties().get("schema.name-mapping.default"),
        table.topic.columns,
        configs.compaction_strategy,
    )


@cache
def _source_of_reader() -> str:
    """Return a digest of the code of Cleantail's reader, in place of a version."""
    modules = (file_columns, log_files, task_records, projection, topic_columns)
    return digest(*map(inspect.getsource, modules))


def _remembered(text: str | None, readers: str) -> list[str]:
    """Return the kinds that the table remembers: none if another version or a user has written the property."""
    try:
        known = json.loads(text or "{}")
        return [str(kind) for kind in known["kinds"]] if known.get("readers") == readers else []
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


Differences = dict[str, tuple[frozenset[str], str]]
"""Kind -> the columns that differ, and a sentence that names the file."""


def _differing(
    table: TopicTable, unit: WorkUnit, files: SnapshotFiles, tasks: Sequence[LogTask], kinds: Kinds
) -> tuple[Differences, frozenset[str]]:
    """Return the kinds for which the readers differ, and those without a compared record."""
    by_path = {file.path: (task, file) for task in tasks for file in task.files}
    wanted = [
        (kind, path)
        for kind, met in kinds.items()
        for _, path in sorted(met.files)
        if path in by_path and files.planned(path)
    ]
    compared = [_compared_file(unit.partitions, *by_path[path]) for _, path in wanted]
    ours = run_tasks(table, digest_of_file, compared, "compare readers of files: Cleantail's,")
    theirs: list[FileDigest] = []
    for first in range(0, len(compared), FILES_AT_ONCE):
        theirs += _by_spark(table, files, compared[first : first + FILES_AT_ONCE])
    table.met.value = {}
    differing: Differences = {}
    seen = set[str]()
    for (kind, path), one, other in zip(wanted, ours, theirs, strict=True):
        if difference := _difference(path, one, other):
            differing.setdefault(kind, difference)
        elif one.records:
            seen.add(kind)
    return differing, frozenset(kinds.keys() - seen)


def _compared_file(works: Sequence[PartitionWork], task: LogTask, file: log_files.LogFile) -> LogTask:
    """Return a task for this whole file only. For a file that several logs share, the task has all logs of the unit."""
    of_file = sorted((w for w in works if file.log in (None, w.partition)), key=lambda work: work.partition)
    whole = replace(file, piece=0, pieces=1)
    return replace(task, works=tuple(of_file), files=(whole,), shares=1, share=None)


def _difference(path: str, ours: FileDigest, theirs: FileDigest) -> tuple[frozenset[str], str] | None:
    """Return the columns that differ, and a sentence that names the file; None if nothing differs."""
    columns = frozenset(name for name, value in ours.columns.items() if theirs.columns.get(name) != value)
    if ours.records != theirs.records:
        return columns | {PARTITION, OFFSET}, (
            f"{path}: Spark's Iceberg reader sees {counted(theirs.records, 'record')}, Cleantail's {ours.records}"
        )
    if not columns:
        return None
    return columns, (
        f"{path}: Spark's Iceberg reader sees other values of {', '.join(sorted(columns))} than Cleantail's, in the "
        f"first {counted(ours.records, 'record')}"
    )


def _blocked(
    works: Sequence[PartitionWork], differing: Differences, kinds: Kinds, retained: Collection[int]
) -> dict[int, str]:
    """Return partition -> why nothing is removed from it. Retention uses only partition and offset: if these are the
    same for both readers, it is not blocked."""
    blocked: dict[int, str] = {}
    for kind, (columns, text) in differing.items():
        for log in (work.partition for work in works):
            has_files = not kinds[kind].logs.isdisjoint({None, log})
            if has_files and (log not in retained or columns & {PARTITION, OFFSET}):
                blocked.setdefault(log, f"{text}. {NEXT_STEP}")
    return blocked


# --- Cleantail's reader: in a task


def digest_of_file(properties: Mapping[str, str], task: LogTask) -> FileDigest:
    """Return the digest of the first live records of the task's one file, by Cleantail's reader."""
    [file] = task.files
    io = load_file_io(dict(properties), task.location)
    keep = live_before(io, file)
    places = np.cumsum(keep) - 1
    seen, digests = 0, dict[str, int]()
    for some in records_of(io, task, file, keep, versions=True, tombstones=True):
        chosen = some.where(np.arange(len(some)) < RECORDS - seen)
        for name, values in _columns_of(task, chosen):
            for place, value in zip(places[chosen.pos].tolist(), values, strict=True):
                text = b"%d:" % place + (b"\0" if value is None else b"\1" + value)
                number = int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:15], 16)
                digests[name] = digests.get(name, 0) ^ number
        seen += len(chosen)
        if seen >= RECORDS:
            break
    return FileDigest(seen, digests)


def _columns_of(task: LogTask, records: Records) -> Iterator[tuple[str, Iterable[bytes | None]]]:
    assert records.key is not None and records.tombstone is not None, "both were requested"
    prefix = 4 if len(task.works) > 1 else 0  # records_of puts the log before a key
    yield PARTITION, (_text(task.works[place].partition) for place in records.log.tolist())
    # Spark gets the last registration of a file, and offsets of row lineage are those of the first
    if file_columns.has_offsets(task.layout) or not task.files[0].again:
        yield OFFSET, map(_text, records.offset.tolist())
    yield KEY, (None if key is None else key[prefix:] for key in records.key.to_pylist())
    yield TOMBSTONE, (_text(int(bool(mark))) for mark in records.tombstone.tolist())
    nothing = pa.nulls(len(records))
    for name in VERSION_COLUMN[task.configs.compaction_strategy]:
        if name == TIMESTAMP:
            yield name, map(_text, _or(records.timestamps, nothing).cast(pa.int64()).to_pylist())
        elif name == HEADERS:
            yield name, map(_headers_text, _or(records.headers, nothing).to_pylist())
        else:
            yield name, map(_text, _or(records.orders, nothing).to_pylist())


def _or(array: pa.Array | None, nothing: pa.Array) -> pa.Array:
    return nothing if array is None else array


def _text(value: int | None) -> bytes | None:
    return None if value is None else str(value).encode()


def _headers_text(headers: list[Mapping[str, Any]] | None) -> bytes | None:
    if headers is None:
        return None
    return ",".join(f"{_hex(h['key'])}={_hex(h['value'])}" for h in headers).encode()


def _hex(value: str | bytes | None) -> str:
    if value is None:
        return "-"
    return (value.encode() if isinstance(value, str) else value).hex().upper()


# --- Spark's Iceberg reader


def _by_spark(table: TopicTable, files: SnapshotFiles, compared: Sequence[LogTask]) -> list[FileDigest]:
    """Return the digests of the same records by Spark's Iceberg reader, of exactly these files, with their deletes.
    Small files are read in one scan, without a limit."""
    planned = {each.files[0].path: files.planned(each.files[0].path) for each in compared}
    tasks = {path: file.task for path, file in planned.items() if file is not None}
    records = {each.files[0].path: each.files[0].records for each in compared}
    small = [path for path, task in tasks.items() if records[path] <= RECORDS and _has_one_row_group(task)]
    large = [[path] for path in tasks if path not in small]
    groups = [small, *large] if small else large
    columns = _spark_columns(table.topic.config)
    logs = {work.partition for each in compared for work in each.works}
    with table.reading_files(files.iceberg, [[tasks[path] for path in group] for group in groups]) as frames:
        own = [
            frame.where(F.col(PARTITION).isin(logs)).select(FILE, PLACE, *(c.alias(n) for n, c in columns.items()))
            for frame in frames
        ]
        first = [frame if group is small else frame.limit(RECORDS) for group, frame in zip(groups, own, strict=True)]
        digests = (F.expr(f"bit_xor({_digest_sql(name)})").alias(name) for name in columns)
        by_file = reduce(DataFrame.union, first).coalesce(1).groupBy(FILE)  # without a shuffle
        with described(table.spark.sparkContext, f"compare readers of files: Spark's, of {table.topic.topic}"):
            rows = by_file.agg(F.count("*").alias("records"), *digests).collect()
    seen = {row[FILE]: FileDigest(row["records"], {name: row[name] for name in columns}) for row in rows}
    return [seen.get(each.files[0].path, FileDigest(0, {})) for each in compared]


def _has_one_row_group(task: Any) -> bool:
    offsets = task.file().splitOffsets()
    return offsets is not None and offsets.size() == 1


def _digest_sql(name: str) -> str:
    value = f"IF(`{name}` IS NULL, X'00', concat(X'01', CAST(`{name}` AS BINARY)))"
    text = f"concat(CAST(concat(CAST({PLACE} AS STRING), ':') AS BINARY), {value})"
    return f"CAST(conv(substring(md5({text}), 1, 15), 16, 10) AS BIGINT)"


def _spark_columns(configs: KafkaConfigs) -> dict[str, Column]:
    """Return each compared column of a topic table as text or bytes."""
    header = "concat(coalesce(hex(h.`key`), '-'), '=', coalesce(hex(h.`value`), '-'))"
    versions = {
        TIMESTAMP: F.expr(f"CAST(unix_micros(`{TIMESTAMP}`) AS STRING)"),
        HEADERS: F.expr(f"IF(`{HEADERS}` IS NULL, NULL, array_join(transform(`{HEADERS}`, h -> {header}), ','))"),
        ORDER: F.expr(f"CAST(`{ORDER}` AS STRING)"),
    }
    return {
        PARTITION: F.expr(f"CAST(`{PARTITION}` AS STRING)"),
        OFFSET: F.expr(f"CAST(coalesce(`{OFFSET}`, -1) AS STRING)"),
        KEY: F.col(KEY),
        TOMBSTONE: F.expr(f"IF(`{VALUE}` IS NULL, '1', '0')"),
        **{name: versions[name] for name in VERSION_COLUMN[configs.compaction_strategy]},
    }

"""Adapter: an existing Iceberg table as adoption needs to know it, through PyIceberg. Nothing is changed.

It reads partition and offset of every live record, and the topic's name where there is a column of it; never keys or
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cleantail.adopt.adoption import ForeignLog, ForeignTable
from cleantail.adopt.layouts import Layout, required
from cleantail.config.columns import Columns
from cleantail.config.topic_table import KEY, OFFSET, PROPERTY_TOPIC, RETRIES, TOMBSTONE
from cleantail.errors import TableError
from cleantail.lake.columns_property import PROPERTY_COLUMNS
from cleantail.lake.parquet_footers import null_count
from cleantail.lake.records.file_records import layout_of_paths, live_columns, stored_columns
from cleantail.lake.records.log_parts import parts_of
from cleantail.lake.records.marked_records import marked_records
from cleantail.lake.records.topic_columns import MOST_MS, beyond_ms, column_at
from cleantail.lake.runs.damaged_vectors import damaged_vectors
from cleantail.lake.runs.foreign_deletes import require_own_deletes
from cleantail.log.column_sql import problem_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SPARK = {"int": "int", "long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz", "uuid": "string"}
"""Iceberg's names of types -> Spark's, where the two differ."""


def inspect(table: Table, layout: Layout, columns: Columns | None) -> ForeignTable:
    """Returns what the table is. Without `columns`, or where records cannot be read in place, it says only what the
    metadata tells."""
    schema, spec = table.schema(), table.spec()
    kinds = {name: str(schema.find_field(name).field_type) for name in schema.column_names}
    properties = table.properties
    deletes, of_gone_files = _deletes(table)
    fields = [f"{f.transform}({schema.find_column_name(f.source_id)})" for f in spec.fields]
    inspected = ForeignTable(
        table=".".join(table.name()[-2:]),
        sink=layout.sink,
        format_version=table.metadata.format_version,
        partitioned_by=", ".join(fields) or "nothing",
        columns=tuple(kinds.items()),
        topics=(),
        owner=properties.get(PROPERTY_TOPIC),
        adopted_columns=properties.get(PROPERTY_COLUMNS),
        missing_retries=tuple(name for name in RETRIES if name not in properties),
        deletes=deletes,
        vectors_of_gone_files=of_gone_files,
        lacks_row_ids=(snapshot := table.current_snapshot()) is not None and snapshot.first_row_id is None,
        wrong=(*_wrong(layout.paths, kinds), *_wrong_mark(columns, kinds)),
    )
    if columns is None or inspected.wrong or inspected.deletes:
        return inspected
    return replace(inspected, **_records(table, layout, columns))


def _wrong(paths: Mapping[str, str], kinds: Mapping[str, str]) -> Iterable[str]:
    for name in required(paths):
        if name not in paths:
            other = (
                ", or in a table without offsets which decides, with --column order=COLUMN" if name == OFFSET else ""
            )
            yield f"no column is known to hold the {name}: say which with --column {name}=COLUMN{other}"
    for name, path in ((name, path) for name, text in paths.items() for path in text.split(",")):
        if path not in kinds:
            yield f"{name}: the table has no column {path}; it has {', '.join(kinds)}"
        elif reason := problem_of(name, spark_kind(kinds[path])):
            yield f"{name}: {path} is {kinds[path]}: {reason}"


def _wrong_mark(columns: Columns | None, kinds: Mapping[str, str]) -> Iterable[str]:
    if columns is not None and columns.deleted is not None:
        path = columns.deleted.column
        if path not in kinds:
            yield f"deleted: the table has no column {path}; it has {', '.join(kinds)}"
        elif reason := problem_of(TOMBSTONE, spark_kind(kinds[path])):
            yield f"deleted: {path} is {kinds[path]}: {reason}"


def spark_kind(iceberg: str) -> str:
    """Returns Spark's name of a type, as far as problem_of looks at it."""
    if iceberg.startswith("fixed["):
        return "binary"
    if iceberg.startswith("decimal("):
        return iceberg.replace(" ", "")
    if iceberg.startswith("list<struct<"):
        names = [
            part.strip().split(":")[1].strip() for part in iceberg[len("list<struct<") :].split(",") if ":" in part
        ]
        return f"array<struct<{names[0]}:" if set(names) == {"key", "value"} else "array"
    return _SPARK.get(iceberg, iceberg)


def _deletes(table: Table) -> tuple[str, int]:
    """Returns, in words, the deletes that a round could not replace, or that make the table unreadable, empty where
    there are none; and how many data files are gone whose deletion vector is left."""
    try:
        require_own_deletes(table)
        damaged = damaged_vectors(table)
    except TableError as e:
        return str(e), 0
    return next(iter(damaged.unreadable.values()), ""), len(damaged.gone)


def _records(table: Table, layout: Layout, columns: Columns) -> dict[str, Any]:
    """Returns everything that the records tell."""
    # 1. only Parquet can be read in place
    tasks, twice = _once(table.scan().plan_files())
    formats = {str(getattr(t.file.file_format, "value", t.file.file_format)).upper() for t in tasks} - {"PARQUET"}
    if formats:
        return {"files": len(tasks), "registered_twice": twice, "other_formats": tuple(sorted(formats))}
    if wrong := tuple(_times_beyond(table, columns, [t.file for t in tasks])):
        return {"files": len(tasks), "registered_twice": twice, "wrong": wrong}
    # 2. partitions and offsets, file by file
    topics: set[str] = set()
    offsets: dict[int, list[Any]] = {}
    shared = unordered = unbounded = 0
    for task in tasks:
        logs, in_order = _of_file(table, columns, layout.topic_path, task, topics)
        shared += len(parts_of(table, task.file, columns) if columns.has_offsets else logs) > 1
        unordered += not in_order
        unbounded += not _has_bounds(table, columns, task.file)
        for partition, values in logs.items():
            offsets.setdefault(partition, []).append(values)
    return {
        "files": len(tasks),
        "registered_twice": twice,
        "topics": tuple(sorted(topics)),
        "logs": tuple(_log(p, parts, columns.has_offsets) for p, parts in sorted(offsets.items())),
        "files_of_several_logs": shared,
        "files_out_of_order": unordered,
        "files_without_bounds": unbounded,
        "tombstones": _tombstones(table, columns, [t.file for t in tasks]),
        "keyless": _keyless(table, columns, [t.file for t in tasks]),
        "value_is_required": isinstance(columns.value, str) and _is_required(table, columns.value),
    }


def _once(tasks: Iterable[Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Returns each file once, as its last registration has it, which has the fewest deletes; and the names of those
    that are registered more than once."""
    by_path: dict[str, list[Any]] = {}
    for task in tasks:
        by_path.setdefault(task.file.file_path, []).append(task)
    twice = tuple(sorted(path for path, same in by_path.items() if len(same) > 1))
    return [min(same, key=lambda task: len(task.delete_files)) for same in by_path.values()], twice


def _of_file(
    table: Table, columns: Columns, topic_path: str | None, task: Any, topics: set[str]
) -> tuple[dict[int, Any], bool]:
    """Returns (partition -> its offsets, whether they ascend in the file), and adds names of topics to `topics`."""
    import numpy as np
    import pyarrow as pa

    # 1. read nothing but partition, offset and, where there is one, the topic's name
    paths = [path for path in (columns.partition, columns.offset, topic_path) if path]
    [(_, records)] = live_columns(table, paths or columns.of(KEY), [task])
    nowhere = pa.array(np.zeros(len(records), np.int64))
    partition, offset = (column_at(records, p) if p else nowhere for p in (columns.partition, columns.offset))
    if partition.null_count or offset.null_count:
        raise TableError(f"{task.file.file_path} has records without a partition or an offset: they belong to no log")
    # 2. what they say
    if topic_path:
        topics |= set(column_at(records, topic_path).unique().to_pylist()) - {None}
    partitions, values = partition.to_numpy(zero_copy_only=False), offset.to_numpy(zero_copy_only=False)
    logs = {int(p): values[partitions == p] for p in np.unique(partitions)}
    return logs, not columns.has_offsets or all(bool(np.all(np.diff(offsets) > 0)) for offsets in logs.values())


def _log(partition: int, parts: list[Any], has_offsets: bool) -> ForeignLog:
    import numpy as np

    offsets = np.concatenate(parts)
    if not has_offsets:
        return ForeignLog(partition, len(offsets), None, None, 0)
    count, distinct = len(offsets), len(np.unique(offsets))
    return ForeignLog(partition, count, int(offsets.min()), int(offsets.max()), count - distinct)


def _has_bounds(table: Table, columns: Columns, file: Any) -> bool:
    paths = [path for path in (columns.partition, columns.offset) if path]
    ids = {table.schema().find_field(path).field_id for path in paths}
    return ids <= set(file.lower_bounds or {}) & set(file.upper_bounds or {})


def _tombstones(table: Table, columns: Columns, files: Sequence[Any]) -> int | None:
    """Returns how many records are tombstones, if the metadata say, or a column marks them."""
    if columns.deleted is not None:
        return sum(marked_records(table, file, columns) for file in files)
    return _nulls(table, columns.value if isinstance(columns.value, str) else None, files)


def _times_beyond(table: Table, columns: Columns, files: Iterable[Any]) -> Iterator[str]:
    """Yields what is wrong with whole numbers that are mapped to timestamp and are not all Unix ms."""
    import pyarrow.compute as pc

    path = columns.timestamp
    if path is None or layout_of_paths(table, [path])[path].kind != "long":
        return
    for file in files:
        ends = pc.min_max(column_at(stored_columns(table, [path], file), path)).as_py()
        if any(end is not None and abs(end) > MOST_MS for end in ends.values()):
            yield beyond_ms(path)
            return


def _keyless(table: Table, columns: Columns, files: Sequence[Any]) -> int | None:
    """Returns how many records have no key; of a key of several parts it is none where a part is never null."""
    counts = [_nulls(table, path, files) for path in columns.of(KEY)]
    return counts[0] if len(counts) == 1 else 0 if 0 in counts else None


def _nulls(table: Table, path: str | None, files: Iterable[Any]) -> int | None:
    if path is None:
        return None
    counts = [null_count(table, file, path) for file in files]
    null_counts = [count for count in counts if count is not None]
    return sum(null_counts) if len(null_counts) == len(counts) else None


def _is_required(table: Table, path: str) -> bool:
    """Returns whether neither the field nor a struct around it can be null."""
    parts = path.split(".")
    return all(table.schema().find_field(".".join(parts[: i + 1])).required for i in range(len(parts)))

"""Adapter: read the facts about an existing table that adoption needs, through PyIceberg. Changes nothing.

The module reads partition and offset of every live record, and the topic's name if a column has it. It never reads keys
or values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cleantail.adopt.adoption import ForeignLog, ForeignTable, Layout, required
from cleantail.config.config_model import INT_MAX
from cleantail.config.topic_table import (
    KEY,
    OFFSET,
    PROPERTY_TOPIC,
    RETRIES,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOMBSTONE,
    Columns,
)
from cleantail.errors import TableError
from cleantail.lake.data_files import null_count, parts_of
from cleantail.lake.records.log_records import file_problem, live_columns, marked_records, stored_columns
from cleantail.lake.records.topic_columns import MOST_MS, PROPERTY_COLUMNS, beyond_ms, column_at
from cleantail.lake.repairable_deletes import damaged_vectors, require_own_deletes
from cleantail.log.adopted_table import problem_of

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_BOUNDS = {TIMESTAMP: (-MOST_MS, MOST_MS), TIMESTAMP_TYPE: (-INT_MAX - 1, INT_MAX)}
_UNFIT: dict[str, Callable[[str], str]] = {
    TIMESTAMP: lambda path: f"{beyond_ms(path)}, or none with --column timestamp=",
    TIMESTAMP_TYPE: lambda path: (
        f"{path} has numbers that are not timestamp types of Kafka. Map another column, or none with --column "
        "timestamp_type="
    ),
}
_NOT_IN_SPARK = ("time", "geometry", "geography")
"""Prefixes of Iceberg types that Spark does not have, except for those in _SPARK."""
_SPARK = {"int": "int", "long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz", "uuid": "string"}
"""Iceberg type -> Spark type, if their names differ."""


def inspect(table: Table, layout: Layout, columns: Columns | None) -> ForeignTable:
    """Return the facts of the table. Without `columns`, or if records cannot be read in place, only from metadata."""
    schema, spec = table.schema(), table.spec()
    kinds, properties = _kinds(schema), table.properties
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
        left_out=layout.left_out,
        wrong=(
            *_not_for_spark(kinds),
            *_same_names(kinds),
            *_wrong(layout.paths, schema),
            *_wrong_mark(columns, schema),
        ),
    )
    if columns is None or inspected.wrong or inspected.deletes:
        return inspected
    return replace(inspected, **_records(table, layout, columns))


def fitting(table: Table, layout: Layout) -> Layout:
    """Return the layout without guessed columns whose types do not fit."""
    for name, path in layout.paths.items():
        if layout.may_leave_out(name) and (reason := _misfit(name, path, table.schema())):
            layout = layout.without(name, reason)
    return layout


def _kinds(schema: Schema) -> dict[str, str]:
    """Return column -> type. A field of a struct is `struct.field`."""
    return {name: str(schema.find_field(name).field_type) for name in schema.column_names}


def _not_for_spark(kinds: Mapping[str, str]) -> Iterable[str]:
    """Yield problems of columns whose type makes the whole table unreadable for Spark."""
    for name, kind in kinds.items():
        if kind.startswith(_NOT_IN_SPARK) and kind not in _SPARK:
            yield (
                f"column {name} is {kind}, and Spark cannot read a table with such a column. Let its sink write text "
                "or a whole number, and drop the column in an engine that can read it"
            )


def _same_names(kinds: Mapping[str, str]) -> Iterable[str]:
    """Yield problems of names that differ only by case, because Spark cannot distinguish them."""
    by_name: dict[str, list[str]] = {}
    for name in kinds:
        by_name.setdefault(name.lower(), []).append(name)
    for names in by_name.values():
        if len(names) > 1:
            yield (
                f"columns {' and '.join(names)} differ by case only, and Spark treats them as one: rename one of them "
                f"(SET spark.sql.caseSensitive=true; ALTER TABLE … RENAME COLUMN {names[-1]} TO …), or drop it"
            )


def _misfit(name: str, path: str, schema: Schema) -> str | None:
    """Return why a column of the table cannot be mapped, None if it can."""
    kinds = _kinds(schema)
    if path not in kinds:
        return f"the table has no column {path}; it has {', '.join(kinds)}"
    if not _is_field(schema, path):
        return (
            f"{path} cannot be mapped: a dot leads to a field of a struct, not into a list or map, and no name "
            f"may have one. Rename the column (ALTER TABLE … RENAME COLUMN `{path}` TO {path.replace('.', '_')}), or "
            "map another"
        )
    reason = problem_of(name, spark_kind(kinds[path]))
    return f"{path} is {kinds[path]}: {reason}" if reason else None


def _is_field(schema: Schema, path: str) -> bool:
    """Return whether each step of the path is a field of the struct before it."""
    fields: Sequence[Any] = schema.fields
    for step in path.split("."):
        field = next((field for field in fields if field.name == step), None)
        if field is None:
            return False
        fields = getattr(field.field_type, "fields", ())
    return True


def _wrong(paths: Mapping[str, str], schema: Schema) -> Iterable[str]:
    for name in required(paths):
        if name not in paths:
            other = (
                ", or in a table without offsets which decides, with --column order=COLUMN" if name == OFFSET else ""
            )
            yield f"no column for the {name} was found: name it with --column {name}=COLUMN{other}"
    for name, path in ((name, path) for name, text in paths.items() for path in text.split(",")):
        if reason := _misfit(name, path, schema):
            yield f"{name}: {reason}"


def _wrong_mark(columns: Columns | None, schema: Schema) -> Iterable[str]:
    deleted = columns.deleted if columns is not None else None
    if deleted is not None and (reason := _misfit(TOMBSTONE, deleted.column, schema)):
        yield f"deleted: {reason}"


def spark_kind(iceberg: str) -> str:
    """Return Spark's name of a type, with the details that problem_of needs."""
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
    """Return a text on deletes that a round cannot replace or that make the table unreadable, "" without such deletes.

    Also return the number of deletion vectors whose data files no longer exist.
    """
    try:
        require_own_deletes(table)
        damaged = damaged_vectors(table)
    except TableError as e:
        return str(e), 0
    return next(iter(damaged.unreadable.values()), ""), len(damaged.gone)


def _records(table: Table, layout: Layout, columns: Columns) -> dict[str, Any]:
    """Return the fields of ForeignTable that come from data files and records."""
    # 1. only Parquet without INT96 can be read in place
    tasks, twice = _once(table.scan().plan_files())
    problems = [text for task in tasks if (text := file_problem(table, task.file, columns.paths.values()))]
    if problems:
        more = f"; so are {len(problems) - 1} more" if len(problems) > 1 else ""
        return {"registered_twice": twice, "unreadable_files": (problems[0] + more,)}
    if unfit := _unfit(table, columns, [task.file for task in tasks]):
        return {"registered_twice": twice, "unfit": unfit}
    # 2. partitions and offsets, file by file
    topics: set[str] = set()
    offsets: dict[int, list[Any]] = {}
    shared = unordered = unbounded = 0
    for task in tasks:
        logs, in_order = _of_file(table, columns, layout.topic_path, task, topics)
        shared += len(parts_of(table, task.file, columns) if columns.has_offsets else logs) > 1
        unordered += not in_order
        paths = [path for path in (columns.partition, columns.offset) if path]
        ids = {table.schema().find_field(path).field_id for path in paths}
        unbounded += not (ids <= set(task.file.lower_bounds or {}) & set(task.file.upper_bounds or {}))
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
    """Return each file once, and the names of files that are registered more than once.

    The last registration counts, because it has the fewest deletes.
    """
    by_path: dict[str, list[Any]] = {}
    for task in tasks:
        by_path.setdefault(task.file.file_path, []).append(task)
    twice = tuple(sorted(path for path, same in by_path.items() if len(same) > 1))
    return [min(same, key=lambda task: len(task.delete_files)) for same in by_path.values()], twice


def _unfit(table: Table, columns: Columns, files: Iterable[Any]) -> dict[str, str]:
    """Return columns with numbers outside the range of a topic table, with a text for each."""
    import pyarrow.compute as pc

    schema, unfit = table.schema(), dict[str, str]()
    paths = {name: path for name, path in columns.paths.items() if name in _BOUNDS}
    paths = {name: path for name, path in paths.items() if str(schema.find_field(path).field_type) == "long"}
    for file in files if paths else ():
        records = stored_columns(table, list(paths.values()), file)
        for name, path in paths.items():
            low, high = _BOUNDS[name]
            span = pc.min_max(column_at(records, path)).as_py()
            if span["min"] is not None and not low <= span["min"] <= span["max"] <= high:
                unfit[name] = _UNFIT[name](path)
    return unfit


def _of_file(
    table: Table, columns: Columns, topic_path: str | None, task: Any, topics: set[str]
) -> tuple[dict[int, Any], bool]:
    """Return (partition -> its offsets, whether they ascend in the file). Adds names of topics to `topics`."""
    import numpy as np
    import pyarrow as pa

    # 1. read only partition, offset and, if a column has it, the topic's name
    paths = [path for path in (columns.partition, columns.offset, topic_path) if path]
    [(_, records)] = live_columns(table, paths or columns.of(KEY), [task])
    nowhere = pa.array(np.zeros(len(records), np.int64))
    partition, offset = (column_at(records, p) if p else nowhere for p in (columns.partition, columns.offset))
    if partition.null_count or offset.null_count:
        raise TableError(f"{task.file.file_path} has records without a partition or an offset: they belong to no log")
    # 2. group by partition
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


def _tombstones(table: Table, columns: Columns, files: Sequence[Any]) -> int | None:
    """Return the number of tombstones, from metadata or the column that marks deletes. None if unknown."""
    if columns.deleted is not None:
        return sum(marked_records(table, file, columns) for file in files)
    return _nulls(table, columns.value if isinstance(columns.value, str) else None, files)


def _keyless(table: Table, columns: Columns, files: Sequence[Any]) -> int | None:
    """Return the number of records without a key, None if unknown. A key of several columns needs only one of them."""
    counts = [_nulls(table, path, files) for path in columns.of(KEY)]
    return counts[0] if len(counts) == 1 else 0 if 0 in counts else None


def _nulls(table: Table, path: str | None, files: Iterable[Any]) -> int | None:
    if path is None:
        return None
    counts = [null_count(table, file, path) for file in files]
    null_counts = [count for count in counts if count is not None]
    return sum(null_counts) if len(null_counts) == len(counts) else None


def _is_required(table: Table, path: str) -> bool:
    """Return whether neither the field nor a struct around it can be null."""
    parts = path.split(".")
    return all(table.schema().find_field(".".join(parts[: i + 1])).required for i in range(len(parts)))

"""What an existing table is, whether it can be compacted in place, and what would have to change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleantail.config.columns import Columns
from cleantail.config.topic_table import EVIDENCE, PROPERTY_SIDE_OF, RETRIES, VALUE
from cleantail.human import counted

VECTORS_VERSION = 3
"""The first format version with deletion vectors."""
DELETES_VERSION = 2
"""The first with position deletes, which is the least that a round needs."""


@dataclass(frozen=True, slots=True)
class FoundLog:
    """One Kafka partition in the table; `last_offset` is inclusive. `duplicates`: records beyond one an offset."""

    partition: int
    records: int
    first_offset: int
    last_offset: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table as it was found. Counts that nothing tells without reading values are None."""

    table: str
    sink: str
    format_version: int
    partitioned_by: str
    columns: tuple[tuple[str, str], ...]
    topics: tuple[str, ...]
    files: int = 0
    logs: tuple[FoundLog, ...] = ()
    files_of_several_logs: int = 0
    files_out_of_order: int = 0
    files_without_bounds: int = 0
    tombstones: int | None = None
    keyless: int | None = None
    value_is_required: bool = False
    missing_retries: tuple[str, ...] = ()
    """Of the properties RETRIES those that the table does not have."""
    deletes: str = ""
    other_formats: tuple[str, ...] = ()
    owner: str | None = None
    adopted_columns: str | None = None
    wrong: tuple[str, ...] = field(default=())
    """What the mapping or the records make impossible, in words."""

    @property
    def records(self) -> int:
        return sum(log.records for log in self.logs)


def own_table_problems(table: str, properties: Mapping[str, str]) -> list[str]:
    """Whether the table is one that Cleantail keeps for itself: the evidence, or one beside a topic's own. A round on
    it would delete what other topics' records stand for."""
    said = []
    if owner := properties.get(PROPERTY_SIDE_OF):
        said.append(f"it is kept by Cleantail beside the table of topic {owner}, and is no topic's")
    if table.rpartition(".")[2] == EVIDENCE:
        said.append("it is named as the evidence of all topics: give a table of a sink another name")
    return said


def problems(found: ForeignTable, topic: str, columns: Columns | None, upgrade: bool) -> list[str]:
    """Why the table cannot be adopted, each with what to do. Empty: it can."""
    said = list(found.wrong)
    if found.owner not in (None, topic):
        said.append(f"the table belongs to topic {found.owner}")
    if found.owner == topic and found.adopted_columns is None:
        said.append(f"the table was made by Cleantail for topic {topic}: there is nothing to adopt")
    if found.owner == topic and columns is not None and found.adopted_columns not in (None, columns.as_property()):
        said.append(
            f"it was adopted with columns {found.adopted_columns}: under others its checkpoints would be of other "
            "offsets. Give the same, or remove its properties cleantail.*"
        )
    if found.format_version < DELETES_VERSION and not upgrade:
        said.append(
            f"its format version is {found.format_version}, which has no deletes of rows: --upgrade makes it "
            f"{VECTORS_VERSION}, for good. Its sink and all its readers must know version {VECTORS_VERSION} first"
        )
    if found.deletes:
        said.append(found.deletes)
    if len(found.topics) > 1:
        said.append(
            f"it holds {counted(len(found.topics), 'topic')} ({', '.join(found.topics[:5])}): a table is one topic's"
        )
    if found.other_formats:
        said.append(f"it has data files of format {', '.join(found.other_formats)}: only Parquet can be read in place")
    return said


def advice(found: ForeignTable, columns: Columns, upgrade: bool) -> list[str]:
    """What a person should know before it is compacted."""
    said: list[str] = []
    if columns.value is None:
        said.append("no column is mapped to value: no record is a tombstone, and no deleted key ever goes")
    elif found.value_is_required:
        said.append(f"{columns.value} can never be null: no record is a tombstone, and no deleted key ever goes")
    if found.format_version == DELETES_VERSION and not upgrade:
        said.append(
            "format version 2: a round writes a small position delete file for every data file that it changes. "
            "--upgrade makes it version 3, with one file of deletion vectors a round, where its sink and all its "
            "readers know that"
        )
    if columns.timestamp is None:
        said.append("no timestamp: the newest segment stays active, and configs of lag and retention have no effect")
    if found.files_of_several_logs:
        said.append(
            f"files that hold several partitions: {found.files_of_several_logs}. A round publishes all partitions of "
            "such a file or none, and reclaim leaves it as it is"
        )
    if found.files_without_bounds:
        said.append(
            f"files without bounds of partition and offset in the metadata: {found.files_without_bounds}. Each is "
            "opened once by every process that evaluates the topic"
        )
    if duplicates := sum(log.duplicates for log in found.logs):
        said.append(f"records with the offset of another: {duplicates}. The first round keeps one of each")
    if found.keyless:
        said.append(f"records without a key: {found.keyless}. cleantail.keyless.policy says what becomes of them")
    return said


def version_after(version: int, upgrade: bool) -> int:
    """The format version of a table once it is adopted."""
    return VECTORS_VERSION if upgrade else version


def changes(found: ForeignTable, topic: str, columns: Columns, upgrade: bool) -> list[str]:
    """What adoption changes in the table, in one commit; empty where it is adopted already."""
    said, version = [], version_after(found.format_version, upgrade)
    if found.format_version < version:
        said.append(f"format version {found.format_version} -> {version}")
    if found.owner != topic or found.adopted_columns != columns.as_property():
        said.append("table properties cleantail.topic and cleantail.columns")
    said += [f"table property {name}: {RETRIES[name]}" for name in found.missing_retries]
    return said


def topic_data(topic: str, table: str, columns: Columns) -> dict[str, object]:
    """What the topic's YAML says."""
    return {"topic": topic, "table": table, "columns": columns.paths}


def describe(found: ForeignTable, columns: Mapping[str, str]) -> list[str]:
    """The findings in lines for people."""
    mapped = [f"  {name}: {path} ({_kind(found.columns, path)})" for name, path in columns.items()]
    rest = [name for name, _ in found.columns if name not in columns.values() and "." not in name]
    lines = [
        f"{found.table}: {found.sink}",
        f"format version {found.format_version}, partitioned by {found.partitioned_by}, "
        f"{counted(found.files, 'file')}, {counted(found.records, 'record')}",
        "columns:",
        *mapped,
        f"  not mapped: {', '.join(rest) or 'none'}",
    ]
    lines += [
        f"partition {log.partition}: {counted(log.records, 'record')}, offsets {log.first_offset} to "
        f"{log.last_offset}, {counted(log.duplicates, 'duplicate')}"
        for log in found.logs
    ]
    in_order = found.files - found.files_out_of_order
    lines.append(f"files in offset order: {in_order} of {found.files}; {_nulls(found, columns)}")
    return lines


def _kind(columns: Sequence[tuple[str, str]], path: str) -> str:
    return dict(columns).get(path, "no such column")


def _nulls(found: ForeignTable, columns: Mapping[str, str]) -> str:
    if VALUE not in columns or found.value_is_required:
        return "tombstones cannot be told"
    return f"tombstones: {'not known without reading values' if found.tombstones is None else found.tombstones}"

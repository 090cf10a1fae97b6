"""What an existing table is, whether it can be compacted in place, and what must change for that. Pure.

1. A table belongs to one topic. A table of another topic, a table that Cleantail made, and a table with records of
   several topics cannot be adopted.
2. An adopted table keeps its mapping of columns. Under other columns its checkpoints would name other records.
3. A round deletes rows by their positions in Parquet files. So every data file must be Parquet without INT96, and the
   format version must have position deletes, which version 1 lacks. A delete must apply to one data file only.
   Partitions are 0 to 2^31-1 and offsets 0 to 2^63-2, as in Kafka.
4. A table may be adoptable with consequences. Without a value column there are no tombstones. Records without
   timestamps are as old as their append. A file of several logs is published for all of them or for none. `advice`
   names the consequences, with remedies.
5. Adoption changes properties of the table, and its format version only on request (`--upgrade`). Records and files
   stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleantail.config.config_model import INT_MAX, LONG_MAX
from cleantail.config.topic_table import (
    HEADERS,
    KEY,
    OFFSET,
    ORDER,
    OWN_TABLES,
    PARTITION,
    PROPERTY_SIDE_OF,
    RETRIES,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Columns,
)
from cleantail.human import counted
from cleantail.lake.records.topic_columns import property_of_columns
from cleantail.log.segments import twice_text

REQUIRED = (PARTITION, OFFSET, KEY)
ORDERED = (ORDER, KEY)
"""Columns that a table without offsets needs."""
VECTORS_VERSION = 3
"""The first format version with deletion vectors."""
LINEAGE = 3
"""The first format version in which every record has an id."""
DELETES_VERSION = 2
"""The first format version with position deletes, which a round needs."""
TOPIC = "topic"
_NAMES = {TIMESTAMP: ("timestamp", "record_timestamp"), TIMESTAMP_TYPE: ("timestamp_type", "timestampType")}
_SINKS = {
    "redpanda.": "Redpanda's Iceberg topics",
    "_kafka_metadata.": "Kafka Connect's Iceberg sink, metadata as a struct",
    "_kafka_metadata_": "Kafka Connect's Iceberg sink, metadata as prefixed columns",
    "": "plain columns",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of a topic table are. `paths`: column -> its path. `topic_path`: a column of topic names.

    `guessed`: columns that the user did not name. `left_out`: texts on columns that do not fit.
    """

    sink: str
    paths: Mapping[str, str]
    topic_path: str | None
    guessed: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

    def may_leave_out(self, name: str) -> bool:
        """Return whether the column was guessed and is not required."""
        return name in self.guessed and name not in required(self.paths)

    def without(self, name: str, reason: str) -> Layout:
        text = f"{name} is left out: {reason}"
        paths = {column: path for column, path in self.paths.items() if column != name}
        return replace(self, paths=paths, left_out=(*self.left_out, text))


def required(paths: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a table with this mapping must have."""
    return ORDERED if ORDER in paths else REQUIRED


def guess_layout(names: Sequence[str], named_paths: Mapping[str, str]) -> Layout:
    """Guess the layout of a table with these column paths.

    All known sinks write partition and offset under one prefix: Redpanda's Iceberg topics in a struct `redpanda`, Kafka
    Connect's sink with `_kafka_metadata` as a struct or a prefix, Spark and Flink without a prefix. The user's
    `named_paths` replace guesses; an empty path leaves its column out.
    """
    prefix = _prefix(names, named_paths)
    guessed: dict[str, str] = {}
    if prefix is not None:
        candidates = {
            PARTITION: (f"{prefix}partition",),
            OFFSET: (f"{prefix}offset",),
            KEY: (f"{prefix}key", "key"),
            VALUE: ("value", f"{prefix}value"),
            HEADERS: (f"{prefix}headers", "headers"),
            **{name: tuple(f"{prefix}{n}" for n in choices) for name, choices in _NAMES.items()},
        }
        hits = {name: [path for path in paths if path in names] for name, paths in candidates.items()}
        guessed = {name: paths[0] for name, paths in hits.items() if paths}
    if named_paths.get(ORDER):  # the order column decides, even if the table has offsets
        guessed = {name: path for name, path in guessed.items() if name not in (PARTITION, OFFSET)}
    topic_path = f"{prefix}{TOPIC}" if prefix is not None and f"{prefix}{TOPIC}" in names else None
    paths = {name: path for name, path in (guessed | dict(named_paths)).items() if path}
    return Layout(_sink(prefix), paths, topic_path, frozenset(guessed.keys() - named_paths.keys()))


def _prefix(names: Sequence[str], named_paths: Mapping[str, str]) -> str | None:
    """Return the prefix of `offset` and `partition`, None if the columns have no prefix or several are possible."""
    if (named := named_paths.get(OFFSET, "")).endswith(OFFSET):
        return named.removesuffix(OFFSET)
    prefixes = {name[: -len(OFFSET)] for name in names if name.endswith(OFFSET)}
    both = sorted(prefix for prefix in prefixes if f"{prefix}{PARTITION}" in names)
    of_sinks = [prefix for prefix in _SINKS if prefix in both]
    return of_sinks[0] if of_sinks else both[0] if len(both) == 1 else None


def _sink(prefix: str | None) -> str:
    return "columns of its own" if prefix is None else _SINKS.get(prefix, f"columns under {prefix.rstrip('._')}")


@dataclass(frozen=True, slots=True)
class ForeignLog:
    """One Kafka partition in the table. `last_offset` is inclusive; both offsets are None in a table without offsets.

    `duplicates`: records beyond the first at each offset.
    """

    partition: int
    records: int
    first_offset: int | None
    last_offset: int | None
    duplicates: int


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table of another writer. A count is None if it cannot be taken without reading values."""

    table: str
    sink: str
    format_version: int
    partitioned_by: str
    columns: tuple[tuple[str, str], ...]
    topics: tuple[str, ...]
    files: int | None = None
    """None: a column is missing or does not fit, so no data file was read. All counts are then unknown."""
    logs: tuple[ForeignLog, ...] = ()
    files_of_several_logs: int = 0
    files_out_of_order: int = 0
    files_without_bounds: int = 0
    registered_twice: tuple[str, ...] = ()
    """Files that are registered more than once. All counts include each file once."""
    tombstones: int | None = None
    keyless: int | None = None
    value_is_required: bool = False
    missing_retries: tuple[str, ...] = ()
    """Properties of RETRIES that the table lacks."""
    deletes: str = ""
    vectors_of_gone_files: int = 0
    unreadable_files: tuple[str, ...] = ()
    """Texts on data files that cannot be read in place."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Column of a topic table -> why its values do not fit."""
    left_out: tuple[str, ...] = ()
    """Texts on guessed columns that do not fit."""
    lacks_row_ids: bool = False
    """No commit has assigned row ids to its records yet."""
    owner: str | None = None
    adopted_columns: str | None = None
    wrong: tuple[str, ...] = field(default=())
    """Texts on what makes the mapping impossible."""

    @property
    def records(self) -> int:
        return sum(log.records for log in self.logs)


def cleantail_table_problems(table: str, properties: Mapping[str, str]) -> list[str]:
    """Return problems of a table that Cleantail keeps for itself: the evidence, or a side table of a topic.

    A round on it would delete rows about other topics.
    """
    texts = []
    if owner := properties.get(PROPERTY_SIDE_OF):
        texts.append(f"it is a side table that Cleantail keeps for topic {owner}: adopt a table that a sink fills")
    if whose := OWN_TABLES.get(table.rpartition(".")[2]):
        texts.append(f"it has the name of the table with {whose}: give a sink's table another name")
    return texts


def problems(foreign: ForeignTable, topic: str, columns: Columns | None, upgrade: bool) -> list[str]:
    """Return why the table cannot be adopted, each with a remedy; empty if it can be adopted."""
    texts = [*foreign.wrong, *(f"{name}: {reason}" for name, reason in foreign.unfit.items())]
    if foreign.owner not in (None, topic):
        texts.append(f"the table belongs to topic {foreign.owner}")
    if foreign.owner == topic and foreign.adopted_columns is None:
        texts.append(f"the table was made by Cleantail for topic {topic}: there is nothing to adopt")
    if (
        foreign.owner == topic
        and columns is not None
        and foreign.adopted_columns not in (None, property_of_columns(columns))
    ):
        texts.append(
            f"it was adopted with columns {foreign.adopted_columns}: under other columns its checkpoints would "
            "name other offsets. Give the same columns, or remove its properties cleantail.*"
        )
    if foreign.format_version < DELETES_VERSION and not upgrade:
        texts.append(
            f"its format version is {foreign.format_version}, which has no deletes of rows: --upgrade makes it "
            f"{VECTORS_VERSION}, which cannot be undone. Its sink and all its readers must already support version "
            f"{VECTORS_VERSION}"
        )
    elif columns is not None and not columns.has_offsets and version_after(foreign.format_version, upgrade) < LINEAGE:
        texts.append(
            f"its format version is {foreign.format_version}, and it has no offsets: they are made from row lineage, "
            f"which version {LINEAGE} has. --upgrade makes it {LINEAGE}, which cannot be undone. Its sink and all its "
            f"readers must already support version {LINEAGE}"
        )
    if foreign.deletes:
        texts.append(foreign.deletes)
    if len(foreign.topics) > 1:
        names = ", ".join(foreign.topics[:5])
        texts.append(
            f"it holds {counted(len(foreign.topics), 'topic')} ({names}), but a table belongs to one topic. Let the "
            "sink write each topic into its own table"
        )
    texts += foreign.unreadable_files
    texts += _out_of_bounds(foreign.logs)
    return texts


def _out_of_bounds(logs: Sequence[ForeignLog]) -> Iterator[str]:
    """Yield problems of partitions and offsets that Kafka cannot have."""
    if wrong := [log.partition for log in logs if not 0 <= log.partition <= INT_MAX]:
        yield (
            f"{PARTITION}: it has partition {wrong[0]}, and 0 to {INT_MAX} are allowed. Map another column with "
            f"--column {PARTITION}=COLUMN"
        )
    for log in logs:
        low, high = log.first_offset or 0, log.last_offset or 0
        if low < 0 or high >= LONG_MAX:
            yield (
                f"{OFFSET}: partition {log.partition} has offsets from {low} to {high}, and 0 to {LONG_MAX - 1} are "
                f"allowed. Map another column with --column {OFFSET}=COLUMN, or leave offsets to Iceberg with --column "
                f"{ORDER}=COLUMN"
            )
            return


def advice(foreign: ForeignTable, columns: Columns, upgrade: bool) -> list[str]:
    """Return what the user should know before the table is compacted."""
    texts: list[str] = list(foreign.left_out)
    if columns.value is None and columns.deleted is None:
        texts.append(
            "no column is mapped to value: no record is a tombstone, and no key is ever deleted. If a column marks "
            "deletes, name it with --deleted COLUMN=TEXT"
        )
    elif foreign.value_is_required and columns.deleted is None:
        texts.append(f"{columns.value} can never be null: no record is a tombstone, and no key is ever deleted")
    if not columns.has_offsets:
        texts.append(
            f"no offsets: the highest {columns.order} of a key wins, then the later commit. Offsets are derived from "
            "Iceberg's row lineage (docs/semantics.md, 3.13). Engines that rewrite this table must keep row ids, as "
            "the specification requires. Its topic cannot be restored into Kafka"
        )
    if foreign.format_version == DELETES_VERSION and not upgrade:
        texts.append(
            "format version 2: a round writes a small position delete file for every data file that it changes. "
            "--upgrade makes it version 3, with one file of deletion vectors per round. Its sink and all its readers "
            "must support version 3"
        )
    if columns.timestamp is None:
        texts.append("no timestamp: for segments, lags and retention a record has the time of its append")
    if foreign.files_of_several_logs:
        texts.append(
            f"files that hold several partitions: {foreign.files_of_several_logs}. A round publishes all partitions of "
            "such a file or none, and reclaim does not rewrite it"
        )
    if foreign.files_without_bounds:
        texts.append(
            f"files without bounds of partition and offset in the metadata: {foreign.files_without_bounds}. Each is "
            "opened once by every process that evaluates the topic"
        )
    if foreign.vectors_of_gone_files:
        texts.append(
            f"deletion vectors of data files that no longer exist: {foreign.vectors_of_gone_files}. If a sink commits "
            f"such a file again, no engine can read the table: `cleantail mend {foreign.table}` drops them"
        )
    if foreign.registered_twice:
        texts.append(
            f"{twice_text(foreign.registered_twice)}. Readers get their records once for each registration. The first "
            "round keeps each record once, and all counts here include each file once"
        )
    if duplicates := sum(log.duplicates for log in foreign.logs):
        texts.append(f"records that share their offset with another: {duplicates}. The first round keeps one of each")
    if foreign.keyless:
        texts.append(f"records without a key: {foreign.keyless}. cleantail.keyless.policy decides about them")
    return texts


def version_after(version: int, upgrade: bool) -> int:
    """Return the format version of the adopted table."""
    return VECTORS_VERSION if upgrade else version


def changes(foreign: ForeignTable, topic: str, columns: Columns, upgrade: bool) -> list[str]:
    """Return what adoption changes in the table, in one commit; empty if it is adopted already."""
    texts, version = [], version_after(foreign.format_version, upgrade)
    if foreign.format_version < version:
        texts.append(f"format version {foreign.format_version} -> {version}")
    if foreign.owner != topic or foreign.adopted_columns != property_of_columns(columns):
        texts.append("table properties cleantail.topic and cleantail.columns")
    if foreign.lacks_row_ids and not columns.has_offsets:
        texts.append("a commit without records, with which Iceberg assigns row ids")
    texts += [f"table property {name}: {RETRIES[name]}" for name in foreign.missing_retries]
    return texts


def topic_data(topic: str, table: str, columns: Columns) -> dict[str, object]:
    """Return the content of the topic's YAML."""
    return {"topic": topic, "table": table, "columns": columns.as_data}


def describe(foreign: ForeignTable, columns: Mapping[str, str]) -> list[str]:
    """Return lines for people about the table."""
    mapped = [f"  {name}: {path} ({_kind(foreign.columns, path)})" for name, path in columns.items()]
    paths = {path for text in columns.values() for path in text.split(",")}
    rest = [name for name, _ in foreign.columns if name not in paths and "." not in name]
    counts = (
        "records not read"
        if foreign.files is None
        else f"{counted(foreign.files, 'file')}, {counted(foreign.records, 'record')}"
    )
    lines = [
        f"{foreign.table}: {foreign.sink}",
        f"format version {foreign.format_version}, partitioned by {foreign.partitioned_by}, {counts}",
        "columns:",
        *mapped,
        f"  not mapped: {', '.join(rest) or 'none'}",
    ]
    if foreign.files is None:
        return lines
    lines += [f"partition {log.partition}: {counted(log.records, 'record')}, {_offsets(log)}" for log in foreign.logs]
    in_order = foreign.files - foreign.files_out_of_order
    order = "" if ORDER in columns else f"files in offset order: {in_order} of {foreign.files}; "
    lines.append(f"{order}{_nulls(foreign, columns)}")
    return lines


def _offsets(log: ForeignLog) -> str:
    if log.first_offset is None:
        return "without offsets"
    return f"offsets {log.first_offset} to {log.last_offset}, {counted(log.duplicates, 'duplicate')}"


def _kind(columns: Sequence[tuple[str, str]], path: str) -> str:
    """Return the types of a mapped path, which may have several columns with commas."""
    return ", ".join(dict(columns).get(part, "no such column") for part in path.split(","))


def _nulls(foreign: ForeignTable, columns: Mapping[str, str]) -> str:
    """Return the number of tombstones, as far as metadata have it."""
    if foreign.tombstones is None and (VALUE not in columns or foreign.value_is_required):
        return "tombstones: unknown"
    return f"tombstones: {'not known without reading values' if foreign.tombstones is None else foreign.tombstones}"

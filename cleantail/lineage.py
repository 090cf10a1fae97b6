"""The lineage of a task: datasets it read and wrote, with snapshots, and results of checks.

A table is named by its location (`s3://bucket`, `warehouse/ns/table`), as OpenLineage's agent for Spark does, and by
its catalog name. A topic in Kafka is named by its first broker (`kafka://host:9092`, `orders`), a file by its path
(`file`, `/landing/a.jsonl`). So lineage of other tools uses the same names. No name contains a login.

A branch of a table is the table itself at another snapshot. Only `evidence_dataset`, `topic_datasets`, `source_dataset`
and `recorded_checks` read the catalog.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.recorded_rounds import evidence_of_round, load_evidence
from cleantail.log.source_position import snapshot_position_of
from cleantail.rounds.check_results import CheckResult, checks_of
from cleantail.rounds.recorded_checks import last_check
from cleantail.rounds.stations import BY_NAME, INGEST, Writes

if TYPE_CHECKING:
    from pyiceberg.table import Table


FILES_NAMED = 20
"""Maximum number of files that are named one by one. If there are more, their folders are named."""
RECORD = {
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamptz",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "list",
}
"""Fields of a record at its source. A topic's table has an equal column for each."""


@dataclass(frozen=True, slots=True)
class DatasetName:
    """A dataset's name in OpenLineage, in a global namespace."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Assertion:
    """The result of one check over all logs of a round, without arguments of the check and without record data.

    `holds_back`: a log that fails it is not published. `failed_in`: partitions.
    """

    assertion: str
    column: str | None
    holds_back: bool
    failed_in: tuple[int, ...] = ()

    @property
    def success(self) -> bool:
        return not self.failed_in


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """A dataset as one task saw it. `known_as`: its name in the catalog; `columns`: name -> type.

    `copied_columns` are unchanged copies of the columns of that name in `columns_from`. `records`: number written.
    """

    dataset: DatasetName
    known_as: DatasetName | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    snapshot_id: int | None = None
    columns_from: DatasetName | None = None
    copied_columns: tuple[str, ...] = ()
    records: int | None = None
    assertions: tuple[Assertion, ...] = ()

    def at(self, snapshot_id: int | None) -> LineageDataset:
        return replace(self, snapshot_id=snapshot_id)

    def taking(self, source: LineageDataset) -> LineageDataset:
        """Return the dataset with those of its columns marked as copied that `source` has too."""
        same = tuple(name for name in self.columns if name in source.columns)
        return replace(self, columns_from=source.dataset, copied_columns=same)


@dataclass(frozen=True, slots=True)
class StationLineage:
    """The datasets that one task read and wrote."""

    inputs: tuple[LineageDataset, ...] = ()
    outputs: tuple[LineageDataset, ...] = ()

    def __add__(self, other: StationLineage) -> StationLineage:
        """Join both, with each dataset once."""
        return StationLineage(_once(self.inputs + other.inputs), _once(self.outputs + other.outputs))


def place_name(location: str) -> DatasetName:
    """Return the name of a table or a file at a location. `s3a://b/x` equals `s3://b/x`, `file:///x` equals `/x`."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return DatasetName("file", parts.path.rstrip("/") or "/")
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return DatasetName(f"{scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.strip("/") or "/")


def catalog_name(address: str, table: str) -> DatasetName:
    """Return a table's name in the catalog at an address, without login and options."""
    parts = urlsplit(address)
    return DatasetName(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/"), table)


def kafka_dataset(brokers: str, topic: str) -> LineageDataset:
    """Return a topic in Kafka. The first broker names the cluster."""
    return LineageDataset(DatasetName(f"kafka://{brokers.split(',')[0].strip()}", topic), columns=RECORD)


def file_datasets(files: Sequence[Path]) -> tuple[LineageDataset, ...]:
    """Return files of a source, or their folders if there are more than FILES_NAMED."""
    paths = sorted({*files}) if len(files) <= FILES_NAMED else sorted({file.parent for file in files})
    return tuple(LineageDataset(DatasetName("file", str(path)), columns=RECORD) for path in paths)


def _once(datasets: Iterable[LineageDataset]) -> tuple[LineageDataset, ...]:
    unique: dict[tuple[DatasetName, int | None], LineageDataset] = {}
    for dataset in datasets:
        unique.setdefault((dataset.dataset, dataset.snapshot_id), dataset)
    return tuple(unique.values())


@dataclass(frozen=True, slots=True)
class TopicDatasets:
    """The topic's table at the end of the task, its branches by name, and the evidence, None if it is missing."""

    table: LineageDataset
    branches: Mapping[str, int] = field(default_factory=dict)
    evidence: LineageDataset | None = None


@dataclass(frozen=True, slots=True)
class StationFacts:
    """The lineage in a station's result. `commits`: the station wrote into the table.

    `read`: snapshots that the station read, empty if unknown. `written`: the snapshot that it made, None if unknown.
    """

    read: tuple[int, ...] = ()
    written: int | None = None
    commits: bool = False
    records: int | None = None
    checks: tuple[CheckResult, ...] = ()


def lineage_of(
    name: str, tables: TopicDatasets, facts: StationFacts, source: Sequence[LineageDataset] = ()
) -> StationLineage:
    """Return the datasets that a station read and wrote. Every station but an ingestion reads the topic's table."""
    table, station = tables.table, BY_NAME[name]
    assertions = assertions_of(facts.checks, table.columns)
    seen = tuple(replace(table.at(snapshot), assertions=assertions) for snapshot in facts.read or (None,))
    of_source = tuple(source) if station.reads_source else ()
    read = of_source if name == INGEST else seen + of_source
    outputs = []
    if station.writes is not Writes.NOTHING and facts.commits:
        written = replace(table.at(facts.written), records=facts.records)
        # an ingestion copies the fields of its source, every other station the columns of the table
        origin = (source[0] if source else None) if name == INGEST else table
        outputs.append(written.taking(origin) if origin else written)
    if station.writes_evidence and tables.evidence is not None:
        outputs.append(tables.evidence)
    return StationLineage(read, tuple(outputs))


def assertions_of(checks: Iterable[CheckResult], columns: Collection[str]) -> tuple[Assertion, ...]:
    """Return each check once, with the partitions that failed it. No arguments: they may be record data."""
    assertions: dict[tuple[str, str], Assertion] = {}
    for check in checks:
        column = next((name for name in columns if f"column={name}" in check.rule.split(", ")), None)
        known = assertions.get(key := (check.expectation, check.rule)) or Assertion(
            check.expectation, column, check.severity == "critical"
        )
        failed = known.failed_in if check.passed else tuple(sorted({*known.failed_in, check.partition}))
        assertions[key] = replace(known, failed_in=failed)
    return tuple(assertions.values())


def evidence_dataset(platform: Platform) -> LineageDataset | None:
    """Return the evidence table, None if it does not exist yet."""
    table = load_evidence(kept_catalog(platform), platform)
    return _dataset(table, f"{platform.catalog.namespace}.{EVIDENCE}", platform) if table is not None else None


def topic_datasets(topic: Topic, evidence: LineageDataset | None) -> TopicDatasets | None:
    """Return the topic's table together with the evidence, None if the topic has no table yet."""
    table = load_table(kept_catalog(topic.platform), topic)
    if table is None:
        return None
    branches = {name: ref.snapshot_id for name, ref in table.refs().items()}
    return TopicDatasets(_dataset(table, topic.table, topic.platform), branches, evidence)


def source_dataset(topic: Topic) -> LineageDataset | None:
    """Return the topic's source table at the snapshot up to which it was read, None if the topic reads no table.

    The dataset has only the columns that are copied into the topic's table under the same name.
    """
    source, table = topic.source.table, load_table(kept_catalog(topic.platform), topic)
    if source is None or table is None:
        return None
    reading, position = topic.platform.reading(source.catalog), snapshot_position_of(table.properties, topic.table)
    dataset = _dataset(kept_catalog(reading).load_table(source.name), source.name, reading)
    same = {name for name, path in source.columns.paths.items() if name == path}
    columns = {name: kind for name, kind in dataset.columns.items() if name in same}
    return replace(dataset, columns=columns, snapshot_id=position.snapshot_id if position else None)


def recorded_checks(topic: Topic, round_id: str, kind: str) -> tuple[CheckResult, ...]:
    """Return the last checks of a round from the evidence, passed ones included."""
    rows = evidence_of_round(kept_catalog(topic.platform), topic, round_id, kind)
    return tuple(check for row in last_check(rows) for check in checks_of(row))


def _dataset(table: Table, name: str, platform: Platform) -> LineageDataset:
    snapshot = table.current_snapshot()
    address = platform.catalog.uri or platform.warehouse or platform.catalog_uri
    return LineageDataset(
        place_name(table.location()),
        catalog_name(address, name),
        {field.name: str(field.field_type).partition("<")[0] for field in table.schema().fields},  # struct, list, map
        snapshot.snapshot_id if snapshot else None,
    )

"""Says what lineage tells of a task, whatever tells it: which datasets were read and written, at which snapshot, and
what the checks found. Pure, but for `told_tables`, which reads the catalog."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.evidence_table import load_evidence
from cleantail.lake.recorded_rounds import evidence_of_round
from cleantail.log.source_position import snapshot_position_of
from cleantail.rounds.check_results import CheckResult, checks_of
from cleantail.rounds.recorded_checks import last_check

if TYPE_CHECKING:
    from pyiceberg.table import Table


FILES_NAMED = 20
"""So many files are named one by one; of more of them their folders."""
RECORD = {
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamptz",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "list",
}
"""Fields of a record at its source: the columns of a topic table hold each as it is."""


@dataclass(frozen=True, slots=True)
class DatasetName:
    """Describes the name of a dataset, in a namespace that is the same for everybody."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Assertion:
    """Says what became of one check over all logs of a round. `holds_back`: whether a log that fails it is not
    published; `failed_in`: partitions. It has no argument of the check, and nothing of a record."""

    assertion: str
    column: str | None
    holds_back: bool
    failed_in: tuple[int, ...] = ()

    @property
    def success(self) -> bool:
        """Returns whether no log failed it."""
        return not self.failed_in


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """Describes a dataset as one task has seen it. `known_as`: its name in the catalog; `columns`: name -> type;
    `columns_from`: of which dataset each column is that of the same name, as it is; `records`: how many were written.
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
        """Returns the dataset at a snapshot."""
        return replace(self, snapshot_id=snapshot_id)

    def taking(self, source: LineageDataset) -> LineageDataset:
        """Returns the dataset as what has the columns of `source`, those that both have."""
        same = tuple(name for name in self.columns if name in source.columns)
        return replace(self, columns_from=source.dataset, copied_columns=same)


@dataclass(frozen=True, slots=True)
class StationLineage:
    """Says what one task has read and written."""

    inputs: tuple[LineageDataset, ...] = ()
    outputs: tuple[LineageDataset, ...] = ()

    def __add__(self, other: StationLineage) -> StationLineage:
        """Returns what both have read and written, a dataset that is the same in both once."""
        return StationLineage(_once(self.inputs + other.inputs), _once(self.outputs + other.outputs))


def place_name(location: str) -> DatasetName:
    """Returns the name of a table or a file by its place: `s3a://b/x/y` and `s3://b/x/y` are one, and so are
    `file:///x` and `/x`."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return DatasetName("file", parts.path.rstrip("/") or "/")
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return DatasetName(f"{scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.strip("/") or "/")


def catalog_name(address: str, table: str) -> DatasetName:
    """Returns a table's name in the catalog at an address, of which login and options are left out."""
    parts = urlsplit(address)
    return DatasetName(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/"), table)


def kafka_dataset(brokers: str, topic: str) -> LineageDataset:
    """Returns a topic in Kafka; of several brokers the first one names the cluster."""
    return LineageDataset(DatasetName(f"kafka://{brokers.split(',')[0].strip()}", topic), columns=RECORD)


def file_datasets(files: Sequence[Path]) -> tuple[LineageDataset, ...]:
    """Returns files of a source, or where there are too many their folders."""
    paths = sorted({*files}) if len(files) <= FILES_NAMED else sorted({file.parent for file in files})
    return tuple(LineageDataset(DatasetName("file", str(path)), columns=RECORD) for path in paths)


def _once(datasets: Iterable[LineageDataset]) -> tuple[LineageDataset, ...]:
    unique: dict[tuple[DatasetName, int | None], LineageDataset] = {}
    for dataset in datasets:
        unique.setdefault((dataset.dataset, dataset.snapshot_id), dataset)
    return tuple(unique.values())


INGESTING = frozenset({"ingest", "ingest_kafka", "ingest_table"})
WRITING = INGESTING | {"convert_deletes", "compact", "publish", "expire_tombstones", "reconcile", "reclaim", "rollback"}
"""Stations that commit to the topic's table, or to a branch of it."""
OF_SOURCE = INGESTING | {"reconcile"}
"""Stations that read the topic's source."""
OF_EVIDENCE = frozenset({"check_quality", "publish", "expire_tombstones", "reconcile", "reclaim", "rollback"})
"""Stations that write down what they found or did."""


@dataclass(frozen=True, slots=True)
class ToldTables:
    """Describes the topic's table as the catalog has it at the end of the task, with its branches by name, and the
    evidence, None where it has none yet."""

    table: LineageDataset
    branches: Mapping[str, int] = field(default_factory=dict)
    evidence: LineageDataset | None = None


@dataclass(frozen=True, slots=True)
class StationFacts:
    """Holds what the result of a station tells. `read`: the snapshots that it went by, none: not known; `written`: the
    one that it made, None: not known; `commits`: whether it has written into the table at all."""

    read: tuple[int, ...] = ()
    written: int | None = None
    commits: bool = False
    records: int | None = None
    checks: tuple[CheckResult, ...] = ()


def lineage_of(
    station: str, tables: ToldTables, facts: StationFacts, source: Sequence[LineageDataset] = ()
) -> StationLineage:
    """Returns what a station has read and written."""
    table = tables.table
    assertions = assertions_of(facts.checks, table.columns)
    seen = tuple(replace(table.at(snapshot), assertions=assertions) for snapshot in facts.read or (None,))
    if station in INGESTING:
        read: tuple[LineageDataset, ...] = tuple(source)
    else:
        read = seen + (tuple(source) if station in OF_SOURCE else ())
    outputs = []
    if station in WRITING and facts.commits:
        written = replace(table.at(facts.written), records=facts.records)
        # an ingestion takes the fields of a record over, every other station the columns of the table itself
        origin = (source[0] if source else None) if station in INGESTING else table
        outputs.append(written.taking(origin) if origin else written)
    if station in OF_EVIDENCE and tables.evidence is not None:
        outputs.append(tables.evidence)
    return StationLineage(read, tuple(outputs))


def assertions_of(checks: Iterable[CheckResult], columns: Collection[str]) -> tuple[Assertion, ...]:
    """Returns each check once, with the partitions that failed it. What it asks for in words stays here: the arguments
    of a topic's own check may be what a person's record holds."""
    assertions: dict[tuple[str, str], Assertion] = {}
    for check in checks:
        column = next((name for name in columns if f"column={name}" in check.rule.split(", ")), None)
        known = assertions.get(key := (check.expectation, check.rule)) or Assertion(
            check.expectation, column, check.severity == "critical"
        )
        failed = known.failed_in if check.passed else tuple(sorted({*known.failed_in, check.partition}))
        assertions[key] = replace(known, failed_in=failed)
    return tuple(assertions.values())


def told_evidence(platform: Platform) -> LineageDataset | None:
    """Returns the evidence table; None where there is none yet."""
    table = load_evidence(kept_catalog(platform, os.environ), platform)
    return _dataset(table, f"{platform.catalog.namespace}.{EVIDENCE}", platform) if table is not None else None


def told_tables(topic: Topic, platform: Platform, evidence: LineageDataset | None) -> ToldTables | None:
    """Returns the topic's table, with the evidence beside it; None where the topic has no table yet."""
    table = load_table(kept_catalog(platform, os.environ), topic, platform)
    if table is None:
        return None
    branches = {name: ref.snapshot_id for name, ref in table.refs().items()}
    return ToldTables(_dataset(table, topic.table, platform), branches, evidence)


def told_source(topic: Topic, platform: Platform) -> LineageDataset | None:
    """Returns the topic's source table at the snapshot up to which it was read; None where there is none. Of its
    columns those alone that a topic's table has by the same name: of these it is true that they are taken over."""
    source, table = topic.source.table, load_table(kept_catalog(platform, os.environ), topic, platform)
    if source is None or table is None:
        return None
    reading, position = platform.reading(source.catalog), snapshot_position_of(table.properties, topic.table)
    dataset = _dataset(kept_catalog(reading, os.environ).load_table(source.name), source.name, reading)
    same = {name for name, path in source.columns.paths.items() if name == path}
    columns = {name: kind for name, kind in dataset.columns.items() if name in same}
    return replace(dataset, columns=columns, snapshot_id=position.snapshot_id if position else None)


def recorded_checks(platform: Platform, topic: str, round_id: str, kind: str) -> tuple[CheckResult, ...]:
    """Returns the last checks of a round, as the evidence has them, those that were met too."""
    rows = evidence_of_round(kept_catalog(platform, os.environ), platform, topic, round_id, kind)
    return tuple(check for row in last_check(rows) for check in checks_of(row))


def _dataset(table: Table, name: str, platform: Platform) -> LineageDataset:
    snapshot = table.current_snapshot()
    address = platform.catalog.uri or platform.warehouse or platform.catalog_uri
    return LineageDataset(
        place_name(table.location()),
        catalog_name(address, name),
        {field.name: _type(str(field.field_type)) for field in table.schema().fields},
        snapshot.snapshot_id if snapshot else None,
    )


NESTED: Collection[str] = ("struct", "list", "map")


def _type(text: str) -> str:
    """Returns the name of a type, of a nested one without what is in it."""
    return next((kind for kind in NESTED if text.startswith(f"{kind}<")), text)

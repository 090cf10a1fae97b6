"""Datasets by OpenLineage's names for them, so that what other tools tell of the same table or topic meets ours.

A table is called by where it lies (`s3://bucket`, `warehouse/ns/table`), as OpenLineage's own agent for Spark calls it,
with its name in the catalog beside that; a topic in Kafka by its first broker (`kafka://host:9092`, `orders`); a file
by its path (`file`, `/landing/a.jsonl`). None of it holds a login.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

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

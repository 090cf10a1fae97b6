"""The facts of a data or delete file in Iceberg's metadata. The JSON is parsed once, and then read by field names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PartitionValue = str | int | float | bool | None
Partition = Mapping[str, PartitionValue] | Sequence[PartitionValue]
"""A partition as Iceberg writes it in JSON: its values by field id, or in the order of the spec's fields."""


@dataclass(frozen=True, slots=True)
class DeletedPositions:
    """Where the deleted positions of a data file are stored.

    The place is a deletion vector inside a Puffin file (format version 3), or a Parquet file of position deletes, whose
    `start` is None. `count`: number of positions in the metadata.
    """

    path: str
    start: int | None
    length: int
    count: int


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Describes a data or delete file: the values used from Iceberg's JSON, and all that a new delete file needs.

    Metrics of columns are by field id. Bounds stay in hexadecimal, as in Iceberg's JSON, because few of them are
    used. `equality_ids`: the columns that an equality delete compares. `referenced_data_file`: the data file of a
    deletion vector. `content_offset` and `content_bytes`: the vector's place in its Puffin file.
    """

    content: str
    path: str
    file_format: str
    spec_id: int
    partition: Partition
    size_bytes: int
    records: int
    column_sizes: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    lower_hex: Mapping[int, str]
    upper_hex: Mapping[int, str]
    key_metadata: str | None = None
    row_groups: int = 1
    equality_ids: tuple[int, ...] = ()
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_bytes: int | None = None

    @property
    def is_parquet(self) -> bool:
        return self.file_format.upper() == "PARQUET"

    @property
    def deleted_positions(self) -> DeletedPositions:
        """Return where a delete file of one data file stores its positions."""
        return _positions(self.path, self.records, self.size_bytes, self.content_offset, self.content_bytes)

    @property
    def partition_key(self) -> tuple[int, str]:
        """Return the file's partition spec, and its partition as a text that is equal for equal partitions."""
        return self.spec_id, json.dumps(self.partition, sort_keys=True)

    @property
    def partition_values(self) -> Sequence[PartitionValue]:
        """Return the values of its partition, in the order of the spec's fields."""
        return list(self.partition.values()) if isinstance(self.partition, Mapping) else self.partition

    def bounds_of(self, field_id: int) -> tuple[bytes | None, bytes | None]:
        """Return the lower and the upper bound of a column; None if the metadata lack them."""
        return _bytes(self.lower_hex.get(field_id)), _bytes(self.upper_hex.get(field_id))

    def bounds(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        lower, upper = self.lower_hex.items(), self.upper_hex.items()
        return {n: bytes.fromhex(b) for n, b in lower}, {n: bytes.fromhex(b) for n, b in upper}

    def as_delete_json(self) -> dict[str, Any]:
        """Return a delete file of one data file as Iceberg writes it in JSON."""
        described: dict[str, Any] = {
            "spec-id": self.spec_id,
            "content": self.content,
            "file-path": self.path,
            "file-format": self.file_format,
            "partition": self.partition,
            "file-size-in-bytes": self.size_bytes,
            "record-count": self.records,
            "referenced-data-file": self.referenced_data_file,
        }
        if self.content_offset is not None:
            described |= {"content-offset": self.content_offset, "content-size-in-bytes": self.content_bytes}
        for name, bounds in (("lower-bounds", self.lower_hex), ("upper-bounds", self.upper_hex)):
            if bounds:
                described[name] = {"keys": list(bounds), "values": list(bounds.values())}
        return described


def facts_of_file(text: str) -> FileFacts:
    return _facts(json.loads(text))


def facts_of_task(text: str) -> tuple[FileFacts, tuple[DeletedPositions, ...]]:
    """Return a scan task's data file, and only the places of its deleted positions: a task may have many."""
    described = json.loads(text)
    return _facts(described["data-file"]), tuple(map(_deleted, described.get("delete-files", ())))


def _facts(described: Mapping[str, Any]) -> FileFacts:
    get = described.get
    return FileFacts(
        content=described["content"],
        path=described["file-path"],
        file_format=described["file-format"],
        spec_id=described["spec-id"],
        partition=described["partition"],
        size_bytes=described["file-size-in-bytes"],
        records=described["record-count"],
        column_sizes=_by_id(get("column-sizes")),
        null_value_counts=_by_id(get("null-value-counts")),
        lower_hex=_by_id(get("lower-bounds")),
        upper_hex=_by_id(get("upper-bounds")),
        key_metadata=get("key-metadata"),
        row_groups=len(get("split-offsets") or (0,)),
        equality_ids=tuple(get("equality-ids") or ()),
        first_row_id=get("first-row-id"),
        referenced_data_file=get("referenced-data-file"),
        content_offset=get("content-offset"),
        content_bytes=get("content-size-in-bytes"),
    )


def _deleted(delete_file: Mapping[str, Any]) -> DeletedPositions:
    get = delete_file.get
    size, start, length = delete_file["file-size-in-bytes"], get("content-offset"), get("content-size-in-bytes")
    return _positions(delete_file["file-path"], delete_file["record-count"], size, start, length)


def _positions(path: str, records: int, size_bytes: int, start: int | None, length: int | None) -> DeletedPositions:
    """Return the place of the positions: a whole Parquet file, or the given part of a Puffin file."""
    if start is None or length is None:
        return DeletedPositions(path, None, size_bytes, records)
    return DeletedPositions(path, start, length, records)


def _by_id(pairs: Mapping[str, Any] | None) -> dict[int, Any]:
    return dict(zip(pairs["keys"], pairs["values"], strict=True)) if pairs else {}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)

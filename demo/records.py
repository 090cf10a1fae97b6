"""Turn changes into records of a log, and records into files of kcat -J lines, for all three inputs."""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cleantail.sources.kcat import Header, Record, format_record

FIRST_BATCH_PERCENT = 60


@dataclass(frozen=True, slots=True)
class Change:
    """A record before it has an offset in a log. `value` None deletes the key."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInput:
    """The records of one topic, in two batches, and a text about their origin."""

    topic: str
    origin: str
    batches: tuple[list[Record], list[Record]]

    @property
    def records(self) -> list[Record]:
        return [*self.batches[0], *self.batches[1]]


def topic_input(topic: str, origin: str, changes: Sequence[Change], partitions: int) -> TopicInput:
    """Return the changes as records, split by time into two batches. For a single change the second is
    empty."""
    records = in_logs(changes, partitions)
    cut = -(-len(records) * FIRST_BATCH_PERCENT // 100)
    return TopicInput(topic, origin, (records[:cut], records[cut:]))


def in_logs(changes: Iterable[Change], partitions: int) -> list[Record]:
    """Return the records. A key's hash chooses its partition. Each partition counts its offsets from 0."""
    ends = [0] * partitions
    records = []
    for change in changes:
        partition = zlib.crc32(change.key) % partitions
        position = (partition, ends[partition], change.timestamp_ms, 0)
        records.append(Record(*position, change.key, change.value, change.headers))
        ends[partition] += 1
    return records


def kcat_line(topic: str, record: Record) -> str:
    """Return a record in kcat's -J format. Header values that are not printable (versions) are base64."""
    if all(value is not None and value.isascii() and value.decode().isprintable() for _, value in record.headers):
        return format_record(topic, record)
    fields: dict[str, Any] = json.loads(format_record(topic, replace(record, headers=())))
    flat = [part for name, value in record.headers for part in (name, _base64(value))]
    return json.dumps(fields | {"headers_encoding": "base64", "headers": flat}, ensure_ascii=False)


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def land(topic: str, records: Sequence[Record], file: Path) -> None:
    """Write the records to the file, under a temporary name first, so that readers never find a part of a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{kcat_line(topic, record)}\n" for record in records)
    unfinished = file.with_name(f".{file.name}.part")
    unfinished.write_bytes(gzip.compress(text.encode(), mtime=0))
    os.replace(unfinished, file)

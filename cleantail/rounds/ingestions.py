"""Says what an ingestion notes of itself in its snapshot's summary, and what a history tells of ingestions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.codec import Codec
from cleantail.human import whole_number
from cleantail.log.source_position import PROPERTY_POSITION, PROPERTY_SNAPSHOT_POSITION
from cleantail.rounds.commit_summaries import Commit

INGEST = "ingest"
"""Our operation (cleantail.rounds.commit_summaries.OPERATION) of an ingestion's commit."""
SOURCES = "cleantail.sources"
"""Summary entry of an ingestion, and of what took it back: its source files or its offsets at the source, and the log
ends before it."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """Describes a file that was ingested: SHA-256 of its content, and the name it had, without its folder."""

    sha256: str
    name: str


@dataclass(frozen=True, slots=True)
class KafkaRead:
    """Says what was read of a topic in Kafka: [from, to) of offsets by partition, and the text of the table's position
    before it (cleantail.log.source_position), None where there was none."""

    offsets: Mapping[int, tuple[int, int]]
    position_before: str | None

    @property
    def position_property(self) -> str:
        """Returns the table property that has the position."""
        return PROPERTY_POSITION

    @property
    def origin(self) -> str:
        """Returns where it came from, for a sentence."""
        return "Kafka"


@dataclass(frozen=True, slots=True)
class TableRead:
    """Says what was read of a source table, of this name and up to this snapshot: the same as of Kafka. Between the
    offsets of a partition there may be some that came before."""

    offsets: Mapping[int, tuple[int, int]]
    position_before: str | None
    table: str
    snapshot_id: int

    @property
    def position_property(self) -> str:
        """Returns the table property that has the position."""
        return PROPERTY_SNAPSHOT_POSITION

    @property
    def origin(self) -> str:
        """Returns where it came from, for a sentence."""
        return f"table {self.table} up to snapshot {self.snapshot_id}"


@dataclass(frozen=True, slots=True)
class Sources:
    """Says what an ingestion notes of itself. `log_ends`: the log end that the state of each of its logs knew before
    it, None where it knew none. An ingestion from Kafka or from a table has `read` in the place of files."""

    files: tuple[SourceFile, ...]
    log_ends: Mapping[int, int | None]
    read: KafkaRead | TableRead | None = None

    def packed(self) -> str:
        """Returns it as one short text: a summary stays in the table's metadata for as long as its snapshot."""
        files = tuple((f.sha256, f.name) for f in self.files)
        if self.read is None:
            return _SOURCES_JSON.packed((files, self.log_ends))
        of_read = (files, self.log_ends, self.read.offsets, self.read.position_before)
        if isinstance(self.read, KafkaRead):
            return _SOURCES_JSON.packed(of_read)
        return _SOURCES_JSON.packed((*of_read, self.read.table, self.read.snapshot_id))


_PackedFiles = tuple[tuple[tuple[str, str], ...], Mapping[int, int | None]]
"""Files by content and name, and the log ends: the names of the fields would be most of the text."""
_PackedRead = tuple[tuple[tuple[str, str], ...], Mapping[int, int | None], Mapping[int, tuple[int, int]], str | None]
"""The same, and what was read of Kafka."""
_PackedTable = tuple[
    tuple[tuple[str, str], ...], Mapping[int, int | None], Mapping[int, tuple[int, int]], str | None, str, int
]
"""The same of a source table, with its name and the snapshot."""
_SOURCES_JSON: Codec[_PackedFiles | _PackedRead | _PackedTable] = Codec(_PackedFiles | _PackedRead | _PackedTable)


def unpacked_sources(text: str, where: str) -> Sources:
    """Returns what Sources.packed wrote. Raises TableError, naming `where`, when the text is none of it."""
    packed = _SOURCES_JSON.unpacked(text, where)
    files = tuple(SourceFile(*file) for file in packed[0])
    if len(packed) == 6:
        return Sources(files, packed[1], TableRead(*packed[2:]))
    return Sources(files, packed[1], KafkaRead(*packed[2:]) if len(packed) == 4 else None)


@dataclass(frozen=True, slots=True)
class Ingestion:
    """Describes a commit of `cleantail ingest` in main's kept history. `sources` is None where an earlier version made
    it; `refusal` says why it cannot be taken back now, and is empty where it can."""

    snapshot_id: int
    at_ms: int
    records: int
    sources: Sources | None
    refusal: str = ""

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """Returns the source files that it notes; none where an earlier version made it."""
        return self.sources.files if self.sources else ()

    @property
    def read(self) -> KafkaRead | TableRead | None:
        """Returns what was read of Kafka or of a table; None where files were ingested."""
        return self.sources.read if self.sources else None

    @property
    def names(self) -> str:
        """Returns the names of its files, or its offsets at the source, for a sentence."""
        if self.read is not None:
            spans = (f"{p}: {low} to {end - 1}" for p, (low, end) in sorted(self.read.offsets.items()))
            return f"offsets from {self.read.origin}, by partition {', '.join(spans) or 'none'}"
        return ", ".join(f.name for f in self.files) or "files that it does not name"

    def as_json(self) -> dict[str, Any]:
        """Returns what the command line prints."""
        return {
            "snapshot_id": self.snapshot_id,
            "at_ms": self.at_ms,
            "records": self.records,
            "files": [asdict(f) for f in self.files],
            "refusal": self.refusal,
        }


def ingestion_of(commit: Commit, topic: str) -> Ingestion:
    """Returns the ingestion that a commit is. Raises TableError where its summary cannot be read."""
    text = commit.summary.get(SOURCES)
    where = f"{topic}: {SOURCES} of snapshot {commit.snapshot_id}"
    records = commit.summary.get("added-records", "0")
    sources = unpacked_sources(text, where) if text else None
    return Ingestion(commit.snapshot_id, commit.at_ms, whole_number(records) or 0, sources)

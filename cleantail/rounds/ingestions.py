"""What an ingestion notes of itself in its snapshot's summary, and what a history tells of ingestions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.codec import Codec
from cleantail.rounds.rollback import Commit

INGEST = "ingest"
"""Our operation (cleantail.rounds.size_history.OPERATION) of an ingestion's commit."""
SOURCES = "cleantail.sources"
"""Summary entry of an ingestion, and of what took it back: its source files or its offsets in Kafka,
and the log ends before it."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was ingested: SHA-256 of its content, and the name it had, without its folder."""

    sha256: str
    name: str


@dataclass(frozen=True, slots=True)
class KafkaRead:
    """What was read of a topic in Kafka: [from, to) of offsets by partition, and the text of the table's position
    before it (cleantail.log.source_position), None where there was none."""

    offsets: Mapping[int, tuple[int, int]]
    position_before: str | None


@dataclass(frozen=True, slots=True)
class Sources:
    """What an ingestion notes of itself. `log_ends`: the log end that the state of each of its logs knew before it,
    None where it knew none. An ingestion from Kafka has `kafka` in the place of files."""

    files: tuple[SourceFile, ...]
    log_ends: Mapping[int, int | None]
    kafka: KafkaRead | None = None

    def packed(self) -> str:
        """Returns it as one short text: a summary stays in the table's metadata for as long as its snapshot."""
        files = tuple((f.sha256, f.name) for f in self.files)
        if self.kafka is None:
            return _SOURCES_JSON.packed((files, self.log_ends))
        return _SOURCES_JSON.packed((files, self.log_ends, self.kafka.offsets, self.kafka.position_before))


_PackedFiles = tuple[tuple[tuple[str, str], ...], Mapping[int, int | None]]
"""Files by content and name, and the log ends: the names of the fields would be most of the text."""
_PackedRead = tuple[tuple[tuple[str, str], ...], Mapping[int, int | None], Mapping[int, tuple[int, int]], str | None]
"""The same, and what was read of Kafka."""
_SOURCES_JSON: Codec[_PackedFiles | _PackedRead] = Codec(_PackedFiles | _PackedRead)


def unpacked_sources(text: str, where: str) -> Sources:
    """Returns what Sources.packed wrote. Raises TableError, naming `where`, when the text is none of it."""
    packed = _SOURCES_JSON.unpacked(text, where)
    files = tuple(SourceFile(*file) for file in packed[0])
    return Sources(files, packed[1], KafkaRead(packed[2], packed[3]) if len(packed) == 4 else None)


@dataclass(frozen=True, slots=True)
class Ingestion:
    """A commit of `cleantail ingest` in main's kept history. `sources` is None where an earlier version made it;
    `refusal` says why it cannot be taken back now, and is empty where it can."""

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
    def kafka(self) -> KafkaRead | None:
        """Returns what was read of Kafka; None where files were ingested."""
        return self.sources.kafka if self.sources else None

    @property
    def names(self) -> str:
        """Returns the names of its files, or its offsets in Kafka, for a sentence."""
        if self.kafka is not None:
            spans = (f"{p}: {low} to {end - 1}" for p, (low, end) in sorted(self.kafka.offsets.items()))
            return f"offsets from Kafka, by partition {', '.join(spans) or 'none'}"
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
    return Ingestion(commit.snapshot_id, commit.at_ms, int(records) if records.isdigit() else 0, sources)

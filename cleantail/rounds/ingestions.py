"""What an ingestion notes of itself in its snapshot's summary, and what a history tells of ingestions. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.errors import TableError
from cleantail.rounds.rollback import Commit

INGEST = "ingest"
"""Our operation (cleantail.rounds.history.OPERATION) of an ingestion's commit."""
SOURCES = "cleantail.sources"
"""Summary entry of an ingestion, and of what took it back: its source files, and the log ends before it."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was ingested: SHA-256 of its content, and the name it had, without its folder."""

    sha256: str
    name: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What an ingestion notes of itself. `log_ends`: the log end that the state of each of its logs knew before it,
    None where it knew none."""

    files: tuple[SourceFile, ...]
    log_ends: Mapping[int, int | None]

    def packed(self) -> str:
        """As one short text: a summary stays in the table's metadata for as long as its snapshot."""
        ends = {str(p): end for p, end in sorted(self.log_ends.items())}
        text = json.dumps([[[f.sha256, f.name] for f in self.files], ends], separators=(",", ":"))
        return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked_sources(text: str, where: str) -> Sources:
    """What Sources.packed wrote. Raises TableError, naming `where`, when the text is none of it."""
    try:
        files, ends = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
        log_ends = {int(p): end if end is None else int(end) for p, end in ends.items()}
        return Sources(tuple(SourceFile(str(sha256), str(name)) for sha256, name in files), log_ends)
    except (binascii.Error, zlib.error, ValueError, TypeError, AttributeError) as e:
        raise TableError(f"{where} cannot be read: {e}") from None


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
        return self.sources.files if self.sources else ()

    @property
    def names(self) -> str:
        return ", ".join(f.name for f in self.files) or "files that it does not name"

    def as_json(self) -> dict[str, Any]:
        return {
            "snapshot_id": self.snapshot_id,
            "at_ms": self.at_ms,
            "records": self.records,
            "files": [asdict(f) for f in self.files],
            "refusal": self.refusal,
        }


def ingestion_of(commit: Commit, topic: str) -> Ingestion:
    text = commit.summary.get(SOURCES)
    where = f"{topic}: {SOURCES} of snapshot {commit.snapshot_id}"
    records = commit.summary.get("added-records", "0")
    sources = unpacked_sources(text, where) if text else None
    return Ingestion(commit.snapshot_id, commit.at_ms, int(records) if records.isdigit() else 0, sources)

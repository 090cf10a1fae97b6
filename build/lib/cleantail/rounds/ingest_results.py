"""What an ingestion has done: what its task hands on, and `cleantail ingest` prints."""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.codec import Codec


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A file that was named, by the SHA-256 of its content. `skipped`: its content was in the table already."""

    file: str
    sha256: str
    skipped: bool


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The files that were named, how many records were appended, and what a person should know of them."""

    files: tuple[IngestedFile, ...]
    records: int
    warnings: tuple[str, ...] = ()
    ok: bool = True


INGEST_RESULT_JSON: Codec[IngestResult] = Codec(IngestResult)

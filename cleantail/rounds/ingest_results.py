"""Says what an ingestion has done: what its task hands on, and `cleantail ingest` prints."""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.codec import Codec


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """Describes a file that was named, by the SHA-256 of its content. `skipped`: its content was in the table
    already."""

    file: str
    sha256: str
    skipped: bool


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Holds the files that were named, how many records were appended, and what a person should know of them."""

    files: tuple[IngestedFile, ...]
    records: int
    warnings: tuple[str, ...] = ()
    ok: bool = True


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [from_offset, to_offset) of a partition."""

    partition: int
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True)
class KafkaIngestResult:
    """Says what was read of a topic in Kafka, and how many records were appended in how many commits.

    `partitions` are the offsets that were passed, one range for each partition that had some; `gaps` those that had
    gone from the brokers before they were read.
    """

    kafka_topic: str
    records: int = 0
    commits: int = 0
    partitions: tuple[OffsetRange, ...] = ()
    gaps: tuple[OffsetRange, ...] = ()
    warnings: tuple[str, ...] = ()
    ok: bool = True


@dataclass(frozen=True, slots=True)
class TableIngestResult:
    """Says what was read of a source table up to a snapshot of it, None where nothing was new, and how many records
    were appended in how many commits.

    `partitions`: between which offsets the records lie that came; `gaps`: what was passed over, in words.
    """

    table: str
    snapshot_id: int | None = None
    records: int = 0
    commits: int = 0
    partitions: tuple[OffsetRange, ...] = ()
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ok: bool = True


INGEST_RESULT_JSON: Codec[IngestResult] = Codec(IngestResult)
KAFKA_INGEST_RESULT_JSON: Codec[KafkaIngestResult] = Codec(KafkaIngestResult)
TABLE_INGEST_RESULT_JSON: Codec[TableIngestResult] = Codec(TableIngestResult)

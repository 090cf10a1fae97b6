"""Says what an ingestion has done: what its task hands on, and `cleantail ingest` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cleantail.codec import Codec

RECLAIMED = (
    "rewritten_files",
    "new_files",
    "expired_snapshots",
    "orphans_removed",
    "failed_branches_dropped",
    "evidence_files_merged",
    "side_snapshots_expired",
    "side_orphans_removed",
)
"""Counts of a reclaim, as its result names them, in the order in which people read them."""


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


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """Holds data files that were rewritten: how many there were, how many took their place, and the bytes that the
    table has fewer for it."""

    files: int
    new_files: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class ReclaimResult:
    """Says why there was something to reclaim, or nothing, and how much of what went. `side_`: of the side tables."""

    reasons: tuple[str, ...] = ()
    reclaimed_bytes: int = 0
    rewritten_files: int = 0
    new_files: int = 0
    expired_snapshots: int = 0
    orphans_removed: int = 0
    failed_branches_dropped: int = 0
    evidence_files_merged: int = 0
    side_snapshots_expired: int = 0
    side_orphans_removed: int = 0
    ok: bool = True

    @property
    def counts(self) -> Mapping[str, int]:
        """Returns the counts by their names in RECLAIMED."""
        return {name: getattr(self, name) for name in RECLAIMED}

    def with_files(self, rewritten: RewrittenFiles) -> ReclaimResult:
        """Returns this result with what rewriting more files has done."""
        return replace(
            self,
            rewritten_files=self.rewritten_files + rewritten.files,
            new_files=self.new_files + rewritten.new_files,
            reclaimed_bytes=self.reclaimed_bytes + rewritten.freed_bytes,
        )


RECLAIM_RESULT_JSON: Codec[ReclaimResult] = Codec(ReclaimResult)


@dataclass(frozen=True, slots=True)
class ComparedLog:
    """Says of one log how many keys are alive in the table and gone at the brokers, and how many records these have.

    `end_offset`: up to where (exclusive) the table was compared. `cut_off_keys`: keys that the brokers do not have
    either, and that stay, since their last record lies below the brokers' log start.
    """

    partition: int
    end_offset: int
    keys: int
    records: int
    cut_off_keys: int = 0


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Holds the logs that were compared, by partition number."""

    kafka_topic: str
    partitions: tuple[ComparedLog, ...]

    @property
    def keys(self) -> int:
        """Returns how many keys a reconciliation would remove."""
        return sum(log.keys for log in self.partitions)


COMPARISON_RESULT_JSON: Codec[ComparisonResult] = Codec(ComparisonResult)

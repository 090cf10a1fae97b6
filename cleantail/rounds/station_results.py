"""Results of an ingestion, a comparison with the source and a reclaim. Tasks return and the command line prints
them."""

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
    "evidence_rows_summarized",
    "results_removed",
    "side_snapshots_expired",
    "side_orphans_removed",
)
"""Counts of a reclaim, by their names in its result, in display order."""
PROPERTY_STORED = "cleantail.stored"
"""Table property: the StoredBytes of the last reclaim that expired snapshots."""


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A file to ingest. `skipped`: the table already has its content."""

    file: str
    sha256: str
    skipped: bool


@dataclass(frozen=True, slots=True)
class FileIngestResult:
    """The files to ingest, the number of appended records, and warnings for the user."""

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
    """Result of a read of a topic in Kafka, with the numbers of appended records and of commits.

    `partitions`: the offsets that the read passed, one range for each partition with new offsets. `gaps`: offsets that
    the brokers no longer had.
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
    """Result of a read of a source table, with the numbers of appended records and of commits.

    `snapshot_id`: the last snapshot that was read, None without new snapshots. `partitions`: the range of offsets of
    the new records. `gaps`: the skipped changes, as text.
    """

    table: str
    snapshot_id: int | None = None
    records: int = 0
    commits: int = 0
    partitions: tuple[OffsetRange, ...] = ()
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ok: bool = True


IngestResult = FileIngestResult | KafkaIngestResult | TableIngestResult
"""Result of an ingestion, by the kind of its source. All kinds have `records`, `warnings` and `ok`."""
INGEST_RESULT_JSON: Codec[IngestResult] = Codec(IngestResult)


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """The numbers of rewritten data files and of the files that replaced them, and the bytes saved."""

    files: int
    new_files: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class ReclaimResult:
    """The reasons for a reclaim, and counts of its work. `side_` counts are of the side tables.

    `results_removed`: files of Great Expectations' results and of Data Docs.
    """

    reasons: tuple[str, ...] = ()
    reclaimed_bytes: int = 0
    rewritten_files: int = 0
    new_files: int = 0
    expired_snapshots: int = 0
    orphans_removed: int = 0
    failed_branches_dropped: int = 0
    evidence_files_merged: int = 0
    evidence_rows_summarized: int = 0
    results_removed: int = 0
    side_snapshots_expired: int = 0
    side_orphans_removed: int = 0
    ok: bool = True

    @property
    def counts(self) -> Mapping[str, int]:
        return {name: getattr(self, name) for name in RECLAIMED}

    def with_files(self, rewritten: RewrittenFiles) -> ReclaimResult:
        return replace(
            self,
            rewritten_files=self.rewritten_files + rewritten.files,
            new_files=self.new_files + rewritten.new_files,
            reclaimed_bytes=self.reclaimed_bytes + rewritten.freed_bytes,
        )


RECLAIM_RESULT_JSON: Codec[ReclaimResult] = Codec(ReclaimResult)


@dataclass(frozen=True, slots=True)
class ComparedLog:
    """The number of a log's keys that are alive in the table and gone at the brokers, and the number of their records.

    The table was compared up to `end_offset` (exclusive). `cut_off_keys` are gone at the brokers too, but stay, because
    their last record is below the brokers' log start.
    """

    partition: int
    end_offset: int
    keys: int
    records: int
    cut_off_keys: int = 0


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Result of `cleantail reconcile --dry-run`: the compared logs, by partition number."""

    kafka_topic: str
    partitions: tuple[ComparedLog, ...]

    @property
    def keys(self) -> int:
        """Return how many keys a reconciliation would remove."""
        return sum(log.keys for log in self.partitions)


COMPARISON_RESULT_JSON: Codec[ComparisonResult] = Codec(ComparisonResult)


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """The bytes of a topic on disks, for the metrics alone.

    A reclaim that expires snapshots measures them before it removes files, because it lists the table's folder anyway.
    Its commit sets PROPERTY_STORED, so that a scrape lists no folder.

    at_ms      time of the measurement (Unix ms)
    data       files below the table's folder, except in its folder `metadata`
    metadata   files of the table's folder `metadata`
    data_docs  results and pages of the topic in CLEANTAIL_HOME
    evidence   data files of the evidence of all topics
    """

    at_ms: int
    data: int
    metadata: int
    data_docs: int
    evidence: int


STORED_JSON: Codec[StoredBytes] = Codec(StoredBytes)

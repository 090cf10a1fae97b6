"""Says what a restore has done, by partition: as `cleantail restore` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.codec import Codec
from cleantail.kafka.restore.restore_pin import Mode


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """Counts of one partition.

    already_written  records that an earlier run of this restore had written, compared one by one
    written          records that this run wrote
    verified         all records of the partition, those of both: each was read back and is the archive's
    first_offset, last_offset  of the archive: record 0 of the partition in Kafka, and its last one; None without any
    """

    partition: int
    already_written: int
    written: int
    verified: int
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Says what a restore did. `resumed`: whether an earlier run had begun. `without_type`: records whose timestamp was
    the broker's own (LogAppendTime), and is kept as CreateTime."""

    target: str
    mode: Mode
    snapshot_id: int
    resumed: bool
    partitions: tuple[RestoredLog, ...]
    without_type: int = 0
    ok: bool = True

    @property
    def verified(self) -> int:
        return sum(log.verified for log in self.partitions)

    @property
    def written(self) -> int:
        return sum(log.written for log in self.partitions)

    @property
    def already_written(self) -> int:
        return sum(log.already_written for log in self.partitions)


RESTORE_RESULT_JSON: Codec[RestoreResult] = Codec(RestoreResult)

"""Says what a comparison of a table with its source has found: what `cleantail reconcile --dry-run` prints."""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.codec import Codec


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

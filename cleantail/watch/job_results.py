"""Results of ended Spark jobs, as far as metrics and lineage need them.

Every job writes one JSON object. A missing field takes its default, and an unknown field is ignored. The object of a
failed job may hold only its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from cleantail.codec import Codec
from cleantail.rounds.checked_round import ROUND_RESULT_JSON, RoundResult, StagedUnit
from cleantail.rounds.station_results import RECLAIM_RESULT_JSON, IngestedFile, ReclaimResult


@dataclass(frozen=True, slots=True)
class CheckedUnits(RoundResult):
    """The result of a check, with the units whose branches it read."""

    units: tuple[StagedUnit, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """What an ingestion appended. `records` is None if the job failed. `files` is empty if the source has no files."""

    records: int | None = None
    files: tuple[IngestedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class UndoneLog:
    """A log whose rounds a rollback has undone."""

    partition: int


@dataclass(frozen=True, slots=True)
class UndoneLogs:
    """The logs that a rollback changed; empty if an earlier try of the same request changed them."""

    partitions: tuple[UndoneLog, ...] | None = ()


JobResult: TypeAlias = RoundResult | ReadRecords | UndoneLogs | ReclaimResult | None
"""None for a job without metrics and lineage."""
_READ_RECORDS_JSON: Codec[ReadRecords] = Codec(ReadRecords)
_RESULTS: Mapping[str, Codec[Any]] = {
    "ingest": _READ_RECORDS_JSON,
    "check_quality": Codec[CheckedUnits](CheckedUnits),
    "publish": ROUND_RESULT_JSON,
    "expire_tombstones": ROUND_RESULT_JSON,
    "reconcile": ROUND_RESULT_JSON,
    "reclaim": RECLAIM_RESULT_JSON,
    "rollback": Codec[UndoneLogs](UndoneLogs),
}


@dataclass(frozen=True)
class EndedJob:
    """A Spark job that has ended.

    `xcom` is the document that it wrote, as plain JSON: {} if it wrote none or only a part. The job's task returns it
    unchanged; other readers use `result`. `exit_code` is None if the job reports none.
    """

    job: str
    xcom: dict[str, Any]
    exit_code: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the job left no document: it was killed, or has a defect."""
        return not self.xcom

    @cached_property
    def result(self) -> JobResult:
        """The parsed document. Raises TableError if it cannot be parsed."""
        codec = _RESULTS.get(self.job)
        result: JobResult = codec.of_plain(self.xcom, f"the result of {self.job}") if codec else None
        return result

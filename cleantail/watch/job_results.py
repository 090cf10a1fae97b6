"""Says what a Spark job has left when it ended, as far as its metrics and its lineage go by it.

Every job writes one JSON object. It may be of another version than the tasks that read it, so a name that it does not
have takes its default, and one that nobody here knows is left out. A job that failed has no more in it than its error.
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
    """Describes the result of a check, which also has the units whose branches it has read."""

    units: tuple[StagedUnit, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Says what an ingestion has appended, whatever its source. `records`: how many, None where the job failed;
    `files`: those that were named, none where the source has no files."""

    records: int | None = None
    files: tuple[IngestedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class UndoneLog:
    """Names a log of which a rollback has undone rounds."""

    partition: int


@dataclass(frozen=True, slots=True)
class UndoneLogs:
    """Says which logs a rollback has changed; none where the same request had brought it about before."""

    partitions: tuple[UndoneLog, ...] | None = ()


JobResult: TypeAlias = RoundResult | ReadRecords | UndoneLogs | ReclaimResult | None
"""None for a job that nothing is told of but what its task goes by."""
_READ_RECORDS_JSON: Codec[ReadRecords] = Codec(ReadRecords)
_RESULTS: Mapping[str, Codec[Any]] = {
    "ingest": _READ_RECORDS_JSON,
    "ingest_kafka": _READ_RECORDS_JSON,
    "ingest_table": _READ_RECORDS_JSON,
    "check_quality": Codec[CheckedUnits](CheckedUnits),
    "publish": ROUND_RESULT_JSON,
    "expire_tombstones": ROUND_RESULT_JSON,
    "reconcile": ROUND_RESULT_JSON,
    "reclaim": RECLAIM_RESULT_JSON,
    "rollback": Codec[UndoneLogs](UndoneLogs),
}


@dataclass(frozen=True)
class EndedJob:
    """Describes a Spark job that has ended, by what it left.

    `xcom`: the document that it wrote, in JSON's own types, {} where it wrote nothing or half of it. Its task hands
    that on as it is; whoever goes by it reads `result`, or another type that is parsed from it. `exit_code`: as the job
    reports it, None where it reports none.
    """

    job: str
    xcom: dict[str, Any]
    exit_code: int | None = None

    @property
    def is_empty(self) -> bool:
        """Returns whether the job left no document: it was killed, or has a defect."""
        return not self.xcom

    @cached_property
    def result(self) -> JobResult:
        """Parses the document, the first time that somebody asks. Raises TableError for one that this version cannot
        read."""
        codec = _RESULTS.get(self.job)
        result: JobResult = codec.of_plain(self.xcom, f"the result of {self.job}") if codec else None
        return result

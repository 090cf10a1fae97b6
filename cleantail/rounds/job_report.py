"""The report of a Spark job. Tasks of a topic's DAG, metrics and lineage read the result of any job in this one type.

The tasks of a group's DAG read the TopicOutcome of a pack instead, which has all stations of a topic. A job of a topic
writes the result of its station as one JSON object, and a task returns that object unchanged as its XCom. The object
may have more keys, for users. A field of JobReport has the same name and meaning for all jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cleantail.codec import Codec
from cleantail.rounds.checked_round import RoundResult, StagedUnit
from cleantail.rounds.recorded_checks import RoundReference
from cleantail.rounds.station_results import IngestedFile


@dataclass(frozen=True, slots=True)
class JobReport(RoundResult):
    """The result of any job. A missing field takes its default: the object of a failed job may have only its error.

    `error`: why the job failed, empty if it succeeded or was killed. `branch`: where compact has staged its unit.
    `units`: the units that check_quality has checked. `records`, `files` and `warnings`: number of appended records,
    files, and texts for the user of an ingestion, None and () for other jobs. `done_before`: an earlier try of the same
    request has undone the rounds.
    """

    error: str = ""
    branch: str = ""
    units: tuple[StagedUnit, ...] = ()
    records: int | None = None
    files: tuple[IngestedFile, ...] = ()
    warnings: tuple[str, ...] = ()
    reclaimed_bytes: int = 0
    done_before: bool = False

    @property
    def heads_by_log(self) -> dict[int, int]:
        return {work.partition: unit.head_snapshot_id for unit in self.units for work in unit.partitions}

    def reference(self, round_id: str) -> RoundReference:
        """Return the reference to the checked round. `round_id`, from the run's plan, is used if the report names no
        round."""
        heads = tuple(unit.head_snapshot_id for unit in self.units)
        return RoundReference(
            self.round or round_id, heads, tuple(sorted(v.partition for v in self.verdicts if v.passed))
        )


JOB_REPORT_JSON: Codec[JobReport] = Codec(JobReport)


@dataclass(frozen=True)
class EndedJob:
    """A Spark job that has ended.

    `xcom`: the object that the job wrote, as plain JSON, or {} if it wrote none or only a part. The job's task returns
    this object unchanged. `exit_code`: None if the job reports no code.
    """

    job: str
    xcom: dict[str, Any]
    exit_code: int | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether the job left no report: it was killed, or has a defect."""
        return not self.xcom

    @cached_property
    def report(self) -> JobReport:
        """Parse the report. Raises TableError if it cannot be parsed."""
        return JOB_REPORT_JSON.of_plain(self.xcom, f"the result of {self.job}")

"""Says what the jobs of a round report, as far as a DAG's tasks go by it: results and XComs, parsed in this one place.

An XCom can be written by everybody who may edit the DAG. It says which round is meant; nothing is published by it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.checked_round import Hold, LeftBehind, StagedUnit, Verdict
from cleantail.rounds.recorded_checks import RoundReference
from cleantail_airflow.airflow_exceptions import AirflowFailException


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Holds a checked round as a task hands it on, without its measures.

    The tasks that do are check_quality, and an expiry whose round waits.
    """

    round: str | None = None
    units: tuple[StagedUnit, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    holds: tuple[Hold, ...] = ()

    @property
    def heads_by_log(self) -> dict[int, int]:
        """Returns partition -> the snapshot that was checked."""
        return {work.partition: unit.head_snapshot_id for unit in self.units for work in unit.partitions}

    def reference(self, round_id: str) -> RoundReference:
        """Returns which round is meant. `round_id` is the name in the run's plan, for a report that names none."""
        heads = tuple(unit.head_snapshot_id for unit in self.units)
        return RoundReference(
            self.round or round_id, heads, tuple(sorted(v.partition for v in self.verdicts if v.passed))
        )


@dataclass(frozen=True, slots=True)
class JobReport(CheckReport):
    """Holds the result of any job.

    `error` says why it failed; empty where it did not, or was killed. `branch` is the one on which compact has staged
    its unit. `published` is None for a job that publishes nothing. `checked` is the round of an expiry that waits. The
    other fields are those of RoundResult, `snapshot_id` and `checkpoints` also those of RollbackResult.
    """

    ok: bool = True
    error: str = ""
    branch: str = ""
    published: tuple[int, ...] | None = None
    snapshot_id: int | None = None
    checkpoints: Mapping[int, int] = field(default_factory=dict)
    held_back: tuple[int, ...] = ()
    red_before: tuple[int, ...] = ()
    left_behind: tuple[LeftBehind, ...] = ()
    checked: CheckReport | None = None

    @property
    def waiting(self) -> CheckReport | None:
        """Returns the checked round that is left to another task: an expiry publishes by itself what need not wait."""
        return self if self.published is None else self.checked


logger = logging.getLogger(__name__)
_JOB_REPORT_JSON: Codec[JobReport] = Codec(JobReport)


def report_of(result: Mapping[str, Any], source: str) -> JobReport:
    """Parses the result of the task `source`. Raises AirflowFailException for one that its job cannot have written."""
    try:
        return _JOB_REPORT_JSON.of_plain(result, f"the XCom of {source}")
    except TableError as error:
        raise AirflowFailException(
            f"the XCom of {source} is not what the task returned, so nothing is published: somebody has changed it. "
            f"Clear {source} and what follows it ({error})"
        ) from None


def report_from(context: Context, source: str) -> JobReport | None:
    """Parses the XCom of a task of this run; None where it has none."""
    result: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=source)
    return report_of(result, source) if result else None


def readable_report_from(context: Context, source: str) -> JobReport | None:
    """Parses the XCom of a task as report_from does, for who has to go on whatever it holds: None also where it cannot
    be read."""
    try:
        return report_from(context, source)
    except AirflowFailException as error:
        logger.warning("%s", error)
        return None


def checked_by(context: Context, source: str) -> CheckReport | None:
    """Returns the checked round that a task has handed on; None where it came to no verdict, or nothing waits."""
    report = report_from(context, source)
    return report.waiting if report else None

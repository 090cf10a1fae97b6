"""Says what a pack's application has reported, station by station: whether a station has something to show, and
what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from cleantail.human import counted
from cleantail.rounds import pack_results
from cleantail.rounds.checked_round import RoundResult
from cleantail.rounds.pack_results import PACK_RESULT_JSON, PackResult, TopicOutcome
from cleantail.watch.job_results import EndedJob
from cleantail_airflow.groups.group_plan import parsed
from cleantail_airflow.outcomes.failures import Failure, failures_of
from cleantail_airflow.task_ids import (
    CHECK_QUALITY,
    COMPACT,
    EXPIRE_TOMBSTONES,
    INGEST,
    PUBLISH,
    RECLAIM,
    RECONCILE,
    RUN_PACK,
)

Line = Callable[[TopicOutcome], str]


@dataclass(frozen=True, slots=True)
class Station:
    """Describes a task that shows a part of what became of a pack. `errors_of`: where a topic's work may have ended in
    it; `checks`: whose red logs it shows, by the rounds; `line`: what it says of a topic, empty where that had nothing.
    """

    task_id: str
    line: Line
    errors_of: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    def errors(self, result: PackResult) -> list[TopicOutcome]:
        """Returns the topics whose work ended at this station."""
        return [outcome for outcome in result.topics if outcome.error and outcome.station in self.errors_of]

    def red(self, outcome: TopicOutcome) -> list[Failure]:
        """Returns the expectations that held logs of the topic back, in the rounds of this station."""
        rounds = [result for name, result in outcome.rounds.items() if name in self.checks]
        return [failure for result in rounds for failure in failures_of(outcome.topic, result.verdicts, result.heads)]

    def error_lines(self, result: PackResult) -> list[str]:
        """Returns a line for each topic whose work ended at this station."""
        return [f"{outcome.topic}: {outcome.error}" for outcome in self.errors(result)]

    def failed(self, result: PackResult) -> list[str]:
        """Returns what failed at this station, a line for each topic and each expectation."""
        return [
            *self.error_lines(result),
            *(str(failure) for outcome in result.topics for failure in self.red(outcome)),
        ]


def _ingested(outcome: TopicOutcome) -> str:
    if outcome.ingested is None or not (outcome.ingested.records or outcome.ingested.warnings):
        return ""
    return "; ".join([f"{counted(outcome.ingested.records, 'record')} appended", *outcome.ingested.warnings])


def _compacted(outcome: TopicOutcome) -> str:
    result = outcome.compacted
    return f"round {result.round} of {_logs(result)}" if result else ""


def _checked(outcome: TopicOutcome) -> str:
    result = outcome.compacted
    if not result:
        return ""
    return f"{result.checks_passed} of {counted(result.checks_total, 'check')} passed{_held_back(result)}"


def _published(outcome: TopicOutcome) -> str:
    parts = [f"{name}: {_named(result.published)}" for name, result in outcome.rounds.items() if result.published]
    return "; ".join(parts)


def _expired(outcome: TopicOutcome) -> str:
    result = outcome.expired
    if not result:
        return ""
    return f"{counted(result.expired, 'tombstone')} expired{_held_back(result)}"


def _reconciled(outcome: TopicOutcome) -> str:
    return f"compared with its source: {_logs(outcome.reconciled)}" if outcome.reconciled else ""


def _reclaimed(outcome: TopicOutcome) -> str:
    if outcome.reclaimed is None:
        return ""
    done = [f"{name.replace('_', ' ')} {count}" for name, count in outcome.reclaimed.counts.items() if count]
    return ", ".join(done) or "nothing to reclaim after all"


STATIONS = (
    Station(INGEST, _ingested, (pack_results.INGEST,)),
    Station(COMPACT, _compacted, (pack_results.EVALUATE, pack_results.COMPACT)),
    Station(CHECK_QUALITY, _checked, checks=(pack_results.COMPACT,)),
    Station(PUBLISH, _published),
    Station(RECONCILE, _reconciled, (pack_results.RECONCILE,), (pack_results.RECONCILE,)),
    Station(EXPIRE_TOMBSTONES, _expired, (pack_results.EXPIRE_TOMBSTONES,), (pack_results.EXPIRE_TOMBSTONES,)),
    Station(RECLAIM, _reclaimed, (pack_results.RECLAIM,)),
)
"""In the order in which a topic goes through them."""
BY_TASK: Mapping[str, Station] = {station.task_id: station for station in STATIONS}


def pack_result(result: Mapping[str, Any]) -> PackResult:
    """Parses the XCom of `run_pack`. Raises AirflowFailException for one that it cannot have written."""
    return parsed(PACK_RESULT_JSON, dict(result), f"the XCom of {RUN_PACK}")


def reported_pack(ended: EndedJob) -> PackResult | None:
    """Parses what the application of a pack has left; None where it did not come to a result."""
    return pack_result(ended.xcom) if "topics" in ended.xcom else None


def result_of_pack(context: Context) -> PackResult | None:
    """Returns what became of the pack of this task's own map index, None where its application left nothing."""
    ti = context["ti"]
    result = ti.xcom_pull(task_ids=RUN_PACK, map_indexes=ti.map_index)
    return pack_result(result) if result else None


def results_of_packs(context: Context, packs: int) -> list[PackResult | None]:
    """Returns what became of each pack of the run, by its number."""
    results = context["ti"].xcom_pull(task_ids=RUN_PACK, map_indexes=range(packs))
    return [pack_result(result) if result else None for result in results]


def _held_back(result: RoundResult) -> str:
    return f"; blocked: {_named(result.held_back)}" if result.held_back else ""


def _logs(result: RoundResult | None) -> str:
    if result is None:
        return ""
    return f"partitions {_named({*result.published, *result.held_back, *(v.partition for v in result.verdicts)})}"


def _named(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"

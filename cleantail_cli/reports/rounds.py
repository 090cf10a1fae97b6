"""Says what `cleantail plan` and `cleantail compact` print: the decisions of a run with their reasons, and its results.

A report has a `document` for --json, and `tell` for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.human import counted, until
from cleantail.lake.records.sampled_records import sampled_records
from cleantail.lake.runs.planned_logs import PlannedLog
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.due_work import NO_DELETE, NO_SOURCE
from cleantail.log.rules import LogMeasure
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import EXPIRED, RUN_RESULT_JSON, RoundResult, RunResult
from cleantail.watch.approval_text import sample_lines
from cleantail_cli.console import folding_table
from cleantail_cli.output import Output, Page
from cleantail_cli.reports.status import tell_holds


@dataclass(frozen=True)
class Plan:
    """Shows decision and reason for each log, then the tasks of each work unit, sweep, retention and reclaim.

    `unit_tasks`: how many tasks each unit would be, and why. Their JSON key is from when Spark joined the keys of a
    unit, and stays: scripts read it.
    """

    planned: RunPlan
    unit_tasks: Sequence[str]

    def document(self) -> dict[str, Any]:
        return self.planned.as_json() | {"joins": list(self.unit_tasks)}

    def tell(self, page: Page) -> None:
        planned, by_log = self.planned, self.planned.by_log
        page.line(f"{planned.topic}: {planned.reason}")
        if planned.logs:
            page.table(_decisions(by_log))
        for number, tasks in enumerate(self.unit_tasks):
            page.line(f"unit {number}: {tasks}")
        for of_log in by_log:
            if of_log.keyless and of_log.keyless not in of_log.log.warnings:
                page.line(f"partition {of_log.log.partition}: {of_log.keyless}")
        page.line(f"sweep: {planned.sweep_reason}")
        for of_log in by_log:
            if of_log.retention.reason != NO_DELETE:
                page.line(f"retention: partition {of_log.log.partition}: {of_log.retention.reason}")
        page.line(f"reclaim: {planned.reclaim.reason}")
        if planned.reconcile.reason != NO_SOURCE:
            page.line(f"reconcile: {planned.reconcile.reason}")
        tell_holds(planned.holds, page)
        tell_warnings(planned, page)
        tell_held_back(planned, page)


def _decisions(by_log: Sequence[PlannedLog]) -> Table:
    table = folding_table("partition", "action", "first dirty", "end", "dirty ratio", "reason")
    for of_log in by_log:
        decision = of_log.decision
        cells = (decision.partition, of_log.action, decision.first_dirty_offset, decision.end_offset)
        table.add_row(*(str(c) for c in cells), f"{decision.dirty_ratio:.3f}", escape(decision.reason))
    return table


def tell_warnings(planned: RunPlan, page: Page) -> None:
    """Warns of checkpoints outside of their log, late records and records without a key: one line each, on stderr."""
    for log in planned.logs:
        for text in log.warnings:
            where = f"partition {log.partition}: "  # a text of something that was passed over has it
            page.warning(text if text.startswith(where) else f"{where}{text}")


def tell_held_back(planned: RunPlan, page: Page) -> None:
    """Warns of logs in quarantine, one line each, on stderr.

    A scheduled run leaves them alone until their pause is over. This plan, which is that of a person's `compact`, does
    not.
    """
    for log in planned.logs:
        quarantine = log.state.quarantine
        if quarantine is not None and planned.now_ms < quarantine.retry_at_ms:
            waits = f"a scheduled run leaves it alone {until(quarantine.retry_at_ms)}, `cleantail compact` does not"
            page.warning(f"partition {log.partition}: held back: {quarantine.reason}; {waits}")


@dataclass(frozen=True)
class Compacted:
    """Shows what the run did to each log, and what its checks said."""

    planned: RunPlan
    result: RunResult

    def document(self) -> dict[str, Any]:
        rounds = {name: value for name, value in RUN_RESULT_JSON.plain(self.result).items() if value is not None}
        return {"plan": self.planned.as_json(), **rounds}

    def tell(self, page: Page) -> None:
        planned, result = self.planned, self.result
        tell_warnings(planned, page)
        if not planned.due:
            page.line(f"{planned.topic}: {planned.reason}\nsweep: {planned.sweep_reason}")
            return
        columns = ("partition", "records in", "records out", "superseded", "expired", "other", "tombstones", "checks")
        page.line(f"{planned.topic}: {planned.reason}; {planned.sweep_reason}")
        table = folding_table(*columns)
        for round_ in result.rounds:
            passed = {v.partition: v.passed for v in round_.verdicts}
            for measure in round_.measures:
                table.add_row(*_run_row(measure, passed[measure.partition]))
        page.table(table)
        tell_checks(result.rounds, page)


def _run_row(measure: LogMeasure, passed: bool) -> list[str]:
    """Returns the cells of one log, in the order of the table's columns."""
    superseded, expired = (measure.deleted.get(reason, 0) for reason in ("superseded", EXPIRED))
    other = measure.removed - superseded - expired
    counts = (measure.partition, measure.records_in, measure.records_out, superseded, expired, other)
    return [
        *(str(c) for c in counts),
        str(measure.tombstones_out),
        "[green]passed[/green]" if passed else "[red]failed[/red]",
    ]


def tell_checks(rounds: Sequence[RoundResult], page: Page) -> None:
    """Says how many checks passed, which failed, which readers an expiry left behind, and where the Data Docs are."""
    total = counted(sum(r.checks_total for r in rounds), "check")
    page.line(f"{sum(r.checks_passed for r in rounds)} of {total} passed")
    for verdict in (v for r in rounds for v in r.verdicts):
        for failure in (*verdict.failures, *verdict.warnings):
            what = f"{failure.expectation} ({failure.rule}): {failure.observed}"
            # an expectation that could not be evaluated holds its log back, whatever its severity
            blocks_anyway = failure in verdict.failures and failure.severity != "critical"
            weight = f"{failure.severity}, and yet held back" if blocks_anyway else failure.severity
            page.note(f"{weight}: partition {verdict.partition}: {what}")
    for reader in (reader for r in rounds for reader in r.left_behind):
        where = f"reader {reader.name} is at offset {reader.offset} of partition {reader.partition}"
        overrun = "tombstones that it has not read are gone: cleantail.readers.hold.cap.ms has passed"
        page.warning(f"{where}; {overrun}")
    docs = next((r.data_docs for r in rounds if r.data_docs), None)
    if docs:
        from spark_jobs.quality.project import data_docs_problem

        if problem := data_docs_problem(docs):
            page.warning(f"Data Docs were not written: {problem}; the results are in the evidence")
        else:
            page.line(f"data docs: {docs}")


def tell_held(topic: Topic, platform: Platform, result: RunResult, output: Output) -> bool:
    """Returns whether a round of the run waits for approval; says so on stderr, with a sample and what to do."""
    return tell_waiting(topic, platform, result.rounds, output, "compact")


def tell_waiting(topic: Topic, platform: Platform, rounds: Sequence[RoundResult], output: Output, command: str) -> bool:
    """Returns whether one of the rounds waits for approval; `command` is what makes it anew."""
    waiting = [round_ for round_ in rounds if round_.holds]
    for round_ in waiting:
        output.error(held_message(topic.topic, round_.holds))
        lines = sample_lines(round_.sample, sampled_records(topic, platform, round_.sample))
        output.note("\n".join(lines or ["nothing would go"]))
        output.note(f"cleantail {command} {topic.topic} --approve makes the round anew and publishes it")
    return bool(waiting)

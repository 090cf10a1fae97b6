"""`compact` and `reconcile`: run the rounds of one topic and print their results."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, HeldError
from cleantail.home.home_folder import exclusive
from cleantail.human import counted
from cleantail.kafka.client_settings import settings_of_topic
from cleantail.kafka.source_topic import SourceTopic
from cleantail.kafka.table_position import table_position, unread_offsets
from cleantail.lake.catalogs import require_usable
from cleantail.lake.records.shown_records import sampled_records
from cleantail.log.rules import LogMeasure
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import EXPIRED, ROUND_RESULT_JSON, RoundResult
from cleantail.rounds.pack_results import PackRequest
from cleantail.rounds.run_plan import EvaluatedTopic
from cleantail.rounds.station_results import COMPARISON_RESULT_JSON, ComparisonResult
from cleantail.rounds.stations import COMPACT, EXPIRE_TOMBSTONES, TopicOutcome
from cleantail.watch.approval_text import sample_lines
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import Progress, spark_session, table_in_spark
from cleantail_cli.output import ConsoleOutput, Output, Report
from cleantail_cli.parameters import clock
from cleantail_cli.plan_command import evaluated, print_warnings


@command(
    "compact",
    parameters.topic,
    parameters.now,
    parameters.partition,
    parameters.force,
    click.option("--approve", is_flag=True, help="Publish also rounds that would wait for approval."),
    examples=["cleantail compact customer-cdc", "cleantail compact customer-cdc --partition 3 --force"],
)
def compact(call: Invocation, topic: str, now: int | None, partition: int | None, force: bool, approve: bool) -> int:
    """Run one topic: evaluate, compact, check, publish, expire.

    If a round needs approval, it is dropped and the exit code is 5. Run again with --approve to make and publish it.
    """
    configured = call.topic(topic)
    with exclusive(call.platform.home, f"round-{configured.topic}"), call.output.progress() as progress:
        progress("evaluating")
        require_usable(configured)
        planned = evaluated(configured, now, force, partition)
        approved_by = getpass.getuser() if approve else None
        due = planned.has_rounds or planned.repairs  # only then is Spark started
        result = _run(configured, planned, progress, approved_by) if due else TopicOutcome(configured.topic)
    call.output.show(Compacted(planned, result))
    # a round that needs approval is dropped, because a command cannot wait for an answer
    if approved_by is None and report_waiting(configured, list(result.rounds.values()), call.output, "compact"):
        return HeldError.exit_code
    return 0 if result.ok else 1


def _run(topic: Topic, planned: EvaluatedTopic, progress: Progress, approved_by: str | None) -> TopicOutcome:
    """Run the rounds of the plan in Spark, by the stations that a pack of a group's DAG uses."""
    from spark_jobs.quality.gx_validation import preload
    from spark_jobs.round.evidence import rows_kept
    from spark_jobs.run.topic_run import StationError, TopicRun

    logs = {w.partition for unit in planned.units for w in unit.partitions} | {*planned.swept}
    progress.about(f"{counted(len(logs), 'partition')}, {counted(planned.records or 0, 'record')}")
    preload()
    with spark_session(topic.platform, f"cleantail compact {topic.topic}", progress, planned.records) as spark:
        request = PackRequest((topic.topic,), planned.now_ms)
        run = TopicRun(spark, topic, request, progress=progress, by_person=True, approved_by=approved_by)
        run.take(planned)
        try:
            with rows_kept(topic.platform):
                run.finish(stations=(COMPACT, EXPIRE_TOMBSTONES))
        except StationError as failed:
            raise (failed.__cause__ or failed) from None
        return run.outcome


@command(
    "reconcile",
    parameters.topic,
    parameters.dry_run,
    click.option("--approve", is_flag=True, help="Publish also a round that would wait for approval."),
    examples=["cleantail reconcile orders --dry-run", "cleantail reconcile orders"],
)
def reconcile(call: Invocation, topic: str, dry_run: bool, approve: bool) -> int:
    """Remove keys that were deleted at the source.

    A broker may delete a tombstone before it is read. This command reads the topic to its end, and compares the live
    keys of the table with those in Kafka. It removes the missing ones in a round of its own. The round is checked and
    published like any other. --dry-run only counts. A source topic with `delete` in its cleanup.policy is refused.

    If the round needs approval, it is dropped and the exit code is 5. Run again with --approve to make and publish it.
    """
    configured, approved_by = call.topic(topic), getpass.getuser() if approve else None
    source = _source(configured)
    require_usable(configured)
    with exclusive(call.platform.home, f"round-{configured.topic}"), call.output.progress() as progress:
        progress("reading offsets from the brokers")
        source.require_comparable(table_position(configured).position)  # before Spark is started
        if dry_run:
            call.output.show(_compared(configured, source, progress))
            return 0
        result = _reconciled(configured, source, progress, approved_by)
    call.output.show(ReconciledTopic(configured, result))
    if approved_by is None and report_waiting(configured, [result], call.output, "reconcile"):
        return HeldError.exit_code
    return 0 if result.ok else 1


def _source(topic: Topic) -> SourceTopic:
    if topic.source.kafka is None:
        raise CleantailError(
            f"topic {topic.topic} has no source.kafka in its YAML: reconcile compares with Kafka; add it"
        )
    return SourceTopic.of(topic, settings_of_topic(topic))


def _compared(topic: Topic, source: SourceTopic, progress: Progress) -> Report:
    from spark_jobs.round.make import dry_comparison

    with table_in_spark(topic, "reconcile", progress, "comparing") as table:
        return Compared(topic, dry_comparison(table, source, clock(None)))


def _reconciled(topic: Topic, source: SourceTopic, progress: Progress, approved_by: str | None) -> RoundResult:
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.gx_validation import preload
    from spark_jobs.round.intake.kafka_reading import read_topic
    from spark_jobs.round.run import Run, drop_if_waiting, reconcile_round

    preload()
    with spark_session(topic.platform, f"cleantail reconcile {topic.topic}", progress) as spark:
        now_ms = clock(None)
        if unread_offsets(topic, source.settings, now_ms) is not None:
            read_topic(spark, topic, source.settings, now_ms, progress)
        run = Run(TopicTable.of(spark, topic), progress, approved_by)
        return drop_if_waiting(run, reconcile_round(run, source, clock(None)))


@dataclass(frozen=True)
class Compacted:
    """Answer of `compact`: the result for each log, and the results of the checks."""

    planned: EvaluatedTopic
    result: TopicOutcome

    def document(self) -> dict[str, Any]:
        nothing = RoundResult()
        ran = self.planned.has_rounds or self.planned.repairs
        rounds = {"compacted": self.result.compacted, "expired": self.result.expired} if ran else {}
        results = {name: ROUND_RESULT_JSON.plain(result or nothing) for name, result in rounds.items()}
        return {"plan": self.planned.as_json(), "ok": self.result.ok, **results}

    def print_on(self, page: ConsoleOutput) -> None:
        planned, result = self.planned, self.result
        print_warnings(planned, page)
        if not planned.has_rounds:
            page.paragraph(f"{planned.topic}: {planned.reason}")
            page.paragraph(f"tombstones: {planned.sweep_reason}")
            return
        columns = ("partition", "records in", "records out", "superseded", "expired", "other", "tombstones", "checks")
        page.paragraph(f"{planned.topic}: {planned.reason}; {planned.sweep_reason}")
        rows = []
        rounds = list(result.rounds.values())
        for round_ in rounds:
            passed = {v.partition: v.passed for v in round_.verdicts}
            rows += [_run_row(measure, passed[measure.partition]) for measure in round_.measures]
        page.table(columns, rows)
        print_checks(rounds, page)


def _run_row(measure: LogMeasure, passed: bool) -> tuple[object, ...]:
    superseded, expired = (measure.deleted.get(reason, 0) for reason in ("superseded", EXPIRED))
    removed = (superseded, expired, measure.removed - superseded - expired)
    verdict = "passed" if passed else "failed"
    return (measure.partition, measure.records_in, measure.records_out, *removed, measure.tombstones_out, verdict)


def print_checks(rounds: Sequence[RoundResult], page: ConsoleOutput) -> None:
    """Write the results of checks, the readers that an expiry left behind, and the path of the Data Docs."""
    page.line("; ".join(f"{r.kind}: {r.checks_text}" if len(rounds) > 1 else r.checks_text for r in rounds))
    for verdict in (v for r in rounds for v in r.verdicts):
        for failure in (*verdict.failures, *verdict.warnings):
            what = f"{failure.expectation} ({failure.rule}): {failure.observed}"
            # an expectation that could not be evaluated blocks its log, regardless of its severity
            blocks_anyway = failure in verdict.failures and failure.severity != "critical"
            weight = f"{failure.severity}, but blocked" if blocks_anyway else failure.severity
            page.note(f"{weight}: partition {verdict.partition}: {what}")
    for reader in (reader for r in rounds for reader in r.left_behind):
        page.warning(reader.text)
    docs = next((r.data_docs for r in rounds if r.data_docs), None)
    if docs:
        from spark_jobs.quality.data_docs import data_docs_problem

        if problem := data_docs_problem(docs):
            page.warning(f"Data Docs were not written: {problem}; the results are in the evidence")
        else:
            page.line(f"data docs: {docs}")


def report_waiting(topic: Topic, rounds: Sequence[RoundResult], output: Output, command: str) -> bool:
    """Return whether a round needs approval. If so, print the round on stderr with a sample of removed records.

    `command`: the command that makes the round again.
    """
    waiting = [round_ for round_ in rounds if round_.holds]
    for round_ in waiting:
        output.error(held_message(topic.topic, round_.holds))
        lines = sample_lines(round_.sample, sampled_records(topic, round_.sample))
        output.note("\n".join(lines or ["no record would be removed"]))
        output.note(f"cleantail {command} {topic.topic} --approve makes the round again and publishes it")
    return bool(waiting)


GONE = "gone_at_source"


@dataclass(frozen=True)
class Compared:
    """Answer of `reconcile --dry-run`: the keys that would be removed, by partition."""

    topic: Topic
    result: ComparisonResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, "keys": self.result.keys, **COMPARISON_RESULT_JSON.plain(self.result)}

    def print_on(self, page: ConsoleOutput) -> None:
        columns = ("partition", "compared to offset", "keys gone", "their records", "below log start, kept")
        logs = self.result.partitions
        page.table(columns, [(log.partition, log.end_offset, log.keys, log.records, log.cut_off_keys) for log in logs])
        gone = f"{counted(self.result.keys, 'key')} would be removed: alive here, missing in {self.result.kafka_topic}"
        page.line(f"{self.topic.topic}: {gone}; nothing was changed: --dry-run")


@dataclass(frozen=True)
class ReconciledTopic:
    """Answer of `reconcile`: the removed records of each log, and the results of the checks."""

    topic: Topic
    result: RoundResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **ROUND_RESULT_JSON.plain(self.result)}

    def print_on(self, page: ConsoleOutput) -> None:
        passed = {v.partition: "passed" if v.passed else "failed" for v in self.result.verdicts}
        rows = [
            (m.partition, m.records_in, m.records_out, m.deleted.get(GONE, 0), passed[m.partition])
            for m in self.result.measures
        ]
        page.table(("partition", "records in", "records out", "gone at source", "checks"), rows)
        published = counted(len(self.result.published), "partition")
        page.line(f"{self.topic.topic}: {published} reconciled with {self.topic.kafka_topic} in Kafka")
        print_checks([self.result], page)

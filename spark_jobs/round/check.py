"""Check a round on its branches before any reader sees it: Great Expectations on what was measured and on records.

What compact did is read from the heads of the branches, and not from what its task has handed on.

Results go to the evidence table, to Data Docs and into the result. Exit code 1 when a log's check failed; publish
then leaves that log out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from functools import partial

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import PARTITION
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.log.log_state import KEYLESS_RULE, LogState, held_reason
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE
from cleantail.log.rules import MEASURE, RULES, Contradiction, LogMeasure
from cleantail.log.work_units import PartitionWork
from cleantail.rounds.approval import holds_of
from cleantail.rounds.check_results import CheckResult, Proof, ProvenLog
from cleantail.rounds.checked_round import CheckedRound, KeylessLog, StagedUnit, Verdict, keyless_logs, misread_logs
from spark_jobs.engine.contradictions import of_topic
from spark_jobs.engine.measures import KeyCounts, measure_unit, prove_keys
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.data_docs import DocsStore
from spark_jobs.quality.evaluation import TimeLimit
from spark_jobs.quality.expectations import Auditor
from spark_jobs.round.approvals import judged_records, with_sample
from spark_jobs.round.evidence import append_evidence

COMPACT_RULES = [name for name in RULES if name not in ("overdue_tombstones", "gone_at_source_left")]
EXPIRE_RULES = [name for name in RULES if name not in ("invalid_left", "resurrected", "gone_at_source_left")]
RECONCILE_RULES = ["missing_winners", "foreign_records", "data_files_changed", "head_changed", "early_tombstones"]
RECONCILE_RULES += ["gone_at_source_left", "imbalance"]
SAME_READ = "same_for_two_readers"
SAME_READ_RULE = "Spark's Iceberg reader and Cleantail's see the same records in files of each kind"
NO_KEYS = KeyCounts(0, 0)
Measure = Callable[[StagedUnit], list[LogMeasure]]
STRATEGY_WARNINGS = {"offset": [], "timestamp": ["future_timestamps"], "header": ["malformed_versions"], "order": []}


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """Describes a round whose logs were measured, and are to be judged. `units`: with the heads of their branches;
    `auditor`: who judges them, by `rules`."""

    table: TopicTable
    round: str
    kind: str
    units: tuple[StagedUnit, ...]
    measures: tuple[LogMeasure, ...]
    rules: tuple[str, ...]
    auditor: Auditor

    @property
    def violations(self) -> list[Mapping[str, int]]:
        """Returns what the rules are judged by: of each log its partition, and how often it breaks each of them."""
        return [measure.violations((PARTITION, *self.rules)) for measure in self.measures]


def check_round(
    table: TopicTable, round_id: str, units: Sequence[StagedUnit], kind: str = COMPACT, measure: Measure | None = None
) -> CheckedRound:
    """Returns the round with measures and verdicts, and with the heads of its branches: what was checked, and nothing
    else, is published. `measure` measures a unit of a kind that compares with more than the table itself. Raises
    ConflictError when a branch is gone.

    1. Every log is measured on what the round has read and on its branch.
    2. Great Expectations judges the measures by the rules, and the records of the branch by the topic's own checks.
    3. Where the round then waits for a person, a sample of what it removes is taken.
    4. The evidence gets a row for each log.
    """
    measured = measured_round(table, round_id, units, kind, measure)
    of_rules = measured.auditor.check_round(round_id, measured.violations)
    checked, results = judged_round(measured, table.platform, of_rules)
    append_evidence(table.platform, [(table, checked, results)])
    return checked


def measured_round(
    table: TopicTable, round_id: str, units: Sequence[StagedUnit], kind: str = COMPACT, measure: Measure | None = None
) -> MeasuredRound:
    """Returns the round with its measures, which are yet to be judged: step 1 of a check. Raises ConflictError when a
    branch is gone."""
    iceberg = table.load()
    units = tuple(replace(unit, head_snapshot_id=table.head_of(unit.branch, iceberg)) for unit in units)
    rules = rules_of(table.topic, kind)
    with ThreadPoolExecutor(1) as beside:
        store = DocsStore.of(table.platform, table.topic.topic)
        opening = beside.submit(
            Auditor, table.platform.home, table.topic, rules, kind, store
        )  # imports Great Expectations
        loaded = iceberg if len(units) == 1 else None  # a catalog's secrets for its files may be short-lived
        measure = measure or partial(measure_unit, table, expiring=kind == EXPIRE, iceberg=loaded)
        measures = [m for unit in units for m in measure(unit)]
        auditor = opening.result()
    keyless = keyless_logs(units)
    measures = [_with_keyless(m, keyless.get(m.partition)) for m in measures]
    return MeasuredRound(table, round_id, kind, units, tuple(measures), tuple(rules), auditor)


def judged_round(
    measured: MeasuredRound, platform: Platform, of_rules: Sequence[CheckResult]
) -> tuple[CheckedRound, list[CheckResult]]:
    """Returns the checked round, and all results of its checks: steps 2 and 3, where the rules were judged already."""
    table, auditor, measures = measured.table, measured.auditor, measured.measures
    keyless, misread = keyless_logs(measured.units), misread_logs(measured.units)
    results = [_with_offset(result, measures) for result in for_keyless(of_rules, keyless)]
    results = for_misread(results, misread)
    untouched = keyless.keys() | misread.keys()
    limit = TimeLimit(platform.limits.checks_max_ms)
    for unit in measured.units if table.topic.checks else ():
        if judged := judged_logs(unit, measured.kind, untouched):
            with judged_records(table, unit, judged) as records:
                results += auditor.check_records(measured.round, records, [w.partition for w in judged], limit)
    verdicts = [_verdict(m.partition, results) for m in measures]
    if table.topic.columns is not None:
        verdicts = all_or_none(verdicts, untouched)
    checked = CheckedRound(
        topic=table.topic.topic,
        round=measured.round,
        kind=measured.kind,
        units=measured.units,
        measures=measures,
        verdicts=tuple(verdicts),
        checks_passed=sum(result.passed for result in results),
        checks_total=len(results),
        data_docs=auditor.project.data_docs,
    )
    auditor.project.begin_data_docs()
    return with_sample(table, replace(checked, holds=holds_of(table.topic, measures, checked.green))), results


def rules_of(topic: Topic, kind: str) -> list[str]:
    """Returns the rules of cleantail.log.rules that a round of this kind can break."""
    if kind == EXPIRE:
        return EXPIRE_RULES
    if kind == RECONCILE:
        return RECONCILE_RULES
    return [*COMPACT_RULES, *STRATEGY_WARNINGS[topic.config.compaction_strategy]]


def judged_logs(unit: StagedUnit, kind: str, untouched: Collection[int]) -> list[PartitionWork]:
    """Returns the logs of a unit whose records the topic's own checks look at. Where a compaction only has retention to
    do, and in an `untouched` log, from which the round has removed nothing, no record is newly published."""
    works = [w for w in unit.partitions if w.partition not in untouched]
    return works if kind != COMPACT else [w for w in works if not w.only_retention]


def _with_offset(result: CheckResult, measures: Sequence[LogMeasure]) -> CheckResult:
    """Adds to a failed result the offset of the contradiction: it takes a person to decide which record is right."""
    if result.expectation != MEASURE or result.passed:
        return result
    where = [m.first_contradiction for m in measures if m.partition == result.partition and m.first_contradiction]
    return replace(result, observed="; ".join([result.observed, *where]))


def prove_topic(table: TopicTable) -> Proof:
    """Count every key below the clean point of every log on `main`, and compare every offset that readers see, by
    Spark's Iceberg reader and Spark's plans.

    The clean point is the one that evaluate derives: below the checkpoint where a late record waits (3.5).
    """
    facts = read_facts(table.topic)
    states = log_states(table.topic, facts, now_ms=0)
    logs = [log for log in states if log.checkpoint is not None]
    works = tuple(_whole_tail(log) for log in logs)
    keys: dict[int, KeyCounts] = {}
    contradictions: list[Contradiction] = []
    if facts is not None and facts.snapshot_id is not None:
        keys = prove_keys(table.at_snapshot(facts.snapshot_id), works) if works else {}
        starts = {log.partition: log.log_start_offset for log in states}
        contradictions = of_topic(table, facts.snapshot_id, starts)
    proven = (ProvenLog(w.partition, w.end_offset, *astuple(keys.get(w.partition, NO_KEYS))) for w in works)
    return Proof(tuple(proven), tuple(contradictions))


def _whole_tail(log: LogState) -> PartitionWork:
    """Returns the work of a proof: all of a log below its clean point."""
    end = log.first_dirty_offset
    return PartitionWork(log.partition, end, end, log.log_start_offset, 0, records=log.records)


def _verdict(partition: int, results: Sequence[CheckResult]) -> Verdict:
    """Returns the verdict on a log: it passes where no critical expectation failed. One that could not be evaluated
    fails whatever its severity."""
    failed = [r for r in results if r.partition == partition and not r.passed]
    red = [r for r in failed if r.severity == "critical" or r.error]
    return Verdict(partition, not red, tuple(red), tuple(r for r in failed if r not in red))


def all_or_none(verdicts: Sequence[Verdict], untouched: Collection[int]) -> list[Verdict]:
    """Fails all logs where one fails: a file of an adopted table may hold several, and has one delete file.

    The failed one is quarantined, so that the next round is without it. No log waits for an `untouched` one, from which
    the round has removed nothing.
    """
    red = tuple(v.partition for v in verdicts if not v.passed and v.partition not in untouched)
    return [replace(v, passed=False, waits_for=red) if red and v.passed else v for v in verdicts]


def _with_keyless(measure: LogMeasure, keyless: KeylessLog | None) -> LogMeasure:
    """Returns the measures of a log that is held back for its records without a key: those below the end that was
    planned."""
    return measure if keyless is None else replace(measure, invalid_left=keyless.records)


def for_keyless(results: Sequence[CheckResult], keyless: Mapping[int, KeylessLog]) -> list[CheckResult]:
    """Returns the results that count. Of a log that is held back for records without a key that is only the result of
    the rule which says so: nothing was removed from it, so the other rules have nothing to judge."""
    return [
        replace(r, observed=held_reason(keyless[r.partition].records, keyless[r.partition].first_offset))
        if r.partition in keyless
        else r
        for r in results
        if r.partition not in keyless or r.expectation == KEYLESS_RULE
    ]


def for_misread(results: Sequence[CheckResult], misread: Mapping[int, str]) -> list[CheckResult]:
    """Return the results that count. Of a log that two readers see differently that is one red result with the reason:
    the rules are measured by the reader that is in doubt."""
    kept = [result for result in results if result.partition not in misread]
    return kept + [
        CheckResult(log, SAME_READ, SAME_READ_RULE, "critical", False, reason, error=True)
        for log, reason in sorted(misread.items())
    ]

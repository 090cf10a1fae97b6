"""Check a round on its branches before any reader sees it: Great Expectations judges the measures and the records.

The work of a round is read from the heads of its branches, not from the result of the task that made it.

Results go to the evidence table, to Data Docs and into the result. If a log's check fails, the exit code is 1 and
publish leaves that log out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from functools import partial

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import PARTITION
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.log.log_state import KEYLESS_RULE, held_reason
from cleantail.log.round_state import COMPACT, ERASE, EXPIRE, RECONCILE
from cleantail.log.rules import MEASURE, RULES, Contradiction, LogMeasure
from cleantail.log.work_units import PartitionWork
from cleantail.rounds.approval import holds_of
from cleantail.rounds.check_results import CheckResult, Proof, ProvenLog
from cleantail.rounds.checked_round import (
    CheckedRound,
    KeylessLog,
    StagedUnit,
    Verdict,
    judged_at_ms,
    keyless_logs,
    misread_logs,
)
from spark_jobs.engine.contradictions import of_topic
from spark_jobs.engine.measures import KeyCounts, measure_unit, prove_keys
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.data_docs import DocsStore
from spark_jobs.quality.expectations import RECORDS_IN, Auditor
from spark_jobs.quality.time_limit import TimeLimit
from spark_jobs.round.approvals import judged_records, with_sample
from spark_jobs.round.evidence import append_evidence

OF_ONE_KIND = ("gone_at_source_left", "erased_left")
COMPACT_RULES = [name for name in RULES if name not in ("overdue_tombstones", *OF_ONE_KIND)]
EXPIRE_RULES = [name for name in RULES if name not in ("invalid_left", "resurrected", *OF_ONE_KIND)]
RECONCILE_RULES = ["missing_winners", "foreign_records", "data_files_changed", "head_changed", "early_tombstones"]
RECONCILE_RULES += ["gone_at_source_left", "imbalance"]
ERASE_RULES = ["missing_winners", "foreign_records", "data_files_changed", "erased_left", "imbalance"]
Measure = Callable[[StagedUnit], list[LogMeasure]]
STRATEGY_WARNINGS = {"offset": [], "timestamp": ["future_timestamps"], "header": ["malformed_versions"], "order": []}


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """A round whose logs were measured but not yet judged. `units` have the heads of their branches."""

    table: TopicTable
    round: str
    kind: str
    units: tuple[StagedUnit, ...]
    measures: tuple[LogMeasure, ...]
    rules: tuple[str, ...]
    auditor: Auditor

    @property
    def violations(self) -> list[Mapping[str, int]]:
        """Return, for each log, its partition, its records before the round and each rule's violations."""
        return [measure.violations((PARTITION, RECORDS_IN, *self.rules)) for measure in self.measures]


def check_round(
    table: TopicTable, round_id: str, units: Sequence[StagedUnit], kind: str = COMPACT, measure: Measure | None = None
) -> CheckedRound:
    """Return the round with measures, verdicts, and the heads of its branches. Only these heads may be published.

    `measure` replaces the default if the kind of round compares with more than the table. Raises ConflictError if a
    branch was dropped.

    1. Every log is measured on the snapshot that the round read and on its branch.
    2. Great Expectations judges the measures by the rules, and the records of the branch by the topic's own checks.
    3. If the round then waits for a person, it gets a sample of the removed records.
    4. The evidence gets a row for each log.
    """
    measured = measured_round(table, round_id, units, kind, measure)
    of_rules = measured.auditor.check_round(round_id, measured.violations)
    checked, results = with_verdicts(measured, table.platform, of_rules)
    append_evidence(table.platform, [(table, checked, results)])
    return checked


def measured_round(
    table: TopicTable, round_id: str, units: Sequence[StagedUnit], kind: str, measure: Measure | None
) -> MeasuredRound:
    """Measure a round: step 1 of a check. Raises ConflictError if a branch was dropped."""
    iceberg = table.as_staged()
    units = tuple(replace(unit, head_snapshot_id=table.head_of(unit.branch, iceberg)) for unit in units)
    rules = rules_of(table.topic, kind)
    with ThreadPoolExecutor(1) as pool:
        store = DocsStore.of(table.topic)
        opening = pool.submit(Auditor, table.platform.home, table.topic, rules, kind, store)  # a slow import
        loaded = iceberg if len(units) == 1 else None  # the catalog's credentials for files may be short-lived
        measure = measure or partial(measure_unit, table, expiring=kind == EXPIRE, iceberg=loaded)
        measures = [m for unit in units for m in measure(unit)]
        auditor = opening.result()
    # A log that is blocked for its records without a key counts those below the planned end.
    keyless = keyless_logs(units)
    measures = [
        replace(m, invalid_left=keyless[m.partition].records) if m.partition in keyless else m for m in measures
    ]
    return MeasuredRound(table, round_id, kind, units, tuple(measures), tuple(rules), auditor)


def with_verdicts(
    measured: MeasuredRound, platform: Platform, of_rules: Sequence[CheckResult]
) -> tuple[CheckedRound, list[CheckResult]]:
    """Return the checked round and all results: steps 2 and 3 of a check. `of_rules`: the results of the rules."""
    table, auditor, measures = measured.table, measured.auditor, measured.measures
    keyless, misread = keyless_logs(measured.units), misread_logs(measured.units)
    results = [_with_offset(result, measures) for result in for_keyless(of_rules, keyless)]
    results = for_misread(results, misread)
    untouched = keyless.keys() | misread.keys()
    limit = TimeLimit(platform.limits.checks_max_ms)
    # a topic's own checks must not keep the records of a person
    for unit in measured.units if table.topic.checks and measured.kind != ERASE else ():
        # Only logs in which the round publishes a new state: not untouched ones, nor those with only retention to do.
        changed = [w for w in unit.partitions if w.partition not in untouched]
        if judged := [w for w in changed if measured.kind != COMPACT or not w.only_retention]:
            with judged_records(table, unit, judged) as records:
                results += auditor.check_records(measured.round, records, [w.partition for w in judged], limit)
    judged_ms = judged_at_ms(measured.units[0], int(time.time() * 1000))
    verdicts = [_verdict(m.partition, results, judged_ms) for m in measures]
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
    """Return the rules of cleantail.log.rules that a round of this kind can break."""
    if kind == COMPACT:
        return [*COMPACT_RULES, *STRATEGY_WARNINGS[topic.config.compaction_strategy]]
    return {EXPIRE: EXPIRE_RULES, RECONCILE: RECONCILE_RULES, ERASE: ERASE_RULES}[kind]


def _with_offset(result: CheckResult, measures: Sequence[LogMeasure]) -> CheckResult:
    """Add the offset of the contradiction to a failed result: a person must decide which record is right."""
    if result.expectation != MEASURE or result.passed:
        return result
    where = [m.first_contradiction for m in measures if m.partition == result.partition and m.first_contradiction]
    return replace(result, observed="; ".join([result.observed, *where]))


def prove_topic(table: TopicTable) -> Proof:
    """Count every key below the first dirty offset of every log on `main`, and compare every offset that readers see.

    Uses only Spark's Iceberg reader and Spark's plans. The first dirty offset is the one that evaluate derives: it is
    below the checkpoint if a late record waits (semantics.md 3.5).
    """
    facts = read_facts(table.topic)
    states = log_states(table.topic, facts, now_ms=0)
    logs = [log for log in states if log.checkpoint is not None]
    works = tuple(
        PartitionWork(log.partition, log.first_dirty_offset, log.first_dirty_offset, log.log_start_offset, 0,
                      records=log.records)
        for log in logs
    )  # fmt: skip
    keys: dict[int, KeyCounts] = {}
    contradictions: list[Contradiction] = []
    if facts is not None and facts.snapshot_id is not None:
        keys = prove_keys(table.at_snapshot(facts.snapshot_id), works) if works else {}
        starts = {log.partition: log.log_start_offset for log in states}
        contradictions = of_topic(table, facts.snapshot_id, starts)
    proven = (ProvenLog(w.partition, w.end_offset, *astuple(keys.get(w.partition, KeyCounts(0, 0)))) for w in works)
    return Proof(tuple(proven), tuple(contradictions))


def _verdict(partition: int, results: Sequence[CheckResult], judged_ms: int) -> Verdict:
    """Return the verdict on a log: failed if a critical expectation failed, or if any could not be evaluated."""
    failed = [r for r in results if r.partition == partition and not r.passed]
    red = [r for r in failed if r.severity == "critical" or r.error]
    warnings = tuple(r for r in failed if r not in red)
    return Verdict(partition, not red, tuple(red), warnings, judged_ms=judged_ms)


def all_or_none(verdicts: Sequence[Verdict], untouched: Collection[int]) -> list[Verdict]:
    """Fail all logs if one fails: a file of an adopted table may hold several logs, but has one delete file.

    The next round runs without the failed log, which is quarantined. No log waits for an `untouched` one, from which
    the round removed nothing.
    """
    red = tuple(v.partition for v in verdicts if not v.passed and v.partition not in untouched)
    return [replace(v, passed=False, waits_for=red) if red and v.passed else v for v in verdicts]


def for_keyless(results: Sequence[CheckResult], keyless: Mapping[int, KeylessLog]) -> list[CheckResult]:
    """Keep only the KEYLESS_RULE result of logs that are blocked for records without a key.

    The round removed nothing from them, so the other rules have nothing to judge."""
    return [
        replace(r, observed=held_reason(keyless[r.partition].records, keyless[r.partition].first_offset))
        if r.partition in keyless
        else r
        for r in results
        if r.partition not in keyless or r.expectation == KEYLESS_RULE
    ]


def for_misread(results: Sequence[CheckResult], misread: Mapping[int, str]) -> list[CheckResult]:
    """Replace the results of logs that two readers read differently by one failed result with the reason.

    The rules are measured with the reader that is in doubt."""
    kept = [result for result in results if result.partition not in misread]
    rule = "Spark's Iceberg reader and Cleantail's see the same records in files of each kind"
    return kept + [
        CheckResult(log, "same_for_two_readers", rule, "critical", False, reason, error=True)
        for log, reason in sorted(misread.items())
    ]

"""Check a round on its branches before any reader sees it: Great Expectations on what was measured and on records.

What compact did is read from the heads of the branches, and not from what its task has handed on.

Results go to the evidence table, to Data Docs and into the result. Exit code 1 when a log's check failed; publish
then leaves that log out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.platform import Platform
from cleantail.config.topic_table import KEY, PARTITION, VALUE
from cleantail.lake.runs.evaluate import log_states, read_facts
from cleantail.log.contradictions import FIRST, MEASURE, Contradiction
from cleantail.log.keyless import KEYLESS_RULE, held_logs, held_reason
from cleantail.log.round_state import COMPACT, EXPIRE
from cleantail.log.rules import RULES
from cleantail.log.work_units import WorkUnit
from spark_jobs.engine.late_contradictions import of_topic
from spark_jobs.engine.measures import measure_unit, rows_by_log
from spark_jobs.engine.transforms.audit import full_proof
from spark_jobs.engine.transforms.winners import below_end, span_condition
from spark_jobs.iceberg.session import grouped_by_log
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.expectations import Auditor
from spark_jobs.quality.findings import Finding
from spark_jobs.quality.time_limit import TimeLimit
from spark_jobs.round.approvals import with_holds, with_sample
from spark_jobs.round.evidence import append_evidence

COMPACT_RULES = [name for name in RULES if name != "overdue_tombstones"]
EXPIRE_RULES = [name for name in RULES if name not in ("invalid_left", "resurrected")]
STRATEGY_WARNINGS = {"offset": [], "timestamp": ["future_timestamps"], "header": ["malformed_versions"]}


def check_round(
    table: TopicTable, platform: Platform, round_id: str, units: Sequence[dict[str, Any]], expiring: bool = False
) -> dict[str, Any]:
    """The units with verdicts and measures, and with the heads of their branches: what was checked, and nothing
    else, is published. `units` are compact's (or expire's) results. Raises ConflictError when a branch is gone."""
    units = [unit | {"head_snapshot_id": table.head_of(unit["branch"])} for unit in units]
    works = [WorkUnit.from_json(unit) for unit in units]
    warnings = STRATEGY_WARNINGS[table.topic.config.compaction_strategy]
    rules = EXPIRE_RULES if expiring else [*COMPACT_RULES, *warnings]
    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(Auditor, platform.home, table.topic, rules, EXPIRE if expiring else COMPACT)
        measures = [
            measure
            for unit, work in zip(units, works, strict=True)
            for measure in measure_unit(table, platform, work, unit["counts"], expiring)
        ]
        auditor = made.result()
    held = held_logs(units)
    measures = [m | _keyless(held, m[PARTITION]) for m in measures]
    findings = for_keyless(auditor.check_round(round_id, [_violations(m, rules) for m in measures]), held)
    findings = [_with_offset(finding, measures) for finding in findings]
    limit = TimeLimit(platform.limits.checks_max_ms)
    for work in works:
        judged = [w for w in work.partitions if (expiring or not w.only_retention) and w.partition not in held]
        if judged:
            records = as_text(below_end(table.at_branch(work.branch), judged))
            findings += auditor.check_records(round_id, records, [w.partition for w in judged], limit)
    verdicts = [_verdict(m[PARTITION], findings) for m in measures]
    if table.topic.columns is not None:
        verdicts = all_or_none(verdicts, held)
    result = {
        "ok": all(v["passed"] for v in verdicts),
        "topic": table.topic.topic,
        "round": round_id,
        "kind": EXPIRE if expiring else COMPACT,
        "units": list(units),
        "measures": measures,
        "verdicts": verdicts,
        "checks_passed": sum(f.passed for f in findings),
        "checks_total": len(findings),
        "data_docs": auditor.data_docs,
    }
    auditor.begin_data_docs()
    result = with_sample(table, with_holds(table, result), works)
    append_evidence(table, platform, result, findings)
    return result


def _violations(measure: dict[str, Any], rules: Sequence[str]) -> dict[str, int]:
    return {name: measure[name] for name in (PARTITION, *rules)}


def _with_offset(finding: Finding, measures: Sequence[dict[str, Any]]) -> Finding:
    """Where a contradiction is: it takes a person to find out which record is right."""
    if finding.expectation != MEASURE or finding.passed:
        return finding
    where = [m[FIRST] for m in measures if m[PARTITION] == finding.partition and FIRST in m]
    return replace(finding, observed="; ".join([finding.observed, *where]))


def as_text(records: DataFrame) -> DataFrame:
    """Records as the topic's own expectations see them: key and value as UTF-8 text."""
    return records.withColumns({KEY: F.col(KEY).cast("string"), VALUE: F.col(VALUE).cast("string")})


def prove_topic(table: TopicTable, platform: Platform) -> dict[str, Any]:
    """Every key below the clean point of every log, counted anew on `main`, and every offset that readers see.

    The clean point is the one that evaluate derives: below the checkpoint where a late record waits (3.5).
    """
    facts = read_facts(table.topic, platform)
    states = log_states(table.topic, facts, now_ms=0)
    logs = [log for log in states if log.checkpoint is not None]
    spans = {log.partition: (log.log_start_offset, log.first_dirty_offset) for log in logs}
    ends = {p: end for p, (_, end) in spans.items()}
    found: dict[int, dict[str, int]] = {}
    contradictions: list[Contradiction] = []
    if facts is not None and facts.snapshot_id is not None:
        inside = table.at_snapshot(facts.snapshot_id).where(span_condition(spans))
        with grouped_by_log(table.spark, True):
            found = rows_by_log(full_proof(inside, ends)) if ends else {}
            starts = {log.partition: log.log_start_offset for log in states}
            contradictions = of_topic(table, facts.snapshot_id, starts)
    none = {"keys": 0, "duplicate_keys": 0}
    proven = [{PARTITION: p, "end_offset": end} | none | found.get(p, {}) for p, end in ends.items()]
    ok = not contradictions and not any(log["duplicate_keys"] for log in proven)
    return {"ok": ok, "partitions": proven, "contradictions": [c.as_json() for c in contradictions]}


def _verdict(partition: int, findings: Sequence[Finding]) -> dict[str, Any]:
    """A log passes when no critical expectation failed; one that could not be evaluated fails whatever its severity."""
    failed = [f for f in findings if f.partition == partition and not f.passed]
    red = [f for f in failed if f.severity == "critical" or f.error]
    return {
        "partition": partition,
        "passed": not red,
        "failures": [asdict(f) for f in red],
        "warnings": [asdict(f) for f in failed if f not in red],
    }


def all_or_none(verdicts: Sequence[dict[str, Any]], untouched: Collection[int]) -> list[dict[str, Any]]:
    """Where one log fails the others wait: a file of an adopted table may hold several, and has one delete file.

    The failed one is quarantined, so the next round is without it. Nobody waits for an `untouched` log, from which the
    round has removed nothing.
    """
    red = [v["partition"] for v in verdicts if not v["passed"] and v["partition"] not in untouched]
    waiting = {v["partition"] for v in verdicts if red and v["passed"]}
    return [v | {"passed": False, "waits_for": red} if v["partition"] in waiting else v for v in verdicts]


def _keyless(held: Mapping[int, tuple[int, int]], partition: int) -> dict[str, int]:
    """The measure of a log that is held back for records without a key: of all below the end that was planned."""
    return {KEYLESS_RULE: held[partition][0]} if partition in held else {}


def for_keyless(findings: Sequence[Finding], held: Mapping[int, tuple[int, int]]) -> list[Finding]:
    """Of a log that is held back for records without a key the one rule that says so: from it nothing was removed, so
    the other rules have nothing to judge."""
    return [
        replace(f, observed=held_reason(*held[f.partition])) if f.partition in held else f
        for f in findings
        if f.partition not in held or f.expectation == KEYLESS_RULE
    ]

"""Check a round on its branches before any reader sees it: Great Expectations on what was measured and on records.

    spark-submit spark_jobs/check_quality.py --config config --topic orders --round '{"round": …, "units": […]}'

Results go to the evidence table, to Data Docs and into the result. Exit code 1 when a log's check failed; publish
then leaves that log out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config import Platform
from cleantail.kcat import LONG_MAX
from cleantail.partition_state import (
    Horizon,
    PartitionState,
    states_of_properties,
    with_late_tombstones,
    with_round,
)
from cleantail.round_state import COMPACT, EXPIRE, as_due, swept
from cleantail.rules import RULES, WARNINGS
from cleantail.topic_table import KEY, OFFSET, PARTITION, VALUE
from cleantail.work_units import PartitionWork, WorkUnit
from spark_jobs.deleted_versions import remembered
from spark_jobs.evidence import append_evidence
from spark_jobs.expectations import Auditor, Finding, preload
from spark_jobs.job import Job, parser, run_job
from spark_jobs.session import start_session
from spark_jobs.tables import TopicTable
from spark_jobs.transforms.audit import fates, key_measures, live_tombstones, record_measures
from spark_jobs.transforms.winners import below_end

COMPACT_RULES = [name for name in RULES if name != "overdue_tombstones"]
EXPIRE_RULES = [name for name in RULES if name not in ("invalid_left", "resurrected")]
STRATEGY_WARNINGS = {"offset": [], "timestamp": ["future_timestamps"], "header": ["malformed_versions"]}
LATE_LIMIT = 10_000
"""So many late tombstones get a horizon of their own; beyond it all of the log's are set anew, never too early."""


def check_round(
    table: TopicTable, platform: Platform, round_id: str, units: Sequence[dict[str, Any]], expiring: bool = False
) -> dict[str, Any]:
    """The units with verdicts and measures, and with the heads of their branches: what was checked, and nothing
    else, is published. `units` are compact's (or expire's) results. Raises ConflictError when a branch is gone."""
    units = [unit | {"head_snapshot_id": table.head_of(unit["branch"])} for unit in units]
    auditor = Auditor(platform.home, table.topic)
    checked = [_check_unit(table, auditor, unit, expiring) for unit in units]
    findings = [f for _, found in checked for f in found]
    measures = [m for measured, _ in checked for m in measured]
    verdicts = [_verdict(m[PARTITION], findings) for m in measures]
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
    append_evidence(table, platform, result, findings)
    return result


def _check_unit(
    table: TopicTable, auditor: Auditor, unit_json: dict[str, Any], expiring: bool
) -> tuple[list[dict[str, Any]], list[Finding]]:
    unit = WorkUnit.from_json(unit_json)
    measures = measure_unit(table, unit, unit_json["counts"], expiring)
    warnings = STRATEGY_WARNINGS[table.topic.config.compaction_strategy]
    rules = EXPIRE_RULES if expiring else [*COMPACT_RULES, *warnings]
    findings = auditor.check_round(unit.round, [_violations(m, rules) for m in measures], rules)
    records = as_text(below_end(table.at_branch(unit.branch), unit.partitions))
    findings += auditor.check_records(unit.round, records, [w.partition for w in unit.partitions])
    return measures, findings


def _violations(measure: dict[str, Any], rules: Sequence[str]) -> dict[str, int]:
    return {name: measure[name] for name in (PARTITION, *rules)}


def as_text(records: DataFrame) -> DataFrame:
    """Records as the topic's own expectations see them: key and value as UTF-8 text."""
    return records.withColumns({KEY: F.col(KEY).cast("string"), VALUE: F.col(VALUE).cast("string")})


def measure_unit(table: TopicTable, unit: WorkUnit, counts: dict[str, Any], expiring: bool) -> list[dict[str, Any]]:
    """One mapping a log: violations of each rule, and the numbers that publish puts into the log's state."""
    iceberg = table.load()
    states = states_of_properties(dict(iceberg.properties()), table.name)
    logs = [w.partition for w in unit.partitions]
    change = table.changes_of(unit.branch, unit.base_snapshot_id)
    base, branch = table.at_snapshot(unit.base_snapshot_id), table.at_branch(unit.branch)
    holders = _logs_with_tombstones(base, logs)
    old = {p: states.get(p, PartitionState()).horizons for p in logs}
    new = {
        w.partition: swept(w, old[w.partition], unit.now_ms) if expiring else _next_ledger(table, unit, w, states)
        for w in unit.partitions
    }
    configs = table.topic.config
    due = {w.partition: as_due(w, old[w.partition], unit.now_ms) for w in unit.partitions}
    records = fates(base, branch, unit.partitions, configs, due, holders).persist()
    try:
        by_record = _rows(record_measures(records, configs, unit.now_ms))
        by_key = _rows(key_measures(records, configs, unit.now_ms, expiring, remembered(table, unit.now_ms)))
        alive = {
            (row[PARTITION], row["ledger_end"]): row["tombstones"] for row in live_tombstones(records, new).collect()
        }
    finally:
        records.unpersist()
    return [
        _measure(work, by_record, by_key, counts["deleted"], change.data_files_changed)
        | {
            "horizons": [
                [h.end_offset, h.horizon_ms, alive.get((work.partition, h.end_offset), 0), h.swept_to]
                for h in new[work.partition]
            ]
        }
        | {"head_tombstones": alive.get((work.partition, None), 0)}
        for work in unit.partitions
    ]


def _next_ledger(
    table: TopicTable, unit: WorkUnit, work: PartitionWork, states: dict[int, PartitionState]
) -> tuple[Horizon, ...]:
    """The ledger of horizons once this round is published; the clock of what it keeps for the first time starts now."""
    state = states.get(work.partition, PartitionState())
    horizon_ms = min(unit.now_ms + table.topic.config.delete_retention_ms, LONG_MAX)
    late = _late_tombstones(table, unit, work, state)
    if len(late) > LATE_LIMIT:
        return (Horizon(max(work.end_offset, state.checkpoint or 0), horizon_ms),)
    return with_late_tombstones(with_round(state.horizons, work.end_offset, horizon_ms), late, horizon_ms)


def _logs_with_tombstones(base: DataFrame, logs: Sequence[int]) -> set[int]:
    """Logs whose files hold null values: Iceberg prunes the others by their counts, so no value is read there."""
    found = base.where(F.col(PARTITION).isin(list(logs)) & F.col(VALUE).isNull()).select(PARTITION).distinct()
    return {row[PARTITION] for row in found.collect()}


def _rows(frame: DataFrame) -> dict[int, dict[str, int]]:
    return {row[PARTITION]: row.asDict() for row in frame.collect()}


def _measure(
    work: PartitionWork,
    by_record: dict[int, dict[str, int]],
    by_key: dict[int, dict[str, int]],
    deleted: dict[str, dict[str, int]],
    data_files_changed: int,
) -> dict[str, Any]:
    log = str(work.partition)
    gone = {reason: counts.get(log, 0) for reason, counts in deleted.items()}
    no_keys = dict.fromkeys(("keys", "duplicate_keys", "missing_winners", "early_tombstones", "resurrected"), 0)
    measure = {**by_record.get(work.partition, {}), **no_keys, **by_key.get(work.partition, {})}
    balance = measure.get("records_in", 0) - sum(gone.values()) - measure.get("records_out", 0)
    own = {"data_files_changed": data_files_changed, "imbalance": balance, "deleted": gone}
    return {
        **dict.fromkeys((*RULES, *WARNINGS, "records_in", "records_out", "tombstones_in", "tombstones_out"), 0),
        **measure,
        **own,
        PARTITION: work.partition,
    }


def _late_tombstones(table: TopicTable, unit: WorkUnit, work: PartitionWork, state: PartitionState) -> list[int]:
    """Offsets of live tombstones that arrived below the checkpoint since the last round: their clock starts now."""
    if state.checkpoint is None or work.first_dirty_offset >= state.checkpoint:
        return []
    late = table.at_branch(unit.branch).where(
        (F.col(PARTITION) == work.partition)
        & F.col(OFFSET).between(work.first_dirty_offset, state.checkpoint - 1)
        & F.col("_file").isin(table.files_after(unit.base_snapshot_id, work.partition, state.known_sequence_number))
        & F.col(VALUE).isNull()
    )
    return sorted(row[OFFSET] for row in late.select(OFFSET).limit(LATE_LIMIT + 1).collect())


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


def _work(job: Job) -> dict[str, Any]:
    preload()
    spark = start_session(job.platform, f"cleantail check_quality {job.topic.topic}")
    given = json.loads(job.arguments.round)
    return check_round(TopicTable.of(spark, job.topic, job.platform), job.platform, given["round"], given["units"])


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--round", required=True, help='JSON: {"round", "units": the results of compact}')
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

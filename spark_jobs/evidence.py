"""The evidence: a row for every log of every round, in an Iceberg table of its own beside the topics."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cleantail.approval import REJECTED, Rejection
from cleantail.config import Platform
from cleantail.rollback import ROLLBACK, RollbackPlan
from cleantail.rolling_back import LogUndo
from spark_jobs.expectations import Finding
from spark_jobs.tables import TopicTable

COLUMNS = {
    "topic": "string",
    "partition": "int",
    "round": "string",
    "kind": "string",
    "now_ms": "bigint",
    "checked_at_ms": "bigint",
    "base_snapshot_id": "bigint",
    "first_dirty_offset": "bigint",
    "end_offset": "bigint",
    "records_in": "bigint",
    "records_out": "bigint",
    "tombstones_in": "bigint",
    "tombstones_out": "bigint",
    "deleted": "string",
    "passed": "boolean",
    "checks": "string",
}
PROPERTIES = "TBLPROPERTIES ('format-version'='2', 'commit.retry.num-retries'='20')"
"""Rounds of many topics append at the same time."""


def evidence_table(platform: Platform) -> str:
    return f"`{platform.catalog.name}`.`{platform.catalog.namespace}`.cleantail_evidence"


def append_evidence(table: TopicTable, platform: Platform, result: dict[str, Any], findings: Sequence[Finding]) -> None:
    """One row a log of the checked round. `deleted` (by reason) and `checks` are JSON."""
    works = {w["partition"]: (unit, w) for unit in result["units"] for w in unit["partitions"]}
    _append(table, platform, [_row(result, m, *works[m["partition"]], findings) for m in result["measures"]])


def append_rollback(
    table: TopicTable, platform: Platform, planned: RollbackPlan, logs: Sequence[LogUndo], now_ms: int
) -> None:
    """One row a log, as of a round of the kind rollback: records before and after, and which rounds were undone."""
    head = (f"undid {', '.join(u.round for u in planned.undone)}", ROLLBACK, now_ms)
    at = planned.to_snapshot_id
    rows = [(g.partition, at, g.checkpoint_after or 0, g.checkpoint or 0, g.records, g.records_after) for g in logs]
    _append(table, platform, [_decision(table, *head, *row) for row in rows])


def append_rejection(table: TopicTable, platform: Platform, checked: dict[str, Any], rejection: Rejection) -> None:
    """One row a log that would have been published, as of a round of the kind rejected, which removed nothing."""
    head = (f"{checked['round']}, {rejection.reason}", REJECTED, rejection.at_ms)
    works = {w["partition"]: (unit["base_snapshot_id"], w) for unit in checked["units"] for w in unit["partitions"]}
    passed = {v["partition"] for v in checked["verdicts"] if v["passed"]}
    rows = [
        (p, works[p][0], works[p][1]["first_dirty_offset"], works[p][1]["end_offset"], m["records_in"], m["records_in"])
        for m in checked["measures"]
        if (p := m["partition"]) in passed
    ]
    _append(table, platform, [_decision(table, *head, *row) for row in rows])


def _decision(
    table: TopicTable,
    name: str,
    kind: str,
    now_ms: int,
    partition: int,
    base_snapshot_id: int,
    first_dirty_offset: int,
    end_offset: int,
    records_in: int,
    records_out: int,
) -> tuple[Any, ...]:
    """A row of what a person has decided: nothing was checked, and no tombstone counted."""
    numbers = (base_snapshot_id, first_dirty_offset, end_offset, records_in, records_out, 0, 0)
    at_ms = int(time.time() * 1000)
    return (table.topic.topic, partition, name, kind, now_ms, at_ms, *numbers, "{}", True, "[]")


def _append(table: TopicTable, platform: Platform, rows: Sequence[tuple[Any, ...]]) -> None:
    spark, name = table.spark, evidence_table(platform)
    schema = ", ".join(f"`{column}` {kind}" for column, kind in COLUMNS.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({schema}) USING iceberg {PROPERTIES}")
    spark.createDataFrame(rows, schema).coalesce(1).writeTo(name).append()


def _row(
    result: dict[str, Any],
    measure: dict[str, Any],
    unit: dict[str, Any],
    work: dict[str, Any],
    findings: Sequence[Finding],
) -> tuple[Any, ...]:
    partition = measure["partition"]
    verdict = next(v for v in result["verdicts"] if v["partition"] == partition)
    checks = [asdict(f) for f in findings if f.partition == partition]
    return (
        result["topic"],
        partition,
        result["round"],
        result["kind"],
        unit["now_ms"],
        int(time.time() * 1000),
        unit["base_snapshot_id"],
        work["first_dirty_offset"],
        work["end_offset"],
        measure["records_in"],
        measure["records_out"],
        measure["tombstones_in"],
        measure["tombstones_out"],
        json.dumps(measure["deleted"]),
        verdict["passed"],
        json.dumps(checks),
    )

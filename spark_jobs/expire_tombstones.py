"""Expire the tombstones whose horizon has come: branch, check and publish of their own, also without new data.

    spark-submit spark_jobs/expire_tombstones.py --config config --topic orders --round '{"now_ms": …}'

Which are due is read from the ledgers in the table as it is now (semantics.md 1.5, 3.3, 3.4).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from typing import Any

from cleantail.config import Platform
from cleantail.evaluate import RunPlan, evaluate_topic
from cleantail.round_state import due_spans
from cleantail.topic_table import VALUE
from cleantail.work_units import PartitionWork, WorkUnit
from spark_jobs.expectations import preload
from spark_jobs.job import Job, parser, run_job
from spark_jobs.session import start_session
from spark_jobs.tables import TopicTable
from spark_jobs.transforms.winners import span_condition


def expiry_unit(plan: RunPlan, partitions: Collection[int], base_snapshot_id: int) -> WorkUnit:
    """The logs with due tombstones as one unit; `end_offset` is the clean point, below which they are sought."""
    works = tuple(
        PartitionWork(
            partition=log.partition,
            first_dirty_offset=log.first_dirty_offset,
            end_offset=log.first_dirty_offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            bytes=log.total_bytes,
        )
        for log in plan.logs
        if log.partition in plan.sweep and log.partition in partitions
    )
    return WorkUnit(plan.round, 0, plan.now_ms, base_snapshot_id, f"ct_{plan.round}_x0", works)


def expire_unit(table: TopicTable, plan: RunPlan, unit: WorkUnit) -> dict[str, Any]:
    """Deletes due tombstones on the unit's branch; returns the unit with its counts, as compact does."""
    table.create_branch(unit.branch, unit.base_snapshot_id)
    horizons = {log.partition: log.horizons for log in plan.logs}
    spans = [
        span_condition({w.partition: span}, "t")
        for w in unit.partitions
        for span in due_spans(horizons[w.partition], w.end_offset, unit.now_ms)
    ]
    table.delete_where(unit.branch, f"t.`{VALUE}` IS NULL AND ({' OR '.join(spans)})")
    deleted = table.changes_of(unit.branch, unit.base_snapshot_id).deleted_records()
    counts = {"map_keys": 0, "deleted": {"expired": {str(p): n for p, n in deleted.items()}}}
    return unit.as_json() | {"counts": counts}


def plan_expiry(
    table: TopicTable, platform: Platform, now_ms: int, partitions: Collection[int]
) -> tuple[RunPlan, WorkUnit]:
    """The ledgers as they are now, and the unit for those of the logs that have something due."""
    plan = evaluate_topic(table.topic, platform, now_ms=now_ms)
    base = int(table.load().currentSnapshot().snapshotId()) if plan.sweep else 0
    return plan, expiry_unit(plan, partitions, base)


def _work(job: Job) -> dict[str, Any]:
    from spark_jobs.rounds import expire_round

    preload()
    spark = start_session(job.platform, f"cleantail expire_tombstones {job.topic.topic}")
    given = json.loads(job.arguments.round)
    table = TopicTable.of(spark, job.topic, job.platform)
    return expire_round(table, job.platform, given["now_ms"], given["partitions"], lambda _: None)


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--round", required=True, help='JSON: {"round", "now_ms", "partitions"}')
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

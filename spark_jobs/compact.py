"""Compact one work unit: find superseded records from key columns, write deletion vectors onto a branch.

    spark-submit spark_jobs/compact.py --config config --topic orders --unit '{"round": …}'

Values are never read and `main` is not changed: check_quality reads the branch, publish replays it. A unit that runs
again (a retry, a killed job) starts from the same base snapshot on a fresh branch.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.budget import keys_in_budget, round_end
from cleantail.config import Platform
from cleantail.errors import KeylessRecordError
from cleantail.kafka_configs import KafkaConfigs
from cleantail.topic_table import KEY, OFFSET, PARTITION
from cleantail.work_units import WorkUnit
from spark_jobs.deleted_versions import remembered
from spark_jobs.job import Job, parser, run_job
from spark_jobs.session import start_session
from spark_jobs.tables import ROW_ID, TopicTable, branch_name
from spark_jobs.transforms.winners import (
    below_end,
    columns_of,
    dirty_part,
    offset_map,
    span_condition,
    where_full,
)

MAP_VIEW = "cleantail_offset_map"
COPIES_VIEW = "cleantail_copies"


@dataclass(slots=True)
class UnitRun:
    """One unit while it is being compacted; `deleted` counts by reason and partition."""

    table: TopicTable
    unit: WorkUnit
    configs: KafkaConfigs
    deleted: dict[str, dict[int, int]]

    def delete(self, reason: str, condition: str) -> None:
        """Deletes on the branch and books the difference under the reason."""
        before = self._deleted_so_far()
        self.table.delete_where(self.unit.branch, condition)
        after = self._deleted_so_far()
        self.deleted[reason] = {p: n - before.get(p, 0) for p, n in after.items()}

    def records(self) -> DataFrame:
        return self.table.at_branch(self.unit.branch)

    def _deleted_so_far(self) -> dict[int, int]:
        return self.table.changes_of(self.unit.branch, self.unit.base_snapshot_id).deleted_records()


def compact_unit(table: TopicTable, platform: Platform, unit: WorkUnit) -> dict[str, Any]:
    """The unit with its counts by partition. Raises KeylessRecordError, with `main` and branch unchanged."""
    unit = within_budget(table, platform, replace(unit, branch=branch_name(unit.branch)))
    run = UnitRun(table, unit, table.topic.config, {})
    keyless = count_keyless(table, unit)
    table.create_branch(unit.branch, unit.base_snapshot_id)
    _delete_past_retention(run)
    _delete_copies(run)
    if keyless:
        run.delete("invalid", f"t.`{KEY}` IS NULL AND {_below_end(unit)}")
    keys = _delete_superseded(run, platform)
    return unit.as_json() | {"counts": _counts(run, keys)}


def within_budget(table: TopicTable, platform: Platform, unit: WorkUnit) -> WorkUnit:
    """The unit as it is, or, where the budget is kept by rounds, with ends at which each log's map is full."""
    if platform.cleaner.cleantail_over_budget != "rounds":
        return unit
    records = table.at_snapshot(unit.base_snapshot_id).select(PARTITION, OFFSET, KEY)
    keys = keys_in_budget(platform.cleaner, table.topic.config)
    full = {row[PARTITION]: row for row in where_full(dirty_part(records, unit.partitions), keys).collect()}
    works = tuple(
        replace(w, end_offset=round_end(full[w.partition]["full_at"], full[w.partition]["last_keyed"], w.end_offset))
        if w.partition in full
        else w
        for w in unit.partitions
    )
    return replace(unit, partitions=works)


def count_keyless(table: TopicTable, unit: WorkUnit) -> int:
    """Records without a key below the end. Raises KeylessRecordError where the policy is to fail (semantics.md 3.7)."""
    records = below_end(table.at_snapshot(unit.base_snapshot_id), unit.partitions).where(F.col(KEY).isNull())
    found = records.groupBy(PARTITION).agg(F.min(OFFSET).alias("first"), F.count("*").alias("count")).collect()
    if found and table.topic.config.cleantail_keyless_policy == "fail":
        first = min(found, key=lambda row: row[PARTITION])
        raise KeylessRecordError(table.topic.topic, first[PARTITION], first["first"], first["count"])
    return sum(row["count"] for row in found)


def _delete_past_retention(run: UnitRun) -> None:
    """Whole segments that `delete` in the policy lets go: the log start has moved past them (1.1)."""
    if run.configs.deletes:
        spans = {w.partition: (0, w.log_start_offset) for w in run.unit.partitions if w.log_start_offset > 0}
        if spans:
            run.delete("retention", span_condition(spans, "t"))


def _delete_copies(run: UnitRun) -> None:
    """The same (partition, offset) twice, from an at-least-once sink: the first copy survives (3.5)."""
    dirty = dirty_part(run.records().select(PARTITION, OFFSET, ROW_ID), run.unit.partitions)
    copies = (
        dirty.groupBy(PARTITION, OFFSET)
        .agg(F.min(ROW_ID).alias("keep_row"), F.count("*").alias("copies"))
        .where("copies > 1")
    )
    rows = copies.count()
    if rows:
        copies.createOrReplaceTempView(COPIES_VIEW)
        same = f"c.`{PARTITION}` = t.`{PARTITION}` AND c.`{OFFSET}` = t.`{OFFSET}` AND c.keep_row <> t.{ROW_ID}"
        run.delete("copies", f"{_below_end(run.unit)} AND EXISTS (SELECT 1 FROM {COPIES_VIEW} c WHERE {same})")


def _delete_superseded(run: UnitRun, platform: Platform) -> int:
    """Every record below the end that is not its key's winner; returns the size of the offset map.

    The join is on a hash of the key, a long, which makes a compact hash relation; the key itself is compared only
    where the offset already loses (3.11: Kafka takes equal hashes for equal keys, we do not).
    """
    works = run.unit.partitions
    records, now_ms = run.records().select(*columns_of(run.configs)), run.unit.now_ms
    found = offset_map(records, works, run.configs, now_ms, remembered(run.table, now_ms))
    hashed = found.withColumn("hash", F.xxhash64(PARTITION, KEY)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        keys = hashed.count()
        fits = keys <= keys_in_budget(platform.cleaner, run.configs)
        (F.broadcast(hashed) if fits else hashed).createOrReplaceTempView(MAP_VIEW)
        loses = f"m.keep_offset {'>' if run.configs.compaction_strategy == 'offset' else '<>'} t.`{OFFSET}`"
        same_key = f"m.`{KEY}` = if({loses}, t.`{KEY}`, null)"
        match = f"m.hash = xxhash64(t.`{PARTITION}`, t.`{KEY}`) AND m.`{PARTITION}` = t.`{PARTITION}` AND {loses}"
        if keys:
            exists = f"EXISTS (SELECT 1 FROM {MAP_VIEW} m WHERE {match} AND {same_key})"
            run.delete("superseded", f"{_below_end(run.unit)} AND {exists}")
        return keys
    finally:
        hashed.unpersist()


def _below_end(unit: WorkUnit) -> str:
    return span_condition({w.partition: (0, w.end_offset) for w in unit.partitions}, "t")


def _counts(run: UnitRun, keys: int) -> dict[str, Any]:
    """By reason, then by partition as text (JSON has no other keys)."""
    reasons = {r: {str(p): n for p, n in by.items() if n} for r, by in run.deleted.items()}
    return {"map_keys": keys, "deleted": reasons}


def _work(job: Job) -> dict[str, Any]:
    unit = WorkUnit.from_json(json.loads(job.arguments.unit))
    spark = start_session(job.platform, f"cleantail compact {job.topic.topic} unit {unit.unit}")
    return {"ok": True, **compact_unit(TopicTable.of(spark, job.topic, job.platform), job.platform, unit)}


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--unit", required=True, help="the work unit, JSON, as evaluate made it")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

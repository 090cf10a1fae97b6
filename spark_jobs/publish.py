"""Publish what passed its check: delete files, checkpoints, horizons and log ends in one commit on `main`.

    spark-submit spark_jobs/publish.py --config config --topic orders --checked '{"round": …, "verdicts": […]}'

A log whose check failed is held back and quarantined with its reason; the others publish. Appends to `main`
meanwhile do not matter. Where another writer rewrote or deleted what the round had read, the round starts over on
the table as it is now; after that many conflicts the exit code is 3. Nothing is ever half published.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import Any

from cleantail.config import Platform
from cleantail.errors import ConflictError
from cleantail.partition_state import PROPERTY_PARTITION, PartitionState, states_of_properties
from cleantail.round_state import EXPIRE, after_expiry, after_failure, after_round
from cleantail.work_units import WorkUnit
from spark_jobs.deleted_versions import remember
from spark_jobs.job import Job, parser, run_job
from spark_jobs.keyless import move_keyless
from spark_jobs.latest_view import ensure_latest_view
from spark_jobs.session import start_session
from spark_jobs.tables import TopicTable

logger = logging.getLogger("cleantail.publish")


def publish_round(table: TopicTable, platform: Platform, checked: dict[str, Any]) -> dict[str, Any]:
    """Commits the green logs of a checked round. Raises ConflictError when the table changed under the round."""
    green = {v["partition"] for v in checked["verdicts"] if v["passed"]}
    red = {v["partition"]: v for v in checked["verdicts"] if not v["passed"]}
    for waiting in (v for v in red.values() if "waits_for" in v):
        logger.warning(
            "partition %s waits: logs %s failed, and share files", waiting["partition"], waiting["waits_for"]
        )
    units = [WorkUnit.from_json(unit) for unit in checked["units"]]
    if table.topic.config.cleantail_keyless_policy == "quarantine" and checked["kind"] == "compact":
        move_keyless(table, units, green)
    if checked["kind"] == EXPIRE:
        remember(table, units, green)
    _require_as_checked(table, checked)
    snapshot_id = _commit(table, platform, checked, units, green, red)
    for unit in units:
        table.drop_branch(unit.branch)
    ensure_latest_view(table)
    return {
        "ok": not red,
        "round": checked["round"],
        "published": sorted(green),
        "held_back": sorted(red),
        "snapshot_id": snapshot_id,
        "ends": {w.partition: w.end_offset for u in units for w in u.partitions if w.partition in green},
        "left_behind": [r for u in checked["units"] for r in u.get("left_behind", []) if r["partition"] in green],
    }


def _require_as_checked(table: TopicTable, checked: dict[str, Any]) -> None:
    """Raises ConflictError where a branch is gone or changed, or a later round has published meanwhile: a checkpoint
    without its deletes, or an older one over a newer, would leave superseded records for good."""
    iceberg = table.load()
    states = states_of_properties(dict(iceberg.properties()), table.name)
    for unit in checked["units"]:
        table.require_head(unit["branch"], unit["head_snapshot_id"])
        base = iceberg.snapshot(unit["base_snapshot_id"])
        if base is None:
            raise ConflictError(f"snapshot {unit['base_snapshot_id']} that round {checked['round']} read has expired")
        for work in unit["partitions"]:
            state = states.get(work["partition"], PartitionState())
            if state.known_sequence_number > int(base.sequenceNumber()):
                raise ConflictError(f"partition {work['partition']} had a later round than {checked['round']}")


def _commit(
    table: TopicTable,
    platform: Platform,
    checked: dict[str, Any],
    units: list[WorkUnit],
    green: set[int],
    red: dict[int, dict[str, Any]],
) -> int:
    """One transaction: deletion vectors of all green logs, their new state, the quarantine of the red ones."""
    iceberg = table.load()
    states = states_of_properties(dict(iceberg.properties()), table.name)
    measures = {m["partition"]: m for m in checked["measures"]}
    properties: dict[str, str] = {}
    for unit in units:
        sequence_number = int(iceberg.snapshot(unit.base_snapshot_id).sequenceNumber())
        for work in unit.partitions:
            state = states.get(work.partition, PartitionState())
            measure, failed = measures[work.partition], red.get(work.partition)
            if failed and "waits_for" in failed:
                continue
            if failed:
                backoff_ms = platform.cleaner.log_cleaner_backoff_ms
                names = [f["expectation"] for f in failed["failures"]]
                new = after_failure(state, checked["kind"], names, unit.now_ms, backoff_ms)
            elif checked["kind"] == EXPIRE:
                new = after_expiry(state, work, measure, unit.now_ms)
            else:
                new = after_round(state, work, measure, sequence_number, unit.now_ms)
            properties[f"{PROPERTY_PARTITION}{work.partition}"] = new.as_json()
    changes = [table.changes_of(unit.branch, unit.base_snapshot_id) for unit in units]
    summary = {"cleantail.operation": checked["kind"], "cleantail.round": checked["round"]}
    return table.publish_deletes(changes, green, units[0].base_snapshot_id, properties, summary)


def _work(job: Job) -> dict[str, Any]:
    from spark_jobs.rounds import publish_or_start_over

    spark = start_session(job.platform, f"cleantail publish {job.topic.topic}")
    table = TopicTable.of(spark, job.topic, job.platform)
    return publish_or_start_over(table, job.platform, json.loads(job.arguments.checked))


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--checked", required=True, help="JSON: the result of check_quality")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

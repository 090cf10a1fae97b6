"""Undo published rounds: table and state as before them, in one commit, with everything appended since.

    spark-submit spark_jobs/rollback.py --config config --topic orders --to last --by anna

The work itself is in spark_jobs/round/undo/rollback.py.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from cleantail.lake.runs.rollback_preview import done_already, preview
from cleantail.rounds.rollback import UNDONE
from spark_jobs.iceberg.session import start_session
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Job, parser, run_job
from spark_jobs.round.undo.evidence_of_undoing import require_new
from spark_jobs.round.undo.rollback import LAST, positions_of, require_meant, rollback_topic, target


def _work(job: Job) -> dict[str, Any]:
    request = job.arguments.request
    if done := done_already(job.topic, job.platform, request):
        known = {"ok": True, "snapshot_id": done.snapshot_id, "undone": done.summary.get(UNDONE), "done_before": True}
        return known | positions_of(job.topic, job.platform)
    require_new(job.platform, job.topic, request)
    planned, logs = preview(job.topic, job.platform, job.arguments.to)
    require_meant(job.topic, planned, job.arguments.asked_ms)
    spark = start_session(job.platform, f"cleantail rollback {job.topic.topic}")
    table = TopicTable.of(spark, job.topic, job.platform)
    return rollback_topic(table, job.platform, planned, logs, job.arguments.by, job.now_ms, request)


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--to", type=target, default=LAST, help="last, or a snapshot's id")
    arguments.add_argument("--by", required=True, help="who asked for it; recorded in the snapshot")
    arguments.add_argument("--request", default="", help="a name for what asked: done once, however often it is tried")
    arguments.add_argument("--asked-ms", type=int, help="when it was asked for, Unix ms; no later round is undone")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

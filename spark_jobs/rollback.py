"""Undo published rounds: table and state as before them, in one commit, with everything appended since.

    spark-submit spark_jobs/rollback.py --config config --topic orders --to last --by anna

The work itself is in spark_jobs/round/undo/rollback.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.lake.runs.rollback_preview import done_already, preview
from cleantail.lake.runs.rollback_results import (
    REPEATED_ROLLBACK_JSON,
    ROLLBACK_RESULT_JSON,
    RepeatedRollback,
    changed_logs,
)
from cleantail.rounds.rollback import UNDONE
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Document, Job, parser, run_job
from spark_jobs.round.undo.evidence_of_undoing import require_new
from spark_jobs.round.undo.rollback import LAST, require_meant, rollback_topic, target


def _work(job: Job) -> Document:
    request = job.arguments.request
    if done := done_already(job.topic, job.platform, request):
        logs = changed_logs(job.topic, job.platform)
        repeated = RepeatedRollback(done.snapshot_id, done.summary.get(UNDONE), logs.published, logs.checkpoints)
        return dict(REPEATED_ROLLBACK_JSON.plain(repeated))
    session = job.begin_session("rollback", workers=False)
    require_new(job.platform, job.topic, request)
    plan, undos = preview(job.topic, job.platform, job.arguments.to)
    require_meant(job.topic, plan, job.arguments.asked_ms)
    table = TopicTable.of(session(), job.topic, job.platform)
    result = rollback_topic(table, job.platform, plan, undos, job.arguments.by, job.now_ms, request)
    return dict(ROLLBACK_RESULT_JSON.plain(result))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--to", type=target, default=LAST, help="last, or a snapshot's id")
    arguments.add_argument("--by", required=True, help="who asked for it; recorded in the snapshot")
    arguments.add_argument("--request", default="", help="a name for what asked: done once, however often it is tried")
    arguments.add_argument("--asked-ms", type=int, help="when it was asked for, Unix ms; no later round is undone")
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

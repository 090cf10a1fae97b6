"""Undo published rounds: table and state as before them, in one commit, with everything appended since.

    spark-submit spark_jobs/rollback.py --config config --topic orders --to last --by anna

The work itself is in spark_jobs/round/undo/rollback.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from cleantail.home.process import run_process
from cleantail.lake.runs.rollback_results import ROLLBACK_RESULT_JSON
from spark_jobs.job import Document, Job, parser, run_job
from spark_jobs.round.undo.rollback import LAST, AskedRollback, target, undo_once


def _work(job: Job) -> Document:
    given = job.arguments
    asked = AskedRollback(given.to, given.by, given.request, given.asked_ms)
    begin_session = partial(job.begin_session, "rollback", workers=False)
    return dict(ROLLBACK_RESULT_JSON.plain(undo_once(asked, job.topic, job.platform, job.now_ms, begin_session)))


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

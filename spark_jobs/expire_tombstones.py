"""Expire the tombstones whose horizon has come: branch, check and publish of their own, also without new data.

    spark-submit spark_jobs/expire_tombstones.py --config config --topic orders --round '{"now_ms": …}'

The work itself is in spark_jobs/round/expire.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.rounds.checked_round import EXPIRY_REQUEST_JSON, ROUND_RESULT_JSON
from spark_jobs.job import Document, Job, parser, require_run_clock, run_job


def _work(job: Job) -> Document:
    request = EXPIRY_REQUEST_JSON.value(job.arguments.round, "--round")
    require_run_clock(job.arguments, job.platform, request.now_ms)
    session = job.begin_session("expire_tombstones")
    # imported while the session starts
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.judge import preload
    from spark_jobs.round.run import Run, expire_round

    preload()
    run = Run(TopicTable.of(session(), job.topic, job.platform), job.platform)
    result = expire_round(run, request.now_ms, request.partitions, request.fresh_from)
    return dict(ROUND_RESULT_JSON.plain(result))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--round", required=True, help='JSON: {"now_ms", "partitions", "fresh_from"}')
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

"""Reclaim space when it is due: rewrite files with many deleted records, merge small ones, expire snapshots.

    spark-submit spark_jobs/reclaim.py --config config --topic orders

The work itself is in spark_jobs/round/upkeep/reclaim.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.rounds.station_results import RECLAIM_RESULT_JSON
from spark_jobs.job import Document, Job, parser, run_job


def _work(job: Job) -> Document:
    session = job.begin_session("reclaim")
    # imported while the session starts
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.round.upkeep.reclaim import reclaim_topic

    result = reclaim_topic(TopicTable.of(session(), job.topic, job.platform), job.platform, job.now_ms)
    return dict(RECLAIM_RESULT_JSON.plain(result))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    return parser(__doc__).parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

"""Reclaim space when it is due: rewrite files with many deleted records, merge small ones, expire snapshots.

    spark-submit spark_jobs/reclaim.py --config config --topic orders

The work itself is in spark_jobs/round/upkeep/reclaim.py.
"""

from __future__ import annotations

import argparse
import sys

from cleantail.rounds.reclaim_results import RECLAIM_RESULT_JSON
from spark_jobs.iceberg.session import start_session
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Document, Job, parser, run_job
from spark_jobs.round.upkeep.reclaim import reclaim_topic


def _work(job: Job) -> Document:
    spark = start_session(job.platform, f"cleantail reclaim {job.topic.topic}")
    result = reclaim_topic(TopicTable.of(spark, job.topic, job.platform), job.platform, job.now_ms)
    return dict(RECLAIM_RESULT_JSON.plain(result))


def parse_args(argv: list[str]) -> argparse.Namespace:
    return parser(__doc__).parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

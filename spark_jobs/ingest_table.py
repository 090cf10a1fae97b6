"""Append what a topic's source table has and its own table has not, each record exactly once.

    spark-submit spark_jobs/ingest_table.py --config config --topic orders

The source is only read. The work itself is in spark_jobs/round/source_table/reading.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.rounds.station_results import TABLE_INGEST_RESULT_JSON
from spark_jobs.job import Document, Job, parser, run_job


def _work(job: Job) -> Document:
    session = job.begin_session("ingest")
    from spark_jobs.round.source_table.reading import read_source_table  # imported while the session starts

    result = read_source_table(session(), job.topic, job.platform, job.now_ms, lambda _: None)
    return dict(TABLE_INGEST_RESULT_JSON.plain(result))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    return parser(__doc__).parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

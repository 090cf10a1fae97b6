"""Convert deletes that a sink has written by values of columns into deletion vectors, or position deletes (version 2).

    spark-submit spark_jobs/convert_deletes.py --config config --topic orders

The work itself is in spark_jobs/conversion/convert.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.adopt.equality_deletes import CONVERTED_JSON
from cleantail.home.process import run_process
from spark_jobs.job import Document, Job, parser, run_job


def _work(job: Job) -> Document:
    session = job.begin_session("convert-deletes")
    from spark_jobs.conversion.convert import convert_deletes  # imported while the session starts

    return dict(CONVERTED_JSON.plain(convert_deletes(session(), job.platform, job.topic.table)))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    return parser(__doc__).parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

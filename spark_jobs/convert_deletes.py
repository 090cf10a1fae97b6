"""Convert deletes that a sink has written by values of columns into deletion vectors, or position deletes (version 2).

    spark-submit spark_jobs/convert_deletes.py --config config --topic orders

The work itself is in spark_jobs/conversion/convert.py.
"""

from __future__ import annotations

import argparse
import sys

from cleantail.adopt.equality_deletes import CONVERTED_JSON
from spark_jobs.conversion.convert import convert_deletes
from spark_jobs.iceberg.session import start_session
from spark_jobs.job import Document, Job, parser, run_job


def _work(job: Job) -> Document:
    spark = start_session(job.platform, f"cleantail convert-deletes {job.topic.topic}")
    return dict(CONVERTED_JSON.plain(convert_deletes(spark, job.platform, job.topic.table)))


def parse_args(argv: list[str]) -> argparse.Namespace:
    return parser(__doc__).parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

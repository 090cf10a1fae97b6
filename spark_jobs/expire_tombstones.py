"""Expire the tombstones whose horizon has come: branch, check and publish of their own, also without new data.

    spark-submit spark_jobs/expire_tombstones.py --config config --topic orders --round '{"now_ms": …}'

The work itself is in spark_jobs/round/expire.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from spark_jobs.iceberg.session import start_session
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Job, parser, require_clock, run_job
from spark_jobs.quality.expectations import preload
from spark_jobs.round.run import expire_round


def _work(job: Job) -> dict[str, Any]:
    given = json.loads(job.arguments.round)
    require_clock(job.platform, given["now_ms"])
    preload()
    spark = start_session(job.platform, f"cleantail expire_tombstones {job.topic.topic}")
    table = TopicTable.of(spark, job.topic, job.platform)
    fresh_from = {int(p): offset for p, offset in given.get("fresh_from", {}).items()}
    return expire_round(table, job.platform, given["now_ms"], given["partitions"], lambda _: None, fresh_from)


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--round", required=True, help='JSON: {"round", "now_ms", "partitions", "fresh_from"}')
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

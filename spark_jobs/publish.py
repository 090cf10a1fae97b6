"""Publish what passed its check: delete files, checkpoints, horizons and log ends in one commit on `main`.

    spark-submit spark_jobs/publish.py --config config --topic orders --told '{"round": …, "heads": […], "passed": […]}'

The work itself is in spark_jobs/round/publish_told.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from cleantail.lake.recorded_rounds import recorded_as_told
from cleantail.log.round_state import COMPACT, EXPIRE
from spark_jobs.iceberg.session import start_session
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Job, parser, run_job
from spark_jobs.round.publish_told import publish_told


def _work(job: Job) -> dict[str, Any]:
    told, kind = json.loads(job.arguments.told), job.arguments.kind
    told_round = recorded_as_told(job.topic, job.platform, told, kind)
    spark = start_session(job.platform, f"cleantail publish {job.topic.topic}")
    return publish_told(TopicTable.of(spark, job.topic, job.platform), job.platform, told_round)


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    told = (
        "JSON: the name of the round, the heads of its branches and the logs that passed, as its check handed them on"
    )
    arguments.add_argument("--told", required=True, help=told)
    kinds = (COMPACT, EXPIRE)
    arguments.add_argument("--kind", choices=kinds, default=COMPACT, help="what the round did (default: %(default)s)")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

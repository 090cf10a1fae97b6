"""Compact one work unit: find superseded records from key columns, write delete files onto a branch.

    spark-submit spark_jobs/compact.py --config config --topic orders --unit '{"round": …}'

The work itself is in spark_jobs/round/make.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from cleantail.lake.runs.planned_units import planned_unit
from spark_jobs.iceberg.session import start_session
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Job, parser, require_clock, run_job
from spark_jobs.round.make import compact_unit


def _work(job: Job) -> dict[str, Any]:
    told = json.loads(job.arguments.unit)
    require_clock(job.platform, int(told["now_ms"]))
    unit = planned_unit(job.topic, job.platform, told, int(time.time() * 1000))
    spark = start_session(job.platform, f"cleantail compact {job.topic.topic} unit {unit.unit}")
    return {"ok": True, **compact_unit(TopicTable.of(spark, job.topic, job.platform), job.platform, unit)}


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--unit", required=True, help="the work unit, JSON, as evaluate made it")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Compact one work unit: find superseded records from key columns, write delete files onto a branch.

    spark-submit spark_jobs/compact.py --config config --topic orders --unit '{"round": …}'

The work itself is in spark_jobs/round/make.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.lake.runs.planned_units import parsed_unit
from cleantail.rounds.checked_round import STAGED_UNIT_JSON
from spark_jobs.job import Document, Job, document, parser, require_run_clock, run_job


def _work(job: Job) -> Document:
    requested = parsed_unit(job.arguments.unit)
    require_run_clock(job.arguments, job.platform, requested.now_ms)
    session = job.begin_session("compact")
    from spark_jobs.round.make import compact_requested  # imported while the session starts

    staged = compact_requested(session, job.topic, job.platform, requested, int(time.time() * 1000))
    return document(STAGED_UNIT_JSON, staged)


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--unit", required=True, help="the work unit, JSON, as evaluate made it")
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

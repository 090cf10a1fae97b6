"""Compact one work unit: find superseded records from key columns, write delete files onto a branch.

    spark-submit spark_jobs/compact.py --config config --topic orders --unit '{"round": …}'

With `--check` the unit is the whole round, and is checked as spark_jobs/check_quality.py does it; with `--publish` what
passed is published as well. The work itself is in spark_jobs/round/make.py and spark_jobs/round/stations/.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.lake.recorded_rounds import is_on_main
from cleantail.lake.runs.planned_units import parsed_unit, planned_unit
from cleantail.rounds.checked.staged_units import STAGED_UNIT_JSON
from spark_jobs.job import Document, Job, parser, require_clock, run_job, with_publish


def _work(job: Job) -> Document:
    requested = parsed_unit(job.arguments.unit)
    require_clock(job.platform, requested.now_ms)
    session = job.begin_session("compact")
    check, publish = job.arguments.check, job.arguments.publish
    if check:
        from spark_jobs.quality.judge import preload

        preload()
    # a try after one that died past the commit: the table has nothing left to do of what was planned
    is_published = check and publish and is_on_main(job.topic, job.platform, requested.round)
    unit = requested if is_published else planned_unit(job.topic, job.platform, requested, int(time.time() * 1000))
    # imported while the session starts
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.round.make import compact_unit
    from spark_jobs.round.run import Run
    from spark_jobs.round.stations.check_station import compact_and_check, told_again

    run = Run(TopicTable.of(session(), job.topic, job.platform), job.platform)
    if is_published:
        return told_again(run, requested.round)
    if check:
        return compact_and_check(run, unit, publish)
    return {"ok": True, **STAGED_UNIT_JSON.plain(compact_unit(run.table, run.platform, unit))}


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--unit", required=True, help="the work unit, JSON, as evaluate made it")
    arguments.add_argument("--check", action="store_true", help="check the unit, too, which is the whole round")
    with_publish(arguments, "with --check: ")
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

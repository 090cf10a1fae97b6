"""Check a round on its branches before any reader sees it: Great Expectations on what was measured and on records.

    spark-submit spark_jobs/check_quality.py --config config --topic orders --round '{"round": …, "branches": […]}'

With `--publish` what passed is published right after its check, where nobody has to be asked first. The work itself is
in spark_jobs/round/stations/check_station.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.rounds.checked_round import CHECK_REQUEST_JSON, CHECKED_ROUND_JSON
from spark_jobs.job import Document, Job, document, parser, run_job


def _work(job: Job) -> Document:
    request = CHECK_REQUEST_JSON.value(job.arguments.round, "--round")
    session = job.begin_session("check_quality")
    # imported while the session starts
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.judge import preload
    from spark_jobs.round.run import Run
    from spark_jobs.round.stations.check_station import check_and_publish

    preload()
    run = Run(TopicTable.of(session(), job.topic, job.platform), job.platform)
    checked = check_and_publish(run, request, job.arguments.publish)
    return document(CHECKED_ROUND_JSON, checked)


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--round", required=True, help='JSON: {"round", "branches": those that compact has made}')
    arguments.add_argument(
        "--publish", action="store_true", help="publish what passed, too, unless the round waits for a person"
    )
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

"""Publish what passed its check: delete files, checkpoints, horizons and log ends in one commit on `main`.

    spark-submit spark_jobs/publish.py --config config --topic orders --round '{"round": …, "passed": […]}'

The work itself is in spark_jobs/round/stations/answered_rounds.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE
from cleantail.rounds.checked_round import ROUND_RESULT_JSON
from cleantail.rounds.recorded_checks import REFERENCE_JSON
from spark_jobs.job import Document, Job, parser, run_job


def _work(job: Job) -> Document:
    reference = REFERENCE_JSON.value(job.arguments.round, "--round")
    session = job.begin_session("publish", workers=False)
    from spark_jobs.round.stations.answered_rounds import publish_recorded  # imported while the session starts

    result = publish_recorded(session, job.topic, job.platform, reference, job.arguments.kind)
    return dict(ROUND_RESULT_JSON.plain(result))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    reference_help = (
        "JSON: the name of the round, the heads of its branches and the logs that passed, as its check handed them on"
    )
    arguments.add_argument("--round", required=True, help=reference_help)
    kinds = (COMPACT, EXPIRE, RECONCILE)
    arguments.add_argument("--kind", choices=kinds, default=COMPACT, help="what the round did (default: %(default)s)")
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

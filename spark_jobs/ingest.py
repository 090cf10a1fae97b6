"""Append files of kcat -J lines to a topic's table, each exactly once.

    spark-submit spark_jobs/ingest.py --config config --topic orders --file landing/orders-0001.jsonl.gz

The work itself is in spark_jobs/round/intake/ingest.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cleantail.config.source_paths import require_inside
from cleantail.home.process import run_process
from cleantail.rounds.station_results import INGEST_RESULT_JSON
from cleantail.sources.source_files import require_readable
from spark_jobs.job import Document, Job, parser, run_job


def _work(job: Job) -> Document:
    require_readable(job.arguments.file)
    files = [require_inside(file, job.platform) for file in job.arguments.file]
    session = job.begin_session("ingest")
    from spark_jobs.round.intake.ingest import ingest_files  # imported while the session starts

    encoding, any_topic = job.arguments.encoding or job.topic.source.encoding, job.arguments.any_topic
    result = ingest_files(session(), job.topic, job.platform, files, encoding, lambda _: None, any_topic)
    return dict(INGEST_RESULT_JSON.plain(result))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--file", type=Path, action="append", required=True)
    arguments.add_argument("--encoding", choices=["text", "base64"], help="of key, payload and header values")
    arguments.add_argument("--any-topic", action="store_true", help="take lines whatever topic they name")
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

"""Append what a topic has in Kafka and its table has not, each record exactly once.

    spark-submit spark_jobs/ingest_kafka.py --config config --topic orders --client-settings /tmp/x/client.json

The client's settings, with its login, come in a file that only its owner can read (one JSON object by librdkafka's
names). Without that file the job takes them from the environment (CLEANTAIL_KAFKA_…). The work itself is in
spark_jobs/round/kafka/reading.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.rounds.station_results import KAFKA_INGEST_RESULT_JSON
from spark_jobs.job import Document, Job, client_settings, parser, run_job, with_client_settings


def _work(job: Job) -> Document:
    settings = client_settings(job)
    session = job.begin_session("ingest")
    from spark_jobs.round.kafka.reading import read_topic  # imported while the session starts

    result = read_topic(session(), job.topic, job.platform, settings, job.now_ms, lambda _: None)
    return dict(KAFKA_INGEST_RESULT_JSON.plain(result))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    return with_client_settings(parser(__doc__)).parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

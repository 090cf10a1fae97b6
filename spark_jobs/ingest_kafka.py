"""Append what a topic has in Kafka and its table has not, each record exactly once.

    spark-submit spark_jobs/ingest_kafka.py --config config --topic orders --client-settings /tmp/x/client.json

The client's settings, with its login, come in a file that only its owner can read (one JSON object by librdkafka's
names); without it from the environment (CLEANTAIL_KAFKA_…). The work itself is in spark_jobs/round/kafka/reading.py.
"""

from __future__ import annotations

import argparse
import sys

from cleantail.rounds.ingest_results import KAFKA_INGEST_RESULT_JSON
from spark_jobs.iceberg.session import start_session
from spark_jobs.job import Document, Job, client_settings, parser, run_job, with_client_settings
from spark_jobs.round.kafka.reading import read_topic


def _work(job: Job) -> Document:
    settings = client_settings(job)
    spark = start_session(job.platform, f"cleantail ingest {job.topic.topic}")
    result = read_topic(spark, job.topic, job.platform, settings, job.now_ms, lambda _: None)
    return dict(KAFKA_INGEST_RESULT_JSON.plain(result))


def parse_args(argv: list[str]) -> argparse.Namespace:
    return with_client_settings(parser(__doc__)).parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

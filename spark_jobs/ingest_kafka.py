"""Append what a topic has in Kafka and its table has not, each record exactly once.

    spark-submit spark_jobs/ingest_kafka.py --config config --topic orders --client-settings /tmp/x/client.json

The client's settings, with its login, come in a file that only its owner can read (one JSON object by librdkafka's
names); without it from the environment (CLEANTAIL_KAFKA_…). The work itself is in spark_jobs/round/kafka/reading.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cleantail.errors import CleantailError
from cleantail.kafka.client_settings import settings_of_environment
from cleantail.rounds.ingest_results import KAFKA_INGEST_RESULT_JSON
from spark_jobs.iceberg.session import start_session
from spark_jobs.job import Document, Job, parser, run_job
from spark_jobs.round.kafka.reading import read_topic


def _client_settings(job: Job) -> Mapping[str, str]:
    """Returns those of the file, else of the environment. Raises CleantailError where there are none."""
    source = job.topic.source.kafka
    if source is None:
        raise CleantailError(f"topic {job.topic.topic} has no source.kafka in its YAML; nothing was appended")
    if job.arguments.client_settings is None:
        return settings_of_environment(source, os.environ)
    settings: Mapping[str, str] = json.loads(job.arguments.client_settings.read_text())
    return settings


def _work(job: Job) -> Document:
    settings = _client_settings(job)
    spark = start_session(job.platform, f"cleantail ingest {job.topic.topic}")
    result = read_topic(spark, job.topic, job.platform, settings, job.now_ms, lambda _: None)
    return dict(KAFKA_INGEST_RESULT_JSON.plain(result))


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--client-settings", type=Path, metavar="F", help="settings of the Kafka client, as JSON")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

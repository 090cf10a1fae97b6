"""Remove the keys that are alive in the table and gone at its source: a round of its own, checked and published.

    spark-submit spark_jobs/reconcile.py --config config --topic orders --client-settings /tmp/x/client.json

The client's settings come as those of ingest_kafka do. The work itself is in spark_jobs/round/reconcile.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cleantail.home.process import run_process
from cleantail.kafka.source_topic import SourceTopic
from cleantail.rounds.checked_round import ROUND_RESULT_JSON
from spark_jobs.job import Document, Job, client_settings, parser, run_job, with_client_settings


def _work(job: Job) -> Document:
    source = SourceTopic.of(job.topic, client_settings(job))
    session = job.begin_session("reconcile")
    # imported while the session starts
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.judge import preload
    from spark_jobs.round.run import Run, reconcile_round

    preload()
    run = Run(TopicTable.of(session(), job.topic, job.platform), job.platform)
    return dict(ROUND_RESULT_JSON.plain(reconcile_round(run, source, job.now_ms, wait=True)))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    return with_client_settings(parser(__doc__)).parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

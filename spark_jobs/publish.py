"""Publish what passed its check: delete files, checkpoints, horizons and log ends in one commit on `main`.

spark-submit spark_jobs/publish.py --config config --topic orders --told '{"round": …, "heads": […], "passed": […]}'
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from cleantail.lake.catalogs import open_catalog
from cleantail.lake.recorded_rounds import rows_of_round
from cleantail.lake.runs.evaluate import evaluate_topic
from cleantail.log.round_state import COMPACT, EXPIRE
from cleantail.rounds.answers import decided, read_answer
from cleantail.rounds.approval import Rejection
from cleantail.rounds.checked_rounds import recorded, require_as_told, require_open
from spark_jobs.iceberg.session import start_session
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Job, parser, run_job
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.publish import publish_approved
from spark_jobs.round.published_rounds import published_as


def _work(job: Job) -> dict[str, Any]:
    from spark_jobs.round.run import publish_or_start_over, write_back

    told, kind = json.loads(job.arguments.told), job.arguments.kind
    catalog = open_catalog(job.platform, os.environ)
    rows = rows_of_round(catalog, job.platform, job.topic.topic, str(told["round"]), kind)
    checked = recorded(job.topic, str(told["round"]), kind, rows)
    require_as_told(told, checked, kind, rows)
    answer = decided(job.topic, checked, read_answer(catalog, job.topic, kind))
    spark = start_session(job.platform, f"cleantail publish {job.topic.topic}")
    table = TopicTable.of(spark, job.topic, job.platform)
    if isinstance(answer, Rejection):
        return set_aside(table, job.platform, checked, answer)
    if published_as(table, checked) is None:
        require_open(checked, rows)
    if answer is None:
        published = publish_or_start_over(table, job.platform, checked)
    else:
        published = publish_approved(table, job.platform, checked, answer)
    write_back(table, evaluate_topic(job.topic, job.platform, now_ms=checked["units"][0]["now_ms"]))
    return published | {"red_before": [v["partition"] for v in checked["verdicts"] if not v["passed"]]}


def parse_args(argv: list[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    told = (
        "JSON: the name of the round, the heads of its branches and the logs that passed, as its check handed them on"
    )
    arguments.add_argument("--told", required=True, help=told)
    kinds = (COMPACT, EXPIRE)
    arguments.add_argument("--kind", choices=kinds, default=COMPACT, help="what the round did (default: %(default)s)")
    return arguments.parse_args(argv)


def main(argv: list[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

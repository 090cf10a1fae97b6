"""Deletes winning records from a round's branches, after compact and before check_quality: a defect made on purpose.

    spark-submit demo/sabotage.py --config demo/config --topic sensor-readings --branch ct_…_u0

What is on a branch below the clean point after compact is nothing but winners, so any of them will do.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from cleantail.config.topic_table import OFFSET
from cleantail.home.process import run_process
from cleantail.rounds.checked.staged_units import UNIT
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.job import Job, parser, run_job

EVERY = 10
SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
"""The beginning of a setting: with a name at its end it is an entry in the summary of the snapshots that the session
commits."""


def delete_where(table: TopicTable, branch: str, condition: str) -> None:
    """Deletes records on a branch by Iceberg's own DELETE; the table is `t` in the condition.

    The new head says, as the old one did, which work unit it is of: without that nothing would be checked.
    """
    # a term that no file's bounds decide: a file that goes as a whole would be noticed by another rule
    undecided = f"t.`{OFFSET}` % 1 = 0"
    unit = table.summary_of(branch).get(UNIT)
    if unit is not None:
        table.spark.conf.set(SNAPSHOT_PROPERTY + UNIT, unit)
    try:
        table.spark.sql(f"DELETE FROM {table.name}.`branch_{branch}` AS t WHERE ({condition}) AND {undecided}")
    finally:
        table.spark.conf.unset(SNAPSHOT_PROPERTY + UNIT)


def sabotage(table: TopicTable, branches: list[str]) -> dict[str, Any]:
    for branch in branches:
        delete_where(table, branch, f"t.`{OFFSET}` % {EVERY} = 0")
    return {"ok": True, "sabotaged": branches}


def _work(job: Job) -> dict[str, Any]:
    session = job.begin_session("sabotage", workers=False)
    return sabotage(TopicTable.of(session(), job.topic, job.platform), job.arguments.branch)


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--branch", action="append", required=True)
    return arguments.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    return run_job(parse_args(argv), _work)


if __name__ == "__main__":
    run_process(main)

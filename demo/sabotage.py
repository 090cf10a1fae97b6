"""Compact a work unit as the station compact does, and then delete winning records from its branch: a defect made
on purpose, as a mistake in the cleaner itself would be.

    spark-submit demo/sabotage.py compact --config demo/config --topic sensor-readings --unit '{…}' --result FILE

What is on a branch below the first dirty offset after compact is nothing but winners, so any of them will do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from cleantail.config.loading import find_topic
from cleantail.config.topic_table import OFFSET
from cleantail.home.process import run_process
from cleantail.rounds.checked_round import UNIT
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.run_station import main as run_station
from spark_jobs.run_station import parse_args

EVERY = 10
SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
"""The beginning of a setting: with a name at its end it is an entry in the summary of the snapshots that the session
commits."""


def delete_where(table: TopicTable, branch: str, condition: str) -> None:
    """Delete records on a branch by Iceberg's own DELETE; the table is `t` in the condition.

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


def main(argv: Sequence[str]) -> int:
    code = run_station(argv)
    if code == 0:
        arguments = parse_args(argv)
        branch = json.loads(Path(arguments.result).read_text())["branch"]
        topic = find_topic(arguments.topic, arguments.config)
        table = TopicTable.of(SparkSession.active(), topic)
        delete_where(table, branch, f"t.`{OFFSET}` % {EVERY} = 0")
    return code


if __name__ == "__main__":
    run_process(main)

"""Compact a work unit like the station `compact`, and then delete winning records from its branch. This simulates a
defect of the cleaner.

    spark-submit demo/sabotage.py compact --config demo/config --topic sensor-readings --unit '{…}' --result FILE

After `compact`, all records on a branch below the new first dirty offset are winners. So any of them can be deleted.
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
"""Prefix of a setting. With a name appended, its value becomes an entry in the summary of the session's snapshots."""


def delete_where(table: TopicTable, branch: str, condition: str) -> None:
    """Delete records on a branch by Iceberg's own DELETE. The table is `t` in the condition.

    The summary of the new head also names the work unit. Otherwise that head would not be checked.
    """
    # the term cannot be decided by bounds of files: another rule detects a whole removed file
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

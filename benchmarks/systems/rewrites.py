"""Spark without Cleantail: rewrite the table by a window, or delete and merge by Iceberg's own statements.

Spark has its default settings and twice Cleantail's memory. The three ways have no checks, no checkpoint and no
horizons. All leave the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.harness.dataset import build, dropped
from benchmarks.harness.fresh_process import Stopwatch, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.report import Times
from benchmarks.harness.shape import Shape

if TYPE_CHECKING:
    from spark_jobs.iceberg.tables import TopicTable

BRANCH = "bench"
TARGET = "bench_rewritten"
COLUMNS = "`partition`, `offset`, `timestamp`, timestamp_type, `key`, `value`, headers, tombstone"
WINDOW = "row_number() OVER (PARTITION BY `partition`, `key` ORDER BY `offset` DESC)"

DELETE, MERGE, REWRITE = "delete", "merge", "rewrite"


def measure_rewrite(lake: Lake, shape: Shape, repetitions: int, statement: str) -> Times:
    """Return the seconds of one of the three ways: one cold repetition, and `repetitions` warm ones."""
    build(lake, shape)
    table, watch, work = (
        lake.table(shape.topic),
        Stopwatch(),
        {REWRITE: _rewrite, DELETE: _delete, MERGE: _merge}[statement],
    )
    for number in range(repetitions + 1):
        say(f"Spark's {statement}, {number} of {repetitions}: {shape.text}")
        left = work(lake, table, watch)
        require_records(left, shape.survivors, f"Spark's {statement}")
    return Times.of(watch.seconds[statement])


def _rewrite(lake: Lake, table: TopicTable, watch: Stopwatch) -> int:
    """Do the usual nightly job: write the last record of each key, by a window, to a table of the same layout. Return
    the number of records that are left."""
    lake.write_topic(TARGET, {})
    target = lake.table(TARGET)
    dropped(target)
    target.ensure()
    last = f"SELECT *, {WINDOW} AS number FROM {table.name}"
    with watch(REWRITE):
        table.spark.sql(f"INSERT OVERWRITE {target.name} SELECT {COLUMNS} FROM ({last}) WHERE number = 1")
    left = target.spark.table(target.name).count()
    dropped(target)
    return left


def _delete(lake: Lake, table: TopicTable, watch: Stopwatch) -> int:
    """Write deletion vectors, as Cleantail does, by the plan that Spark chooses. Return the number of records left."""
    later = f"SELECT 1 FROM {table.name} u WHERE u.`partition` = t.`partition` AND u.`key` = t.`key`"
    statement = "DELETE FROM {at} AS t WHERE EXISTS (" + later + " AND u.`offset` > t.`offset`)"
    return _on_branch(table, watch, DELETE, statement.format)


def _merge(lake: Lake, table: TopicTable, watch: Stopwatch) -> int:
    """Merge with the winners as the source, so that a record matches at most one. Return the number of records left."""
    keys = f"SELECT `partition`, `key`, max(`offset`) AS last FROM {table.name} GROUP BY `partition`, `key`"
    superseded = "m.`partition` = t.`partition` AND m.`key` = t.`key` AND m.last > t.`offset`"
    statement = "MERGE INTO {at} AS t USING (" + keys + ") AS m ON " + superseded + " WHEN MATCHED THEN DELETE"
    return _on_branch(table, watch, MERGE, statement.format)


def _on_branch(table: TopicTable, watch: Stopwatch, name: str, statement: Callable[..., str]) -> int:
    """Run the statement on a branch at the table's head, and drop the branch. Return the number of records that the
    branch had."""
    table.create_branch(BRANCH, int(table.load().currentSnapshot().snapshotId()))
    with watch(name):
        table.spark.sql(statement(at=f"{table.name}.branch_{BRANCH}"))
    left = table.at_branch(BRANCH).count()
    table.drop_branches([BRANCH])
    return left

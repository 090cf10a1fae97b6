"""DuckDB over the table's own Parquet files. It writes the winners into new zstd files, by a join or by a window."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.fresh_process import Stopwatch, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.report import Times
from benchmarks.harness.shape import Shape

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

JOIN, WINDOW = "join", "window"
PLANS = {
    JOIN: (
        "SELECT s.* FROM records s SEMI JOIN "
        '(SELECT partition, key, max("offset") AS last FROM records GROUP BY partition, key) m '
        'ON s.partition = m.partition AND s.key = m.key AND s."offset" = m.last'
    ),
    WINDOW: 'SELECT * FROM records QUALIFY row_number() OVER (PARTITION BY partition, key ORDER BY "offset" DESC) = 1',
}


def measure_duckdb(lake: Lake, shape: Shape, repetitions: int, plan: str) -> Times:
    """Return the seconds of one plan: a cold repetition, and `repetitions` warm ones. The data set must exist.

    Writes one file for each log, without an order, which is the least work that could replace the files.
    """
    import duckdb

    # 1. DuckDB over the table's files
    connection, watch, out = duckdb.connect(), Stopwatch(), lake.directory / "duck"
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"SET threads = {lake.cores}")
    connection.execute(f"SET temp_directory = '{lake.directory / 'duck-spill'}'")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute(f"CREATE VIEW records AS SELECT * FROM read_parquet({data_files(lake, shape)!r})")
    # 2. the repetitions of the plan
    for number in range(repetitions + 1):
        say(f"DuckDB's {plan}, {number} of {repetitions}: {shape.text}")
        shutil.rmtree(out, ignore_errors=True)
        with watch(plan):
            _copy(connection, PLANS[plan], out)
        require_records(_count(connection, out), shape.survivors, f"DuckDB's {plan}")
    shutil.rmtree(out)
    return Times.of(watch.seconds[plan])


def _copy(connection: DuckDBPyConnection, query: str, out: Path) -> None:
    options = "FORMAT parquet, COMPRESSION zstd, PARTITION_BY (partition), WRITE_PARTITION_COLUMNS true"
    connection.execute(f"COPY ({query}) TO '{out}' ({options})")


def _count(connection: DuckDBPyConnection, out: Path) -> int:
    row = connection.execute(f"SELECT count(*) FROM read_parquet('{out}/**/*.parquet')").fetchone()
    return int(row[0]) if row else 0


def data_files(lake: Lake, shape: Shape) -> list[str]:
    """Return the paths of the table's data files, log by log in offset order."""
    from cleantail.lake.evaluate import read_facts

    facts = read_facts(lake.topic(shape.topic))
    files = [f for p in facts.partitions for f in facts.files_of(p)] if facts else []
    return [f.path.removeprefix("file:") for f in sorted(files, key=lambda f: (f.partition, f.lower_offset))]

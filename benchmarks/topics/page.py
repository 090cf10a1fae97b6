"""The page of many small topics in groups: its first load and loads after it, search, one topic's page, metrics."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

from benchmarks.harness.fresh_process import in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, median
from benchmarks.topics.commands import timed
from benchmarks.topics.small_tables import APPENDS, GROUPS, PARTITIONS, RECORDS, make_small_tables
from cleantail.watch.metadata_cache import FOLDER

COLUMNS = (
    Column("what is requested", "text"),
    Column("no table was read before, s"),
    Column("the server was started again, s"),
    Column("of the processor, s"),
)
WORKS = {
    "first": "page of all topics, right after the menu's icon",
    "complete": "the same, until it has every table",
    "all topics": "page of all topics, again",
    "search": "page of one topic's name searched, again",
    "one topic": "page of one topic, again",
    "metrics": "metrics of all topics, again",
}


def run(options: Options) -> Table:
    # 1. the topics
    lake = replace(options.lake, directory=options.lake.directory / f"page_{options.topics}")
    in_fresh_process(make_small_tables, lake, [f"topic_{number:04d}" for number in range(options.topics)])
    # 2. servers without cached summaries of tables, and servers with them
    cold, warm = [], []
    for _ in range(options.repetitions):
        shutil.rmtree(lake.home / FOLDER, ignore_errors=True)
        cold.append(_load(lake, "no table was read before"))
        warm.append(_load(lake, "started again"))
    # 3. the table
    rows: list[tuple[Value, ...]] = [
        (
            text,
            median([each[name] for each in cold]),
            median([each[name] for each in warm]),
            median([each["cpu"][name] for each in warm]) if name in warm[0]["cpu"] else None,
        )
        for name, text in WORKS.items()
    ]
    memory = max(each["memory_bytes"] for each in [*cold, *warm]) >> 20
    notes = (
        f"Topics of {PARTITIONS} partitions in {GROUPS} groups, each with {APPENDS} appends of {RECORDS} records a "
        "partition.",
        "Airflow's own API server runs in a fresh process, with its login and its database, without a network. The "
        "last column is the processor's time of the restarted server; the two before it are clock times.",
        f"The server's memory was at most {memory} MiB.",
        f"Medians of {options.repetitions} servers. Of repeated loads, each server counts with its median.",
    )
    title = f"The page of {options.topics} small topics"
    return Table("page", title, COLUMNS, tuple(rows), notes)


def _load(lake: Lake, what: str) -> dict[str, Any]:
    say(f"a server: {what}")
    result, home = lake.directory / "pages.json", lake.directory / "airflow"
    home.mkdir(exist_ok=True)
    environment = {"CLEANTAIL_CONFIG": str(lake.config), "AIRFLOW_HOME": str(home)}
    timed(lake, ["-m", "benchmarks.topics.page_load", str(result)], environment)
    loaded: dict[str, Any] = json.loads(result.read_text())
    return loaded

"""One run of a topic's DAG with the real jobs on real Spark, in a process of its own: that of a test may not have
Airflow's provider for OpenLineage, since with it each of Airflow's processes would start slower.

    PYTHONPATH=FOLDER_WITH_THE_PROVIDER:… python -m tests.dags.whole_run FOLDER

It leaves in FOLDER the configuration, the home, what the jobs printed, what the provider sent, and what Airflow's
database has at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cleantail.lake.spark_settings import SMALL_RUN
from tests.airflow_environment import ROOT, airflow_db  # the environment first: nothing imports airflow before it
from tests.airflow_site import Site
from tests.quick_airflow_api import build_what_is_asked_for

KEYS = 7
RECORDS = 40  # per partition
HOUR_MS = 3_600_000
IN_KEY, IN_VALUE, IN_HEADER, TOO_LONG = "KEYMARK", "VALUEMARK", "HEADERMARK", "KEYMARK-that-is-too-long"
QUICK = {**SMALL_RUN, "spark.sql.shuffle.partitions": 1}
"""Short applications, those before the plan too: less to warm up."""
CHECKS = [
    {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 9}},
    {
        "expectation": "expect_column_most_common_value_to_be_in_set",
        "kwargs": {"column": "value", "value_set": ["x"]},
        "severity": "warning",
    },
]
ALERTS = [
    {"type": "file", "path": "alerts/all.jsonl"},
    {"type": "file", "path": "alerts/with-values.jsonl", "values": True},
    {"type": "mail", "to": ["ops@lake.example"]},
]


def main(folder: Path) -> None:
    # 1. where things are, before Airflow reads its configuration
    transport = {"type": "file", "log_file_path": str(folder / "events"), "append": True}
    os.environ |= {
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "60",
        "CLEANTAIL_CONFIG": str(folder / "config"),
        "CLEANTAIL_HOME": str(folder / "home"),
        "CLEANTAIL_JARS": os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")),
    }
    # 2. the run
    site = written_site(folder)
    next(airflow_db.__wrapped__())  # type: ignore[attr-defined]  # the fixture as a function
    build_what_is_asked_for()
    start_stats()
    keep_what_is_printed(folder / "printed")
    finished = site.dag("orders").test(run_conf={"now_ms": 1_700_000_000_000 + HOUR_MS})
    # 3. what Airflow has of it
    seen = {
        "states": {i.task_id: str(i.state) for i in finished.get_task_instances()},
        "published": published_to(finished.run_id),
        "incidents": load_incidents("orders"),
        "rows": rows_of_airflow(),
    }
    (folder / "airflow.json").write_text(json.dumps(seen))


def written_site(folder: Path) -> Site:
    """A topic of two partitions with one file to land; partition 1 breaks the topic's own check."""
    site = Site(folder / "config", folder / "home")
    (site.config / "topics").mkdir(parents=True)
    (site.home / "landing").mkdir(parents=True)
    lines = [record(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
    lines[RECORDS]["key"] = TOO_LONG
    (site.home / "landing" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    defaults = {"platform": {"allow_clock": True, "spark": {"master": "local[2]", "conf": QUICK}}}
    (site.config / "defaults.yaml").write_text(json.dumps(defaults))
    site.topic("orders", source={"path": "landing/*.jsonl"}, checks=CHECKS, alerts=ALERTS)
    return site


def record(partition: int, offset: int) -> dict[str, Any]:
    """Keys repeat; every eleventh record is a tombstone."""
    payload = None if offset % 11 == 10 else f"{IN_VALUE}{offset}"
    return {
        "partition": partition,
        "offset": offset,
        "ts": 1_700_000_000_000 + offset,
        "key": f"{IN_KEY}{offset % KEYS}",
        "payload": payload,
        "headers": ["h", IN_HEADER],
    }


def start_stats() -> None:
    """As a task of a worker does."""
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


def keep_what_is_printed(file: Path) -> None:
    """Keeps what the jobs print, line by line as Airflow's hook puts it into the log of the task."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    real = SparkSubmitHook._process_spark_submit_log

    def keeping(hook: Any, printed_lines: Iterator[Any]) -> None:
        def kept() -> Iterator[Any]:
            with file.open("a") as keeps:
                for line in printed_lines:
                    keeps.write(str(line))
                    yield line

        real(hook, kept())

    SparkSubmitHook._process_spark_submit_log = keeping  # type: ignore[method-assign, assignment]


def load_incidents(topic: str) -> list[tuple[str, str]]:
    """Event and subject of what the topic's Airflow variable says is open."""
    from airflow.models.variable import Variable

    from cleantail.watch.incidents import parse_book
    from cleantail_airflow.alerts.channels import variable_name

    return sorted((event.value, subject) for event, subject in parse_book(Variable.get(variable_name(topic))).incidents)


def published_to(run_id: str) -> list[dict[str, int]]:
    """The first dirty offsets that the run's events of the topic's asset say."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        return [event.extra["checkpoints"] for event in session.query(AssetEvent).filter_by(source_run_id=run_id)]


def rows_of_airflow() -> dict[str, str]:
    """Every row of every table of Airflow's database as text."""
    from airflow.utils.session import create_session
    from sqlalchemy import MetaData, select

    with create_session() as session:
        everything = MetaData()
        everything.reflect(session.get_bind())
        return {
            table.name: "\n".join(str(tuple(row)) for row in session.execute(select(table)))
            for table in everything.tables.values()
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]))

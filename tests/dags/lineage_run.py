"""One run of a topic's DAG in a process of its own, in which Airflow's provider for OpenLineage is at hand.

    PYTHONPATH=FOLDER_WITH_THE_PROVIDER:… python -m tests.dags.lineage_run FOLDER

It writes what the provider sends to FOLDER/events, and prints the states of the tasks as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cleantail.lake.catalog_settings import SMALL_RUN
from tests.airflow_environment import ROOT, airflow_db  # the environment first: nothing imports airflow before it
from tests.airflow_site import Site

RECORDS = 40
QUICK = {**SMALL_RUN, "spark.sql.shuffle.partitions": 1}
CHECKS = [{"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 9}}]


def main(folder: Path) -> None:
    # 1. where events go, before Airflow reads its configuration
    transport = {"type": "file", "log_file_path": str(folder / "events"), "append": True}
    os.environ |= {
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "60",
        "CLEANTAIL_CONFIG": str(folder / "config"),
        "CLEANTAIL_HOME": str(folder / "home"),
        "CLEANTAIL_JARS": os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")),
    }
    # 2. a topic of two partitions, of which one breaks the topic's own check
    site = Site(folder / "config", folder / "home")
    (site.config / "topics").mkdir(parents=True)
    (site.home / "landing").mkdir(parents=True)
    lines = [record(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
    lines[RECORDS]["key"] = "KEYMARK-that-is-too-long"
    (site.home / "landing" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spark = {"master": "local[2]", "conf": QUICK}
    defaults = {"platform": {"allow_clock": True, "cleaner": {"log.cleaner.backoff.ms": 0}, "spark": spark}}
    (site.config / "defaults.yaml").write_text(json.dumps(defaults))
    site.topic("orders", source={"path": "landing/*.jsonl"}, checks=CHECKS)
    # 3. the run
    next(airflow_db.__wrapped__())  # type: ignore[attr-defined]  # the fixture as a function
    finished = site.dag("orders").test(run_conf={"now_ms": 1_700_003_600_000})
    states = {i.task_id: str(i.state) for i in finished.get_task_instances()}
    print(json.dumps(states))


def record(partition: int, offset: int) -> dict[str, object]:
    where = {"partition": partition, "offset": offset, "ts": 1_700_000_000_000 + offset}
    return {**where, "key": f"KEYMARK{offset % 7}", "payload": f"VALUEMARK{offset}", "headers": []}


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Runs of a group's DAG with the real job on real Spark: many topics in one application, each failure its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cleantail.lake.catalog_settings import SMALL_RUN
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, forget_incidents

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
ALERTS = [{"type": "file", "path": "alerts/all.jsonl"}]
LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}


def line(offset: int, key: str, value: str | None, partition: int = 0) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "ts": 1_700_000_000_000 + offset, "key": key, "payload": value}


@pytest.fixture
def group(site: Site, monkeypatch: pytest.MonkeyPatch, airflow_db: Path) -> Site:
    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    conf = {**SMALL_RUN, "spark.sql.shuffle.partitions": 1}
    defaults = {
        "platform": {
            "allow_clock": True,
            "spark": {"master": "local[2]", "conf": conf},
            "cleaner": {"log.cleaner.backoff.ms": 0},
        },
        "topic": {"group": "small", "alerts": ALERTS},
    }
    (site.config / "defaults.yaml").write_text(json.dumps(defaults))
    (site.config / "groups").mkdir()
    (site.config / "groups" / "small.yaml").write_text(json.dumps({"group": "small"}))
    return site


def land(site: Site, name: str, *lines: dict[str, Any], **yaml: Any) -> None:
    """A topic of the group with one file of these lines."""
    forget_incidents(name)
    folder = site.home / "landing" / name
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    site.topic(name, source={"path": f"landing/{name}/*.jsonl"}, **yaml)


def states(finished: Any) -> dict[tuple[str, int], str]:
    return {(ti.task_id, ti.map_index): str(ti.state) for ti in finished.get_task_instances()}


def offsets(site: Site, name: str) -> list[int]:
    from cleantail.api import open_topic

    return [record.offset for record in open_topic(name, config=site.config).read()]


def test_all_stations_of_a_group_in_one_application(group: Site) -> None:
    land(group, "one", line(0, "a", "1"), line(1, "a", "2"), line(2, "b", "3"))
    land(group, "two", *(line(n, "k", str(n)) for n in range(4)))
    land(group, "red", line(0, "1", "x"), line(1, "1", "y"), checks=[LETTERS])
    dag = group.dag("small")
    group.topic("typo", config={"segment.sm": 1})
    finished = dag.test()
    found = states(finished)
    print(found)
    assert found

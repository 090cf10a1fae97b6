"""Runs of a group's DAG with the real job on real Spark: many topics in one application, each failure its own.

They are of `make test-deep`. Of `make test` are the same runs with jobs in one process (tests/jobs/run/test_three_doors.py)
and the real application of a topic's DAG (test_whole_run.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.spark_settings import SMALL_RUN
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, forget_incidents

pytestmark = [pytest.mark.deep, pytest.mark.integration, pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
ALERTS = [{"type": "file", "path": "alerts/all.jsonl"}]
LETTERS = {"expectation": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^[a-z]+$"}}

UNRECLAIMED = {"segment.ms": 1, "cleantail.reclaim.deleted.ratio": 1.0}
"""Of a topic whose deleted records stay in its files."""


def line(offset: int, key: str, value: str | None, partition: int = 0) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "ts": 1_700_000_000_000 + offset, "key": key, "payload": value}


@pytest.fixture
def group(site: Site, monkeypatch: pytest.MonkeyPatch, airflow_db: Path) -> Site:
    monkeypatch.setenv("CLEANTAIL_JARS", os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars")))
    conf = {**SMALL_RUN, "spark.sql.shuffle.partitions": 1}
    defaults = {
        "platform": {
            "allow_clock": True,
            "cleaner": {"log.cleaner.backoff.ms": 3_600_000},  # a red log rests, however slow the machine is
            "spark": {"master": "local[2]", "conf": conf},
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


def states(finished: Any) -> dict[str, list[str]]:
    """Task -> the states of its instances, by map index."""
    found: dict[str, list[tuple[int, str]]] = {}
    for ti in finished.get_task_instances():
        found.setdefault(ti.task_id, []).append((ti.map_index, str(ti.state)))
    return {task: [state for _, state in sorted(instances)] for task, instances in found.items()}


def offsets(site: Site, name: str) -> list[int]:
    platform = load_platform(site.config)
    table = load_table(open_catalog(platform), find_topic(name, site.config))
    assert table is not None
    return sorted(table.scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist())


def asset_events(finished: Any) -> dict[str, list[tuple[str, list[int]]]]:
    """Asset -> operation and partitions of its events in this run."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    events: dict[str, list[tuple[str, list[int]]]] = {}
    with create_session() as session:
        for event in session.query(AssetEvent).filter_by(source_run_id=finished.run_id, source_dag_id="small"):
            events.setdefault(event.asset.uri, []).append((event.extra["operation"], event.extra["partitions"]))
    return events


def told(site: Site) -> list[tuple[str, str]]:
    """Topic and event of the alerts so far."""
    file = site.home / "alerts" / "all.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(alert["topic"], alert["event"]) for alert in found]


def test_a_group_does_what_is_due_in_one_application_and_each_failure_is_its_own(group: Site) -> None:
    """A topic alone and a rollback: tests/jobs/run/test_three_doors.py."""
    land(group, "one", line(0, "a", "1"), line(1, "a", "2"), line(2, "b", "3"), config=UNRECLAIMED)
    land(group, "two", *(line(n, "k", str(n)) for n in range(4)), config=UNRECLAIMED)
    land(group, "red", line(0, "1", "x"), line(1, "1", "y"), checks=[LETTERS])
    # 1. all of them: the pack, and the one that shows what is broken
    dag = group.dag("small")
    group.topic("typo", config={"segment.sm": 1})
    finished = dag.test()
    found = states(finished)
    assert str(finished.state) == "failed"
    assert (found["evaluate"], found["run_pack"]) == (["success"], ["success", "failed"])
    stations = ("ingest", "compact", "check_quality", "publish", "expire_tombstones", "reconcile")
    assert [found[s][0] for s in stations] == ["success"] * 2 + ["failed", "success"] + ["skipped"] * 2
    assert (offsets(group, "one"), offsets(group, "two"), offsets(group, "red")) == ([1, 2], [3], [0, 1])
    # 2. what others hear of it: each failure is its own
    assert asset_events(finished) == {f"x-cleantail://{name}": [("compact", [0])] for name in ("one", "two")}
    assert sorted(told(group)) == [("group small", "run_failed"), ("red", "check_failed")]
    # 3. the next run: nothing is due, and a log in quarantine is looked at by those who tell, as long as it is there
    (group.config / "topics" / "typo.yaml").unlink()
    idle = states(dag.test())
    assert {task for task, of_task in idle.items() if of_task != ["skipped"]} == {"evaluate", "alert"}

"""What runs add to Airflow's database, and that `airflow db clean`, as docs/operations.md says, takes it away again.

`pytest -s tests/dags/test_database_growth.py` prints rows and bytes of a run, by table. The jobs are
stubs: rows of Airflow do not depend on what a job reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_site import FixedPlan, Site, StubbedJobs, forget_incidents, plan, verdict
from tests.dags.test_group_dag import due, group, outcome  # noqa: F401

pytestmark = pytest.mark.airflow
RUNS = 1
OF_RUNS = {"dag_run", "task_instance", "xcom"}
"""Tables to which each run adds rows. Airflow keeps `rendered_task_instance_fields` of the last 30 runs only."""


def tables_of(database: Path) -> dict[str, tuple[int, int]]:
    """Table -> its rows, and its bytes with those of its indexes."""
    with sqlite3.connect(database) as connection:
        named = connection.execute("SELECT name, tbl_name FROM sqlite_schema").fetchall()
        of_table = dict(named)
        sizes: dict[str, int] = {}
        for name, used in connection.execute("SELECT name, sum(payload) FROM dbstat GROUP BY name"):
            table = of_table.get(name, "")
            sizes[table] = sizes.get(table, 0) + (used or 0)
        tables = [name for name, table in named if name == table]
        return {n: (connection.execute(f'SELECT count(*) FROM "{n}"').fetchone()[0], sizes.get(n, 0)) for n in tables}


def growth(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Table -> rows and bytes more, for tables with more rows."""
    more = {n: (after[n][0] - before[n][0], after[n][1] - before[n][1]) for n in after}
    return {name: grown for name, grown in more.items() if grown[0] > 0}


def measured(run: Callable[[], Any], database: Path, kind: str) -> None:
    from airflow.utils.db_cleanup import run_cleanup

    run()  # the first one also makes what all runs share
    before = tables_of(database)
    for _ in range(RUNS):
        assert str(run().state) == "success"
    grown = growth(before, tables_of(database))
    for name, (rows, size) in sorted(grown.items(), key=lambda entry: -entry[1][1]):
        print(f"{kind}: {name}: {rows / RUNS:.1f} rows, {size / RUNS:.0f} bytes a run")
    assert set(grown) >= OF_RUNS
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    run_cleanup(clean_before_timestamp=tomorrow, skip_archive=True, confirm=False)
    after = tables_of(database)
    # Airflow keeps the last run of each DAG, with what belongs to it
    left = {name: after[name][0] - before[name][0] for name in grown if after[name][0] > before[name][0]}
    assert not left


def test_the_runs_of_a_topic_leave_the_database_by_airflows_own_command(
    site: Site, jobs: StubbedJobs, airflow_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_incidents("orders")
    found = plan(units=1, reclaim=True)
    monkeypatch.setattr("cleantail.lake.evaluate.evaluate_topic", lambda *_, **__: FixedPlan(found))
    site.without_pauses()
    site.topic("orders")
    jobs.answer("check_quality", {"ok": True, "verdicts": [verdict(0)]})
    jobs.answer("publish", {"ok": True, "published": [0], "snapshot_id": 8, "checkpoints": {"0": 9}})
    measured(lambda: site.dag("orders").test(), airflow_db, "a topic")


@pytest.mark.deep
def test_the_runs_of_a_group_leave_it_too(
    group: Site,  # noqa: F811
    jobs: StubbedJobs,
    airflow_db: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = plan(units=1)
    monkeypatch.setattr("cleantail.lake.evaluate.evaluate_topic", lambda *_, **__: FixedPlan(found))
    names = [f"topic-{number:02d}" for number in range(18)]
    for name in names:
        group.topic(name, group="pairs")
    due(group, monkeypatch, "left", "right", *names)
    jobs.answer("run_pack", {"ok": True, "topics": [outcome(name) for name in ("left", "right", *names)]})
    measured(lambda: group.dag("pairs").test(), airflow_db, "a group of 20 topics")

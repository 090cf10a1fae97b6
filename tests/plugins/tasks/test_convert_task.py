"""When the task that converts a sink's deletes has something to do: told without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from cleantail.lake.repairable_deletes import ForeignDeletes
from cleantail_airflow.tasks.topic_dag import ConvertDeletesOperator
from tests.airflow_site import Site


def context(**params: str) -> Any:
    dag = SimpleNamespace(params=["rollback_to"])
    return {"params": params, "dag": dag, "dag_run": SimpleNamespace(conf=params)}


@pytest.fixture
def operator(site: Site, monkeypatch: pytest.MonkeyPatch) -> ConvertDeletesOperator:
    site.topic("orders", table="sinks.orders", columns={"partition": "p", "offset": "o", "key": "k"})
    monkeypatch.setattr("cleantail.intake.load_table", lambda *_: "the table")
    return ConvertDeletesOperator(task_id="convert_deletes", topic="orders", config_dir=str(site.config))


@pytest.mark.parametrize(
    ("deletes", "runs"),
    [
        pytest.param(ForeignDeletes(), False, id="none"),
        pytest.param(ForeignDeletes(1, 5, 0), True, id="by values"),
        pytest.param(ForeignDeletes(0, 0, 1), True, id="of several data files"),
    ],
)
def test_the_job_is_started_only_where_there_are_deletes_to_convert(
    operator: ConvertDeletesOperator, monkeypatch: pytest.MonkeyPatch, deletes: ForeignDeletes, runs: bool
) -> None:
    monkeypatch.setattr("cleantail.intake.foreign_deletes", lambda _: deletes)
    if runs:
        assert operator.arguments(context()) == []
        return
    with pytest.raises(AirflowSkipException, match="the table has no equality deletes to convert"):
        operator.arguments(context())


def test_a_run_that_is_a_rollback_converts_nothing(operator: ConvertDeletesOperator) -> None:
    with pytest.raises(AirflowSkipException, match="the run is a rollback"):
        operator.arguments(context(rollback_to="last"))

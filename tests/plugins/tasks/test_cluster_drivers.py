"""Drivers on a cluster (deploy-mode cluster): told what to do, and heard, through a store that both reach.

spark-submit is a stub here: no cluster that takes Python applications in cluster mode runs in these tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from cleantail.rounds.evidence_row import VARIABLES
from cleantail_airflow.groups.group_dag import RunPackOperator
from tests.airflow_site import Site, StubbedJobs
from tests.plugins.tasks.test_spark_operator import FakeTask, Publish, execute


@pytest.fixture
def store(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that is a folder, and a connection to YARN in cluster mode."""
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    set_up(site, exchange=f"file://{tmp_path}/exchange", jobs="local:///opt/cleantail/spark_jobs")
    site.topic("orders")
    return tmp_path / "exchange"


def set_up(site: Site, **spark: Any) -> None:
    platform = {"spark": {"insecure": True, **spark}}
    (site.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))


def publish(site: Site, *arguments: str) -> Publish:
    operator = Publish(task_id="publish", topic="orders", config_dir=str(site.config))
    operator.given = list(arguments)
    return operator


def test_what_a_driver_is_to_do_and_what_it_reports_go_through_the_store(
    site: Site, jobs: StubbedJobs, store: Path
) -> None:
    jobs.answer("publish", {"ok": True, "published": [0]})
    assert execute(publish(site, "--round", json.dumps({"round": "r"}))) == {"ok": True, "published": [0]}
    (call,) = jobs.calls
    assert call["arguments"][call["arguments"].index("--round") + 1] == '{"round": "r"}'
    told = [a for a in call["argv"] if "file://" in a]
    assert len(told) == 2 and all(str(store) in a for a in told)


def test_a_driver_elsewhere_gets_no_place_and_no_variable_of_this_machine(
    site: Site, jobs: StubbedJobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)  # a DAG test in this process leaves them there
    jobs.answer("publish", {"ok": True})
    operator = publish(site)
    execute(operator)
    (call,) = jobs.calls
    told = " ".join(call["submit"])
    assert operator.application == "local:///opt/cleantail/spark_jobs/run_station.py"
    assert "--deploy-mode cluster" in told and "appMasterEnv" not in told
    assert "extraClassPath" not in told and "bindAddress" not in told and "log4j2" not in told


def test_a_driver_elsewhere_knows_which_task_it_works_for(
    site: Site, jobs: StubbedJobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.answer("publish", {"ok": True})
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "orders")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    execute(publish(site))
    told = " ".join(jobs.calls[0]["submit"])
    for prefix in ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv."):
        assert f"{prefix}AIRFLOW_CTX_DAG_ID=orders" in told and f"{prefix}AIRFLOW_CTX_DAG_RUN_ID=manual__1" in told


def test_the_report_of_an_earlier_driver_is_not_used_for_the_next_one(
    site: Site, jobs: StubbedJobs, store: Path
) -> None:
    jobs.answer("publish", {"ok": True, "published": [0]})
    execute(publish(site))
    (jobs.place / "publish.json").write_text(json.dumps({"exit": 1, "output": "died"}))  # it reports nothing
    with pytest.raises(AirflowException, match="publish crashed"):
        execute(publish(site))


def test_the_exit_code_that_a_driver_reports_says_whether_to_try_again(
    site: Site, jobs: StubbedJobs, store: Path
) -> None:
    (jobs.place / "publish.json").write_text(json.dumps({"exit": 2, "result": {"ok": False, "error": "wrong"}}))
    operator = publish(site)
    with pytest.raises(AirflowFailException, match="wrong"):
        execute(operator)
    assert operator.exit_code == 2


def test_each_task_has_a_folder_of_its_own_whatever_its_try(site: Site, jobs: StubbedJobs, store: Path) -> None:
    jobs.answer("publish", {"ok": True})
    other = FakeTask()
    other.map_index = 1
    for task in (FakeTask(), FakeTask(), other):
        execute(publish(site), task)
    assert len(list(store.iterdir())) == 2


def test_without_a_store_a_driver_on_a_cluster_is_not_started(site: Site, jobs: StubbedJobs, store: Path) -> None:
    set_up(site)
    with pytest.raises(AirflowFailException, match="platform.spark.exchange names no folder"):
        execute(publish(site))
    assert jobs.calls == []


def test_a_pack_hands_a_driver_elsewhere_no_file_of_this_machine_with_a_login(
    site: Site, jobs: StubbedJobs, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a topic's own DAG, it is in the driver's environment."""
    login = {"bootstrap.servers": "127.0.0.1:9092", "sasl.password": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_K", json.dumps({"conn_type": "kafka", "extra": login}))
    (site.config / "groups").mkdir()
    (site.config / "groups" / "pairs.yaml").write_text("group: pairs\n")
    site.topic("orders", group="pairs", source={"kafka": {"connection": "kafka_k"}})
    ti = FakeTask({"now_ms": 1, "reason": "1 topic is due"})
    ti.try_number = 2  # type: ignore[attr-defined]
    pack = {"label": "orders", "topics": ["orders"]}
    operator = RunPackOperator(task_id="run_pack", group="pairs", config_dir=str(site.config), pack=pack)
    operator.clients = store / "clients.json"
    arguments = operator.arguments({"ti": ti})  # type: ignore[typeddict-item]
    assert arguments[:1] == ["--request"] and "--client-settings" not in arguments
    assert not operator.clients.exists()

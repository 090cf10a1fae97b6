"""The DAG `cleantail_doctor`, and `cleantail doctor` in a process beside a real Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cleantail import doctor
from cleantail_airflow import doctor_dag
from cleantail_airflow.airflow_exceptions import AirflowFailException
from tests.airflow_environment import ROOT
from tests.airflow_site import Site
from tests.alert_sinks import Hook, hook  # noqa: F401
from tests.plugins.page.test_page import dag_row


@pytest.fixture(autouse=True)
def private_home(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.home.chmod(0o700)
    monkeypatch.setattr(doctor, "ANSWERED_WITHIN_MS", 1000)


def found(findings: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{each['part']} {each['of']}".strip(): each for each in findings}


def told(site: Site, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """What `cleantail doctor` answers in a process of its own, with this Airflow."""
    command = [sys.executable, "-m", "cleantail_cli", "doctor", "--json", *arguments, "--config", str(site.config)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "plugins")))}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.returncode, found(json.loads(done.stdout)["checks"])


def test_the_name_and_the_docs_of_the_dag_have_the_broken_files(site: Site) -> None:
    site.topic("orders")
    sound = doctor_dag(site.config)
    assert (sound.dag_id, sound.dag_display_name) == ("cleantail_doctor", "cleantail_doctor")
    site.broken_topic("broken")
    dag = doctor_dag(site.config)
    assert (dag.dag_id, dag.dag_display_name) == (sound.dag_id, "cleantail_doctor: 1 error in the configuration")
    assert f"- `{site.config / 'topics' / 'broken.yaml'}:1: config.segment.sm`" in str(dag.doc_md)
    (site.config / "defaults.yaml").write_text("platform: {dag_prefix: lake-, x: 1}\n")
    assert doctor_dag(site.config).dag_id == "lake-cleantail_doctor"


def run_of(site: Site, send_test: bool) -> tuple[dict[str, dict[str, Any]], str]:
    """Executes the task as Airflow does: its findings, and the text of its error."""
    ti = Mock()
    try:
        result = doctor_dag(site.config).get_task("doctor").execute({"params": {"send_test": send_test}, "ti": ti})
    except AirflowFailException as e:
        ((key, pushed), _) = ti.xcom_push.call_args
        assert key == "return_value"
        return found(pushed), str(e)
    return found(result), ""


def test_the_task_returns_every_finding_and_fails_if_one_is_wrong(
    site: Site,
    hook: Hook,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"http://127.0.0.1:{hook.port}/services/SECRET"
    monkeypatch.setenv("AIRFLOW_CONN_CLEANTAIL_HOOK", json.dumps({"conn_type": "http", "host": url}))
    site.topic("orders", alerts=[{"type": "webhook", "conn_id": "cleantail_hook"}])
    findings, error = run_of(site, send_test=False)
    assert (error, hook.posts, findings["alerts orders"]["state"]) == ("", [], "ok"), findings
    assert run_of(site, send_test=True)[1] == ""
    ((path, posted),) = hook.posts
    assert (path, posted["state"], posted["headline"]) == ("/services/SECRET", "test", "a test message")

    hook.status = 403
    site.topic("pay", source={"kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    findings, error = run_of(site, send_test=True)
    assert error == "something is wrong: kafka pay, alerts orders. The log has the next steps"
    assert "the test message was not taken" in findings["alerts orders"]["text"]
    assert findings["spark master"]["text"] == "local[1]: Spark runs in the driver's process"
    assert findings["plugin"]["state"] == findings["dags"]["state"] == "not examined"
    assert "SECRET" not in json.dumps(findings)


def test_the_command_reads_connections_and_dags_of_airflow(site: Site, airflow_db: Path, monkeypatch: Any) -> None:
    site.topic("orders", alerts=[{"type": "slack", "conn_id": "cleantail_nowhere"}])
    site.topic("users")
    site.topic("idle")
    dag_row("orders")
    dag_row("idle", is_paused=True)
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    code, findings = told(site)
    wrong = {name: each for name, each in findings.items() if each["state"] == "wrong"}
    assert code == 2
    assert wrong.keys() == {"alerts orders", "plugin", "dag users", "dag idle", "spark master"}
    assert wrong["alerts orders"]["text"] == "Airflow has no connection cleantail_nowhere"
    assert wrong["dag users"]["text"] == "Airflow has no DAG users"
    assert wrong["dag idle"]["next_step"] == "airflow dags unpause idle"
    assert findings["dag orders"]["state"] == findings["pool cleantail_spark"]["state"] == "ok"
    assert "Airflow has no connection spark_default. Make one" in wrong["spark master"]["text"]


@pytest.mark.parametrize(
    ("status", "kind", "state", "text"),
    [
        pytest.param(401, "application/json", "ok", "has the pages", id="behind the login"),
        pytest.param(200, "text/plain; version=0.0.4", "ok", "without a login", id="every user is an admin"),
        pytest.param(200, "text/html; charset=utf-8", "wrong", "has not loaded the plugin", id="Airflow's own page"),
        pytest.param(404, "application/json", "wrong", "has not loaded the plugin", id="unknown path"),
    ],
)
def test_the_answer_of_the_api_server_says_whether_it_has_the_plugin(
    site: Site, monkeypatch: pytest.MonkeyPatch, status: int, kind: str, state: str, text: str
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/cleantail/metrics" else 500)
            self.send_header("Content-Type", kind)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    site.topic("orders")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"http://127.0.0.1:{server.server_address[1]}")
        findings, _ = run_of(site, send_test=False)
        server.shutdown()
    assert (findings["plugin"]["state"], text in findings["plugin"]["text"]) == (state, True), findings["plugin"]

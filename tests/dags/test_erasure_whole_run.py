"""Keys that a real Airflow erases: no byte of them is left in the warehouse, the home, Airflow's database or its logs."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cleantail.lake.spark_settings import SMALL_RUN
from embedded_airflow import supervisor
from tests.airflow_environment import ROOT
from tests.airflow_site import Site, free_port
from tests.markers import traces

pytestmark = [pytest.mark.deep, pytest.mark.integration, pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
KEY, VALUE = 'Zq7 mark-of-"ä" key', "Vq8 mark-of-<ö> value"
SECRETS = {name: base64.b64encode(os.urandom(32)).decode() for name in ("ERASURE", "CERTIFICATE")}
DAG_FILE = """
import os
from cleantail_airflow import erasure_dag

erasures = erasure_dag(os.environ["CLEANTAIL_CONFIG"])
"""
WITHIN_S = 300


@dataclass(frozen=True)
class Running:
    """An Airflow that runs with its scheduler, on a home of its own."""

    site: Site
    port: int
    env: dict[str, str]

    def cleantail(self, *argv: object, code: int = 0) -> str:
        command = [sys.executable, "-m", "cleantail_cli", *map(str, argv), "--config", str(self.site.config)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def airflow(self, command: str) -> None:
        script = [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), command, "--port", str(self.port)]
        done = subprocess.run(script, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self, path: str, data: dict[str, Any] | None = None, token: str = "") -> Any:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        body = json.dumps(data).encode() if data is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def run(self, dag: str) -> str:
        """Trigger a run of the DAG, and return its state at its end."""
        password = json.loads((self.site.home / "airflow" / "passwords.json").read_text())["admin"]
        token = self.ask("/auth/token", {"username": "admin", "password": password})["access_token"]

        def dags() -> list[str]:
            return [each["dag_id"] for each in self.ask("/api/v2/dags", token=token)["dags"]]

        waited(lambda: dag in dags())
        runs = f"/api/v2/dags/{dag}/dagRuns"
        run = self.ask(runs, {"logical_date": None, "conf": {}}, token)["dag_run_id"]
        path = f"{runs}/{run}"
        waited(lambda: self.ask(path, token=token)["state"] in ("success", "failed"))
        return str(self.ask(path, token=token)["state"])

    @property
    def files(self) -> list[Path]:
        """Everything below the home but the files that have landed, which belong to their owner."""
        return [f for f in self.site.home.rglob("*") if f.is_file() and "landing" not in f.parts]


def waited(holds: Any) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < WITHIN_S, "nothing happened"
        time.sleep(0.5)


@pytest.fixture
def running(site: Site, tmp_path: Path) -> Iterator[Running]:
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "erasures.py").write_text(DAG_FILE)
    defaults = {"platform": {"spark": {"master": "local[2]", "conf": SMALL_RUN}}}
    (site.config / "defaults.yaml").write_text(json.dumps(defaults))
    own = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    jars = os.environ.get("CLEANTAIL_JARS", str(ROOT / ".cleantail" / "jars"))
    secrets = {f"CLEANTAIL_{name}_KEY": text for name, text in SECRETS.items()}
    env = {**own, **secrets, "CLEANTAIL_JARS": jars, "AIRFLOW__CORE__DAGS_FOLDER": str(dags)}
    try:
        yield Running(site, free_port(), env)
    finally:
        supervisor.down(site.home / "airflow")


def lines() -> Iterator[dict[str, Any]]:
    for number in range(24):
        key, value = (KEY, f"{VALUE} {number}") if number % 3 == 0 else (f"k{number % 5}", f"v{number}")
        place = {"partition": number % 2, "offset": number // 2, "ts": 1_700_000_000_000 + number}
        yield {**place, "key": key, "payload": None if number == 21 else value}


def test_no_byte_of_a_key_or_its_values_is_left_anywhere(running: Running) -> None:
    site = running.site
    short = {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "key", "max_value": 9}}
    settings = {"segment.ms": 1, "compaction.strategy": "timestamp", "cleantail.tombstone.lateness.ms": 10**12}
    site.topic("orders", config=settings, checks=[short], schedule=None, source={"path": "landing/*.jsonl"})
    landing, requests = site.home / "landing", site.home / "erasures" / "orders"
    landing.mkdir()
    requests.mkdir(parents=True)
    (landing / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines()))
    running.cleantail("ingest", "orders", "--file", landing / "a.jsonl")
    # 1. a round that the check of its keys blocks: its branch stays, and Data Docs and evidence report it
    running.cleantail("compact", "orders", code=1)
    running.airflow("up")
    (requests / "broken.json").write_text(json.dumps({"keys": [KEY], "requested_by": 7}))
    (requests / "one.json").write_text(json.dumps({"keys": [KEY], "requested_by": "ticket 4711"}))
    before = traces(running.files, KEY, VALUE)
    assert {Path(file).relative_to(site.home).parts[0] for file in before} == {"warehouse", "erasures"}
    assert {marker for found in before.values() for marker in found} == {KEY, VALUE}
    # 2. the erasure; a file that is no request fails the run, and its reason is in the log
    assert running.run("cleantail_erasures") == "failed"
    [request] = json.loads(running.cleantail("erasures", "--json"))["requests"]
    assert request["state"] == "certified"
    logs = "".join(file.read_text(errors="replace") for file in (site.home / "airflow" / "logs").rglob("*.log"))
    assert "broken.json is not a request" in logs
    (requests / "broken.json").unlink()
    assert running.run("cleantail_erasures") == "success"  # nothing is open: the task is skipped
    running.airflow("down")
    assert traces(running.files, KEY, VALUE) == {}
    assert any(file.name == "airflow.db" for file in running.files)

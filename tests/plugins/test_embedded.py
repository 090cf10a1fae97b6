"""The embedded Airflow: its settings, its secrets, and one start and stop for real."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cleantail.config.topic_group import GroupLimits
from cleantail.errors import CleantailError
from cleantail_airflow.installation import ROOT
from embedded_airflow import supervisor as embedded
from embedded_airflow.home import SETTINGS_FILE, airflow_home, environment, make_secrets, read_settings
from tests.airflow_site import Site, free_port

PLACES = {"CLEANTAIL_ROOT": "/repository", "AIRFLOW_HOME": "/state/airflow", "CLEANTAIL_PORT": "8081"}


def test_every_setting_is_filled_in_and_nothing_listens_beyond_this_machine() -> None:
    settings = read_settings(SETTINGS_FILE, PLACES)
    assert not [value for value in settings.values() if "${" in value]
    assert settings["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert settings["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:8081"
    assert settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "False"


def test_a_task_waits_for_the_answer_as_long_as_the_events_of_the_largest_pack_take() -> None:
    """Airflow takes 50 ms for each event on a busy machine, as was seen with 250 topics. A task that asks again meanwhile
    is red."""
    settings = read_settings(SETTINGS_FILE, PLACES)
    rules = GroupLimits.model_fields["pack_max_topics"].metadata
    most = next(rule.le for rule in rules if hasattr(rule, "le"))
    assert most >= 1000 and float(settings["AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT"]) >= most * 0.05


def test_the_environment_names_places_and_holds_no_secret(site: Site) -> None:
    home = airflow_home(os.environ)
    make_secrets(home)
    env = environment(8081, {"CLEANTAIL_CONFIG": str(site.config), "CLEANTAIL_HOME": str(site.home)})
    assert env["AIRFLOW_HOME"] == str(home) == str(site.home / "airflow")
    assert env["CLEANTAIL_CONFIG"] == str(site.config)
    secrets = [file.read_text() for file in home.iterdir()]
    assert len(secrets) == 4
    assert not [value for value in env.values() for secret in secrets if secret in value]


def test_what_the_environment_already_sets_wins_but_never_the_place_of_the_state(site: Site) -> None:
    own = {"AIRFLOW__CORE__PARALLELISM": "16", "AIRFLOW_HOME": "/elsewhere", **os.environ}
    env = environment(8081, {**own, "AIRFLOW__CORE__PARALLELISM": "16"})
    assert env["AIRFLOW__CORE__PARALLELISM"] == "16"
    assert env["AIRFLOW_HOME"] == str(site.home / "airflow")


def test_the_spark_connection_is_the_master_of_the_platform(site: Site) -> None:
    (site.config / "defaults.yaml").write_text("platform: {spark: {master: 'spark://m:7077', insecure: true}}\n")
    env = environment(8081, {"CLEANTAIL_CONFIG": str(site.config), "CLEANTAIL_HOME": str(site.home)})
    assert json.loads(env["AIRFLOW_CONN_SPARK_DEFAULT"]) == {"conn_type": "spark", "host": "spark://m:7077"}


def test_secrets_are_made_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    home = tmp_path / "airflow"
    make_secrets(home)
    first = {file.name: file.read_text() for file in home.iterdir()}
    make_secrets(home)
    assert first == {file.name: file.read_text() for file in home.iterdir()}
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert len(first["jwt_secret"]) >= 64
    assert list(json.loads(first["passwords.json"])) == ["admin"]


def test_a_number_that_now_belongs_to_another_process_is_not_taken_for_airflow(tmp_path: Path) -> None:
    note = {"pid": os.getpid(), "port": 8080, "started": psutil.Process().create_time() - 100}
    (tmp_path / "up.json").write_text(json.dumps(note))
    assert embedded.running(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": 999999999, "started": 1}'])
def test_an_unreadable_note_means_that_airflow_is_not_running(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    assert embedded.running(tmp_path) is None


def test_down_without_up_prints_that_airflow_is_not_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embedded.down(tmp_path)
    assert capsys.readouterr().out == "Airflow is not running\n"


def test_a_port_in_use_is_refused_before_anything_starts(site: Site, unused_home: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CleantailError, match=f"port {port}: .* choose another port with --port, or with make up"):
            embedded.up(unused_home, port)
    assert not unused_home.exists()


@pytest.fixture
def unused_home(site: Site) -> Path:
    return site.home / "airflow"


def test_a_broken_configuration_is_said_in_one_line(site: Site) -> None:
    (site.config / "defaults.yaml").write_text("platfrom: {}\n")
    done = command("env")
    assert (done.returncode, done.stdout) == (2, "")
    assert "defaults.yaml:1: platfrom" in done.stderr
    assert "Traceback" not in done.stderr


def command(*argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), *argv],
        capture_output=True,
        text=True,
        env=clean_environment() | variables,
        check=False,
    )


def clean_environment() -> dict[str, str]:
    """As a person's shell: without what the tests set for their own Airflow, and without the venv on PATH. Its first
    variable is one that Airflow's processes get again, which once left them without titles."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    return {"CLEANTAIL_HOME": own.pop("CLEANTAIL_HOME"), **own, "PATH": "/usr/bin:/bin"}


@pytest.fixture
def port(site: Site) -> Iterator[int]:
    found = free_port()
    yield found
    embedded.down(site.home / "airflow")


def ask(port: int, path: str, token: str | None = None, data: dict[str, Any] | None = None) -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = json.dumps(data).encode() if data else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def parsed(port: int, token: str) -> tuple[list[str], list[dict[str, Any]]]:
    """(DAGs, import errors) once the dag-processor has been through all files."""
    import time

    for _ in range(120):
        dags = [dag["dag_id"] for dag in ask(port, "/api/v2/dags", token)["dags"]]
        errors = ask(port, "/api/v2/importErrors", token)["import_errors"]
        if len(dags) > 1 and errors:
            return dags, errors
        time.sleep(0.5)
    pytest.fail("the dag-processor found nothing in a minute")


A_TASK = """
import os, sys
from embedded_airflow import components

components.preload()
components.preload_for_tasks()
known = set(sys.modules)
number = os.fork()
if number == 0:
    import pyarrow
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("forked", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=sys.argv[1])
    catalog.create_namespace("forked")
    rows = pyarrow.table({"number": range(100_000)})
    table = catalog.create_table("forked.table", rows.schema)
    table.append(rows)
    assert table.scan(row_filter="number >= 50000").to_arrow().num_rows == 50_000
    new = [name for name in sys.modules.keys() - known if name.startswith(("pyiceberg.catalog", "pyarrow.lib", "pandas"))]
    print("ended well", new, flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))
"""


@pytest.mark.integration
@pytest.mark.airflow
def test_a_task_that_is_forked_reads_and_writes_tables_by_libraries_that_were_imported_before(
    site: Site, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", A_TASK, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ended well []"]), done.stderr


@pytest.mark.deep
@pytest.mark.airflow
def test_a_database_that_cannot_be_prepared_ends_the_start_and_is_named(site: Site, port: int) -> None:
    nowhere = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{site.home}/nowhere/airflow.db"}
    started = command("up", "--port", str(port), **nowhere)
    assert started.returncode == 2
    assert "Airflow did not become healthy" in started.stderr
    assert "unable to open database file" in started.stderr
    assert started.stderr.endswith("Airflow's database could not be prepared\n")
    assert embedded.running(site.home / "airflow") is None


@pytest.mark.integration
@pytest.mark.airflow
def test_up_serves_the_dags_of_good_topics_and_the_error_of_the_broken_one_and_down_leaves_nothing(
    site: Site, port: int
) -> None:
    site.topic("orders", schedule=None)
    site.broken_topic("broken")
    started = command("up", "--port", str(port))
    assert started.returncode == 0, started.stderr
    assert f"http://127.0.0.1:{port}" in started.stdout
    password = json.loads((site.home / "airflow" / "passwords.json").read_text())["admin"]
    assert password not in started.stdout + (site.home / "airflow" / "airflow.log").read_text()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(port, "/api/v2/dags")
    token = ask(port, "/auth/token", data={"username": "admin", "password": password})["access_token"]
    dags, errors = parsed(port, token)
    assert dags == ["cleantail_doctor", "orders"]
    assert [error["filename"] for error in errors] == ["cleantail_broken_topics.py"]
    assert "broken.yaml:1: config.segment.sm" in errors[0]["stack_trace"]
    assert ask(port, "/api/v2/pools/cleantail_spark", token)["slots"] == 1
    leader = psutil.Process(json.loads((site.home / "airflow" / "up.json").read_text())["pid"])
    family = [leader, *leader.children(recursive=True)]
    titles = [" ".join(member.cmdline()) for member in leader.children()]
    assert sorted(title.split()[1] for title in titles) == ["api_server", "dag-processor", "scheduler", "triggerer"]
    assert command("down").stdout == "Airflow has stopped\n"
    assert not [member for member in family if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]

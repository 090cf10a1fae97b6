"""A real Airflow over three topics, and a real browser. Runs where CLEANTAIL_BROWSER names a Chromium: `make test-browser`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from demo.airflow_api import AirflowApi
from demo.home import free_port

ROOT = Path(__file__).resolve().parents[2]
BROWSER = "CLEANTAIL_BROWSER"
SCREENSHOTS = "CLEANTAIL_SCREENSHOTS"
ADMIN, VIEWER = "admin", "vera"
RUN_WITHIN_S, LANDS_WITHIN_S = 300, 60
PASSWORDS = {ADMIN: "of-the-admin", VIEWER: "of-the-viewer"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get(BROWSER):
        if BROWSER in os.environ:
            raise pytest.UsageError(f"{BROWSER} is empty: it names no Chromium")
        skip = pytest.mark.skip(reason=f"{BROWSER} names no Chromium: see `make test-browser`")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(skip)


@dataclass
class Office:
    """The platform as somebody runs it: configuration, command line, Airflow, what its alerts said."""

    place: Path
    port: int
    posted: list[dict[str, Any]] = field(default_factory=list)
    api: AirflowApi | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_", "CLEANTAIL_"))}
        jars = os.environ.get("CLEANTAIL_JARS") or str(ROOT / ".cleantail" / "jars")
        return own | {
            "CLEANTAIL_HOME": str(self.place / "home"),
            "CLEANTAIL_CONFIG": str(self.place / "config"),
            "CLEANTAIL_JARS": jars,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin,{VIEWER}:viewer",
        }

    def topic(self, name: str, **more: Any) -> None:
        folder = self.place / "config" / "topics"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"topic": name, "schedule": None, **more}
        settings["config"] = {"segment.ms": 1} | settings.get("config", {})
        (folder / f"{name}.yaml").write_text(json.dumps(settings))

    def cleantail(self, *arguments: str) -> None:
        argv = [sys.executable, "-m", "cleantail_cli", *arguments, "--config", str(self.place / "config")]
        subprocess.run(argv, cwd=ROOT, env=self.environment, check=True, capture_output=True)

    def ingest(self, topic: str, records: list[dict[str, Any]]) -> None:
        file = self.place / f"{topic}-{time.time_ns()}.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        self.cleantail("ingest", topic, "--file", str(file))

    def airflow(self, *arguments: str) -> None:
        argv = [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), *arguments]
        subprocess.run(argv, env=self.environment, check=True, capture_output=True)

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        assert self.api is not None
        found: list[dict[str, Any]] = self.api._call(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
        return found

    def wait(self, dag_id: str, done: Callable[[dict[str, Any]], Any], within_s: float = RUN_WITHIN_S) -> Any:
        """What `done` makes of the DAG's newest run, once it is something."""
        assert self.api is not None
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            runs = self.api._call(f"/api/v2/dags/{dag_id}/dagRuns?order_by=-run_after&limit=1")["dag_runs"]
            if runs and (found := done(runs[0])):
                return found
            time.sleep(1)
        raise AssertionError(f"{dag_id}: not so within {within_s} s; its newest run is {runs}")


def record(partition: int, offset: int, key: str, value: str | None = "v" * 200) -> dict[str, Any]:
    at = int(time.time() * 1000) - 3_600_000 + offset
    return {"partition": partition, "offset": offset, "tstype": "create", "ts": at, "key": key, "payload": value}


@pytest.fixture(scope="session")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """payments: all of it dirty, one key that its check does not allow. orders: its rounds wait for a person.
    customers: clean but for a little."""
    made = Office(tmp_path_factory.mktemp("office"), free_port())
    sink = _alert_sink(made)
    alerts = [{"type": "webhook", "conn_id": "cleantail_sink", "endpoint": "alerts"}]
    made.topic("payments", alerts=alerts, checks=[no_digits_first()])
    made.topic("orders", publish="approve")
    made.topic("customers")
    payments = [record(p, i, f"k{i % 20:02}") for p in range(2) for i in range(300)]
    made.ingest("payments", [*payments, record(1, 300, "9 is no letter")])
    made.ingest("orders", [record(0, i, f"order-{i % 40}") for i in range(200)])
    made.cleantail("compact", "orders", "--force", "--approve")
    made.ingest("orders", [record(0, 200 + i, f"order-{i % 25}") for i in range(100)])
    made.ingest("customers", [record(0, i, f"c{i}") for i in range(100)])
    made.cleantail("compact", "customers", "--force")
    made.ingest("customers", [record(0, 100 + i, f"c{i}") for i in range(10)])
    home = made.place / "home" / "airflow"
    home.mkdir(parents=True, exist_ok=True)
    (home / "passwords.json").write_text(json.dumps(PASSWORDS))
    os.environ["AIRFLOW_CONN_CLEANTAIL_SINK"] = f"http://127.0.0.1:{sink.server_port}"
    try:
        _up(made, sink.server_port)
        yield made
    finally:
        made.airflow("down")
        sink.shutdown()


def no_digits_first() -> dict[str, Any]:
    kwargs = {"column": "key", "regex": "^[a-z]"}
    return {"expectation": "expect_column_values_to_match_regex", "kwargs": kwargs, "severity": "critical"}


def _up(office: Office, sink_port: int) -> None:
    argv = [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), "up", "--port", str(office.port)]
    environment = office.environment | {"AIRFLOW_CONN_CLEANTAIL_SINK": f"http://127.0.0.1:{sink_port}"}
    subprocess.run(argv, env=environment, check=True, capture_output=True)
    office.api = AirflowApi(office.port, PASSWORDS[ADMIN])
    for name in ("payments", "orders", "customers"):
        office.api.wait_for_dag(name, lambda: False)


def _alert_sink(office: Office) -> HTTPServer:
    class Sink(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            office.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Sink)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as made:
        yield made.chromium.launch(executable_path=os.environ[BROWSER], args=["--no-sandbox"])


@pytest.fixture
def visit(chromium: Any, office: Office) -> Iterator[Callable[..., Any]]:
    """A page of somebody who has logged in by the form, or of nobody."""
    contexts = []

    def as_user(user: str | None, width: int = 1400, dark: bool = False) -> Any:
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        if user:
            page.goto(office.address)
            page.fill("input[name=username]", user)
            page.fill("input[name=password]", PASSWORDS[user])
            page.keyboard.press("Enter")
            page.wait_for_selector("text=Dags", timeout=30_000)
        return page

    yield as_user
    for context in contexts:
        context.close()


def shoot(page: Any, name: str) -> None:
    """A screenshot, where somebody wants to look at it."""
    if folder := os.environ.get(SCREENSHOTS):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))

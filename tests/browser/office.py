"""The platform as people run it, for tests and pictures: a configuration, the command line, Airflow, its alerts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from confluent_kafka import Producer

from demo.airflow_api import AirflowApi
from differential.kafka_client import KafkaClient

ROOT = Path(__file__).resolve().parents[2]
ADMIN, VIEWER, OF_ONE_TOPIC = "admin", "vera", "theo"
PASSWORDS = {ADMIN: "of-the-admin", VIEWER: "of-the-viewer", OF_ONE_TOPIC: "of-one-topic"}
GROUP, THE_ONE_TOPIC = "small", "refunds"
IN_KAFKA, UNREAD = "shipments", 60
"""The topic that is read from a broker, and how many of its records no run has read."""
ALERTS = [{"type": "webhook", "conn_id": "cleantail_sink", "endpoint": "alerts"}]
NO_ANSWER_MS = 20_000
ONE_PROCESS = (
    "import json, sys; from cleantail_cli import main; print(json.dumps([main(a) for a in json.load(sys.stdin)]))"
)
RUN_WITHIN_S = 1200
"""Maximum wait for a run, and for anything that Airflow does by itself. A busy machine needs minutes for a run."""


@dataclass
class Office:
    """One platform in a folder of its own, with Airflow on a port of its own."""

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
        users = [f"{ADMIN}:admin", f"{VIEWER}:viewer", f"{OF_ONE_TOPIC}:user"]
        return own | {
            "CLEANTAIL_HOME": str(self.place / "home"),
            "CLEANTAIL_CONFIG": str(self.place / "config"),
            "CLEANTAIL_JARS": os.environ.get("CLEANTAIL_JARS") or str(ROOT / ".cleantail" / "jars"),
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.browser.rights.RightsOnOneTopic",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(users),
        }

    def topic(self, name: str, **more: Any) -> None:
        """Write the YAML of a topic that has no schedule and no active segment."""
        settings = {"topic": name} | ({} if "group" in more else {"schedule": None}) | more
        settings["config"] = {"segment.ms": 1} | settings.get("config", {})
        self.write(f"topics/{name}", settings)

    def write(self, name: str, settings: dict[str, Any]) -> None:
        file = self.place / "config" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))

    def lines(self, topic: str, records: Iterable[dict[str, Any]]) -> str:
        """Return the path of a file with these records."""
        file = self.place / "home" / "landing" / topic / f"{time.time_ns()}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        return str(file)

    def cleantail(self, *commands: tuple[str, ...]) -> list[int]:
        """Run the commands in one process, which starts Spark once, and return their exit codes."""
        config = ["--config", str(self.place / "config")]
        argvs = json.dumps([[*command, *config] for command in commands])
        argv = [sys.executable, "-c", ONE_PROCESS]
        done = subprocess.run(argv, cwd=ROOT, env=self.environment, input=argvs, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        codes: list[int] = json.loads(done.stdout.splitlines()[-1])
        return codes

    def airflow(self, *arguments: str, **variables: str) -> None:
        argv = [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), *arguments]
        done = subprocess.run(argv, env=self.environment | variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def open(self, sink: HTTPServer) -> None:
        """Start Airflow, and wait until it has the DAGs."""
        home = self.place / "home" / "airflow"
        home.mkdir(parents=True, exist_ok=True)
        (home / "passwords.json").write_text(json.dumps(PASSWORDS))
        (home / "passwords.json").chmod(0o600)
        self.airflow("up", "--port", str(self.port), AIRFLOW_CONN_CLEANTAIL_SINK=f"http://127.0.0.1:{sink.server_port}")
        self.api = AirflowApi(self.port, PASSWORDS[ADMIN])
        for name in ("payments", "orders", "customers", "invoices", IN_KAFKA, GROUP):
            self.until(lambda name=name: self.has_dag(name), f"Airflow has no DAG {name}")

    def get(self, path: str) -> dict[str, Any]:
        assert self.api is not None
        return self.api._call(f"/api/v2/{path}")

    def has_dag(self, dag_id: str) -> bool:
        try:
            return bool(self.get(f"dags/{dag_id}"))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the DAG's runs, newest first."""
        found: list[dict[str, Any]] = self.get(f"dags/{dag_id}/dagRuns?order_by=-run_after")["dag_runs"]
        return found

    def wait(self, dag_id: str, done: Callable[[dict[str, Any]], Any]) -> Any:
        """Wait until `done` returns something for the DAG's newest run, and return that."""
        return self.until(
            lambda: (runs := self.runs(dag_id)) and done(runs[0]), f"{dag_id}: its run does not get there"
        )

    def reparsed(self, dag_id: str) -> None:
        """Wait until Airflow has read the files again."""
        before = self.get(f"dags/{dag_id}/details")["last_parsed_time"]
        self.until(
            lambda: self.get(f"dags/{dag_id}/details")["last_parsed_time"] > before, f"{dag_id} is not parsed again"
        )

    def until(self, done: Callable[[], Any], otherwise: str) -> Any:
        end = time.monotonic() + RUN_WITHIN_S
        while time.monotonic() < end:
            if found := done():
                return found
            time.sleep(1)
        raise AssertionError(f"{otherwise} within {RUN_WITHIN_S} s")

    def refusal(self, user: str, path: str, body: dict[str, Any], method: str = "POST") -> int:
        """Return the status with which the API refuses this to a user. A request that is accepted is an error."""
        token = AirflowApi(self.port, PASSWORDS[user], user).token
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), headers, method=method)
        try:
            urllib.request.urlopen(request, timeout=120)
        except urllib.error.HTTPError as error:
            return error.code
        raise AssertionError(f"{method} {path} of {user} was accepted")


def furnish(office: Office, brokers: str) -> None:
    """Write seven topics and ingest their records.

    payments has one round and many new records. Its check refuses one of them. Rounds of orders and invoices wait for a
    person; those of invoices wait only seconds. customers is almost clean. refunds and coupons share the DAG of a group,
    and a failed check blocks refunds. shipments is behind its topic in Kafka.
    """
    (office.place / "home").mkdir(mode=0o700)
    office.topic("payments", description="Payments by id, from the shop", alerts=ALERTS, checks=[no_digits_first()])
    office.topic("orders", description="Open orders by number", publish="approve")
    office.topic("invoices", publish="approve", config={"cleantail.approval.timeout.ms": NO_ANSWER_MS})
    customers = {"cleantail.reclaim.deleted.ratio": 0.2}
    office.topic(
        "customers", description="Customers by id", source={"path": "landing/customers/*.jsonl"}, config=customers
    )
    office.write(f"groups/{GROUP}", {"group": GROUP, "description": "Small changelogs of the shop", "schedule": None})
    office.topic(THE_ONE_TOPIC, group=GROUP, checks=[no_digits_first()])
    office.topic("coupons", group=GROUP)
    office.topic(IN_KAFKA, description="Shipments by number", source={"kafka": {"bootstrap.servers": brokers}})
    KafkaClient(brokers).create(IN_KAFKA, 2, {})
    send(brokers, *(f"shipment-{i % 70}" for i in range(500)))

    def ingest(topic: str, *records: dict[str, Any]) -> tuple[str, ...]:
        return "ingest", topic, "--file", office.lines(topic, records)

    codes = office.cleantail(
        ingest("payments", *(record(p, i, f"payment-{i % 200:03}") for p in range(3) for i in range(1200))),
        ("compact", "payments", "--force"),
        ingest(
            "payments",
            *(record(p, 1200 + i, f"payment-{i % 150:03}") for p in range(3) for i in range(900)),
            record(1, 2100, "9 is no letter"),
        ),
        ingest("orders", *(record(0, i, f"order-{i % 40}") for i in range(200))),
        ("compact", "orders", "--force", "--approve"),
        ingest("orders", *(record(0, 200 + i, f"order-{i % 25}") for i in range(100))),
        ingest("invoices", *(record(0, i, f"invoice-{i % 20}") for i in range(100))),
        ingest("customers", *(record(p, i, f"customer-{i % 600}") for p in range(3) for i in range(1000))),
        ("compact", "customers", "--force"),
        ingest("customers", *(record(p, 1000 + i, f"customer-{i % 80}", None) for p in range(3) for i in range(50))),
        ("compact", "customers", "--force"),
        ingest("customers", *(record(0, 1050 + i, f"customer-{i}") for i in range(10))),
        ingest(THE_ONE_TOPIC, *(record(0, i, f"refund-{i % 5}") for i in range(50)), record(0, 50, "9 is no letter")),
        ("compact", THE_ONE_TOPIC, "--force"),
        ingest("coupons", *(record(0, i, f"coupon-{i % 5}") for i in range(50))),
        ("ingest", IN_KAFKA),
        ("compact", IN_KAFKA, "--force"),
    )
    assert codes == [0] * 13 + [1, 0, 0, 0]  # the check of refunds fails
    send(brokers, *(f"shipment-{i % 70}" for i in range(UNREAD)))


def send(brokers: str, *keys: str) -> None:
    """Produce a record of an hour ago for each key."""
    producer, at_ms = Producer({"bootstrap.servers": brokers}), int(time.time() * 1000) - 3_600_000
    for key in keys:
        producer.produce(IN_KAFKA, b"v" * 200, key, timestamp=at_ms)
    assert producer.flush(RUN_WITHIN_S) == 0


def record(partition: int, offset: int, key: str, value: str | None = "v" * 200) -> dict[str, Any]:
    at = int(time.time() * 1000) - 3_600_000 + offset
    return {"partition": partition, "offset": offset, "tstype": "create", "ts": at, "key": key, "payload": value}


def no_digits_first() -> dict[str, Any]:
    kwargs = {"column": "key", "regex": "^[a-z]"}
    return {"expectation": "expect_column_values_to_match_regex", "kwargs": kwargs, "severity": "critical"}


def alert_sink(office: Office) -> HTTPServer:
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


def ended(run: dict[str, Any]) -> Any:
    return run["state"] in ("success", "failed") and run["state"]

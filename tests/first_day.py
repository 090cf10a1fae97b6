"""The first day of a new user: `python -m tests.first_day`, as `make test-first-day` does.

It runs the commands of docs/installing.md as they are printed there, with other names, next to an Airflow that was
installed before, an Iceberg REST catalog and a Kafka broker. All are real, and run on loopback.

1. Before the clock starts: catalog, broker with a topic, and an environment with Airflow and its migrated database.
2. Install, write the files, run `cleantail doctor` before anything else was done: it must name all that is missing.
3. Make the connections, name the catalog, restart Airflow. `cleantail doctor` must find nothing but the paused DAG.
4. Unpause and trigger. The clock stops when a run of the topic is green, and its records must be in the table.
5. The DAG `cleantail_doctor` must then be green too.

It fails if steps 2 to 4 take longer than MINUTES, or if more than FAILED_RUNS runs failed. It takes minutes and asks the
package index and Maven Central, so it is no part of `make test`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from differential.broker import free_port, kafka_jars, running_broker
from tests.package.clean_environment import ROOT, CleanEnvironment, built_wheel

sys.path.insert(0, str(ROOT / "deploy"))

from catalog_services import start_rest  # noqa: E402
from service_processes import Processes  # noqa: E402

MINUTES, FAILED_RUNS = 10, 1
PAGE = (ROOT / "docs" / "installing.md").read_text()
TOPIC, PARTITIONS, RECORDS, KEYS = "orders", 2, 4000, 150
DAY_MS = 86_400_000
WITHIN_S = 1500
"""How long a step may take, on a busy machine too: MINUTES judges the sum."""


def commands(example: str, names: Mapping[str, str]) -> list[str]:
    """Return the commands of a block of the page, with other names. Raises AssertionError if the page lacks a name."""
    [block] = re.findall(rf"<!-- example: {example} -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    for name, other in names.items():
        assert name in block, f"docs/installing.md does not have {name}"
        block = block.replace(name, other)
    return [re.sub(r"\s+#.*", "", line) for line in block.splitlines()]


class Newcomer:
    """Runs commands in one shell environment, in which Airflow was installed."""

    def __init__(self, place: Path) -> None:
        self.place, self.made = place, CleanEnvironment(place / "environment", place / "home")
        self.made.home.mkdir()
        url = f"http://127.0.0.1:{free_port()}"
        self.variables = {
            "AIRFLOW_HOME": str(place / "airflow"),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__PORT": url.rpartition(":")[2],
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        (place / "airflow" / "dags").mkdir(parents=True)

    @property
    def env(self) -> dict[str, str]:
        index = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "REQUESTS_"))}
        return {**self.made.env(**self.variables), **index}

    def shell(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command as a shell does, and return its output. `export` is remembered."""
        if exported := re.fullmatch(r"export (\w+)=(\S+)", command):
            self.variables[exported[1]] = exported[2]
            return ""
        began = time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=self.place, env=self.env, capture_output=True, text=True)
        print(f"{time.monotonic() - began:5.0f} s  {command}", flush=True)
        assert done.returncode in codes, f"{command}: {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    def wrong(self) -> dict[str, dict[str, Any]]:
        """Return what `cleantail doctor` finds wrong: label -> its finding."""
        answer = json.loads(self.shell("cleantail doctor --json", codes=(0, 2, 4)))
        wrong = {f"{c['part']} {c['of']}".strip(): c for c in answer["checks"] if c["state"] == "wrong"}
        for label, finding in wrong.items():
            print(f"         wrong: {label}: {finding['text']}", flush=True)
        return wrong

    @contextmanager
    def airflow(self) -> Iterator[None]:
        """Run `airflow standalone` while the block lasts, with all its processes in one group."""
        with (self.place / "standalone.log").open("ab") as log:
            process = subprocess.Popen(
                [self.made.folder / "bin" / "airflow", "standalone"],
                env=self.env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield
        finally:
            for by in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, by)
                except ProcessLookupError:
                    break
                time.sleep(5)
            process.wait()

    def runs(self, dag_id: str) -> list[str]:
        """Return the states of a DAG's runs, from Airflow's database."""
        with closing(sqlite3.connect(f"file:{self.place / 'airflow' / 'airflow.db'}?mode=ro", uri=True)) as database:
            return [row[0] for row in database.execute("SELECT state FROM dag_run WHERE dag_id = ?", (dag_id,))]


def waited(condition: Callable[[], Any], what: str) -> Any:
    """Return the first result of the condition that is not empty. Raises AssertionError after WITHIN_S."""
    ends = time.monotonic() + WITHIN_S
    while not (result := condition()):
        assert time.monotonic() < ends, f"{what}: not within {WITHIN_S} s"
        time.sleep(2)
    return result


def filled(brokers: str) -> None:
    """Make the topic. Most of its records are older than segment.ms, so that a first round removes some."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})
    new = NewTopic(TOPIC, PARTITIONS, 1, config={"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"})
    admin.create_topics([new])[TOPIC].result(30)
    producer, now_ms = Producer({"bootstrap.servers": brokers}), int(time.time() * 1000)
    for n in range(RECORDS):
        at_ms = now_ms - (0 if n >= RECORDS - PARTITIONS else 20 * DAY_MS - n)
        producer.produce(TOPIC, key=f"k{n % KEYS}", value=f"v{n}", partition=n % PARTITIONS, timestamp=at_ms)
    assert producer.flush(60) == 0


def prepared(place: Path) -> Newcomer:
    """Make the Airflow that is there before the first day begins."""
    newcomer = Newcomer(place)
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, newcomer.made.folder], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", newcomer.made.python, "apache-airflow<3.4"], check=True
    )
    newcomer.shell("airflow db migrate")
    return newcomer


def first_day(newcomer: Newcomer, wheel: Path, catalog: str, brokers: str) -> tuple[float, int]:
    """Return the seconds until the first green run, and the number of failed ones."""
    began, config = time.monotonic(), newcomer.place / "etc" / "cleantail" / "config"
    names = {"cleantail[all]": f"cleantail[all] @ {wheel.as_uri()}", "/etc/cleantail/config": str(config)}
    *first, spark, kafka = commands("install", names | {"kafka:9092": brokers})
    for command in first:
        newcomer.shell(command)
    missing = newcomer.wrong()
    assert missing.keys() == {"spark master", f"kafka {TOPIC}", "plugin", "pool cleantail_spark", f"dag {TOPIC}"}, (
        missing
    )

    defaults = config / "defaults.yaml"
    at_first = defaults.read_text()
    named = re.sub(r"type: sqlite .*\n", f"type: rest\n    uri: {catalog}\n", at_first)
    assert named != at_first
    defaults.write_text(named)
    newcomer.shell(spark)
    newcomer.shell(kafka)
    with newcomer.airflow():
        doctor, unpause, trigger = commands("start", {})
        waited(lambda: newcomer.wrong().keys() <= {f"dag {TOPIC}"}, "doctor finds nothing but the paused DAG")
        print(newcomer.shell(doctor, codes=(0, 2)))
        newcomer.shell(unpause)
        newcomer.shell(trigger)
        states = waited(lambda: [state for state in newcomer.runs(TOPIC) if state == "success"], "a green run")
        assert states
        seconds = time.monotonic() - began
        failed = newcomer.runs(TOPIC).count("failed")
        status = json.loads(newcomer.shell(f"cleantail status {TOPIC} --json"))
        logs = status["topics"][TOPIC]
        assert [log["log_end_offset"] for log in logs] == [RECORDS // PARTITIONS] * PARTITIONS, logs
        assert all(log["checkpoint"] for log in logs), logs
        assert sum(log["records"] for log in logs) < RECORDS // 2, logs
        newcomer.shell("airflow dags trigger cleantail_doctor")
        ended = waited(lambda: set(newcomer.runs("cleantail_doctor")) & {"success", "failed"}, "cleantail_doctor")
        assert ended == {"success"}, ended
        assert newcomer.wrong() == {}
    return seconds, failed


def main() -> int:
    """Return 1 if the first day took too long, or if too many runs failed."""
    with tempfile.TemporaryDirectory(prefix="cleantail-first-day-") as folder:
        place = Path(folder)
        for name in ("kafka", "rest", "warehouse", "newcomer"):
            (place / name).mkdir()
        wheel = built_wheel(place / "wheel")
        store = {"uri": f"jdbc:sqlite:{place / 'rest.db'}", "warehouse": f"file://{place / 'warehouse'}"}
        home = Path(os.environ.get("CLEANTAIL_HOME") or ROOT / ".cleantail")
        with Processes(place / "rest") as processes, running_broker(place / "kafka", kafka_jars(os.environ)) as broker:
            catalog = start_rest(processes, free_port(), home / "jars-rest", store)
            filled(broker.address)
            newcomer = prepared(place / "newcomer")
            print("the clock starts", flush=True)
            seconds, failed = first_day(newcomer, wheel, catalog, broker.address)
    load = " ".join(f"{value:.0f}" for value in os.getloadavg())
    words = f"{seconds / 60:.1f} min, {failed} failed runs (load average {load} on {os.cpu_count()} cores)"
    print(f"from pip install to the first green run: {words}")
    return int(seconds > MINUTES * 60 or failed > FAILED_RUNS)


if __name__ == "__main__":
    sys.exit(main())

"""Run the settings of docker-compose.yaml on services that run as processes, and compare with the embedded platform.

    .venv/bin/python deploy/check_services.py            # ten minutes on 2 free cores; --keep leaves all files

Needs: Postgres (apt-get install postgresql), Java 17, and versitygw or Go. Starts Postgres, an S3 gateway, a Spark
master and two workers on loopback, with deploy/config (its addresses replaced) and random secrets. The same small
changelog goes through both platforms: ingest, compact twice (the second time past the delete horizon), reclaim;
`cleantail read` must print the same. At the end, Airflow on Postgres runs one whole DAG. The script of its container
prepares it. All started processes are stopped, also after a failure.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import service_settings as settings
from service_processes import LOOPBACK, ROOT, NotStarted, Processes, free_port, start_postgres, start_s3, start_spark
from service_settings import BINARIES, Ports, Secrets

TOPIC = "services-check"
RECORDS, PARTITIONS, KEYS = 3000, 3, 400
START_MS, DAY_MS = 1_750_000_000_000, 86_400_000
FIRST_NOW_MS = START_MS + DAY_MS
SECOND_NOW_MS = FIRST_NOW_MS + 2 * DAY_MS
THIRD_NOW_MS = SECOND_NOW_MS + 10 * DAY_MS
SNAPSHOTS_EXPIRE_MS = 10 * DAY_MS
ORPHAN_AGE_S = 30 * 86_400
TOPIC_YAML = {
    "topic": TOPIC,
    "schedule": None,
    "source": {"path": f"landing/{TOPIC}/*.jsonl"},  # for the DAG; the command line has --file
    "config": {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": DAY_MS},
}


MINUTES = 30
"""Maximum time of the whole check, which takes ten minutes on 2 free cores."""


class Failed(Exception):
    """A result differs from the expected one, or did not come in time."""


@dataclass(frozen=True)
class Side:
    """One platform: embedded, or on services."""

    name: str
    config: Path
    env: Mapping[str, str]

    def run(self, *command: str, code: int = 0) -> str:
        """Run a `cleantail` command and return its standard output. Raises Failed unless it ends with `code`."""
        began = time.monotonic()
        argv = [str(BINARIES / "cleantail"), "--config", str(self.config), *command]
        _say(self.name, f"{' '.join(command)} begins")
        done = subprocess.run(argv, env=dict(self.env), capture_output=True, text=True, check=False)
        _say(self.name, f"{' '.join(command)}: exit {done.returncode}, {time.monotonic() - began:.1f} s")
        if done.returncode != code:
            raise Failed(f"{' '.join(argv)}: exit code {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
        return done.stdout if code == 0 else done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the directory with configuration, logs and tables")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops all started processes too
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(MINUTES * 60)
    work = Path(tempfile.mkdtemp(prefix="cleantail-services-"))
    work.chmod(0o711)  # Postgres runs as another user, which must be able to enter this folder
    try:
        check(work)
    except (Failed, NotStarted, subprocess.CalledProcessError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        signal.alarm(0)
        print(f"directory: {work}") if arguments.keep else shutil.rmtree(work)
    print("OK: the services and the embedded platform gave the same results")
    return 0


def _too_late(*_: object) -> None:
    raise Failed(f"it did not end within {MINUTES} minutes: the last step above did not end, or the machine is busy")


def check(work: Path) -> None:
    directories = {name: work / name for name in ("logs", "postgres", "s3", "spark", "home", "embedded", "airflow")}
    for directory in directories.values():
        directory.mkdir(mode=0o700)
    keys = settings.new_secrets()
    ports = {name: free_port() for name in ("postgres", "s3", "spark", "master_ui")}
    env = settings.environment(work, settings.jars(work), settings.packages(work))
    home = {"CLEANTAIL_HOME": str(directories["embedded"])}
    embedded = Side("embedded", settings.embedded_config(work, TOPIC_YAML), env | home)
    service_env = settings.services_environment(env, keys, directories["home"])
    services = Side("services", settings.services_config(work, ports, TOPIC_YAML), service_env)
    with Processes(directories["logs"]) as processes:
        start_postgres(processes, directories["postgres"], ports["postgres"], keys)
        start_s3(processes, directories["s3"], ports["s3"], keys)
        spark_env = env | settings.daemon_environment(keys)
        start_spark(processes, directories["spark"], ports["spark"], ports["master_ui"], spark_env)
        _script("init_bucket.py", dict(services.env) | {"CLEANTAIL_CONFIG": str(services.config)})
        check_rounds(work, embedded, services)
        check_reclaim(embedded, services, directories["s3"])
        check_refusals(services, keys)
        check_airflow(work, embedded, services, keys, ports)
        check_places(ports, directories["s3"])


def check_rounds(work: Path, embedded: Side, services: Side) -> None:
    """Run all steps of the command line on both sides, and compare the records that they read."""
    file = write_changelog(work / "first.jsonl", 0)
    for side in (embedded, services):
        side.run("ingest", TOPIC, "--file", str(file))
        side.run("compact", TOPIC, "--now", str(FIRST_NOW_MS))
        side.run("compact", TOPIC, "--now", str(SECOND_NOW_MS))
    records = compare(embedded, services, "compact")
    if any(record["payload"] is None for record in records) or len(records) >= RECORDS / 2:
        raise Failed(f"{len(records)} of {RECORDS} records are left, some of them tombstones that were due")


def check_reclaim(embedded: Side, services: Side, s3: Path) -> None:
    """Check that files are rewritten, snapshots expire, orphans are removed, and files next to the table stay."""
    tables = s3 / "cleantail" / "warehouse" / "cleantail"
    name = TOPIC.replace("-", "_")
    orphan = _old_file(tables / name / "data" / "orphan.parquet")
    neighbour = _old_file(tables / f"{name}_2" / "data" / "neighbour.parquet")
    now_ms = int(time.time() * 1000) + SNAPSHOTS_EXPIRE_MS
    for side in (embedded, services):
        done = json.loads(side.run("--json", "reclaim", TOPIC, "--now", str(now_ms)))
        _say(side.name, str(done))
    compare(embedded, services, "reclaim")
    if orphan.exists() or not neighbour.exists():
        raise Failed("the wrong files are left: the orphan is still there, or a file outside the table is gone")


def _old_file(file: Path) -> Path:
    """Make an object that no table references. The gateway keeps objects as files with their times."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("of no table")
    old = time.time() - ORPHAN_AGE_S
    os.utime(file, (old, old))
    return file


def compare(embedded: Side, services: Side, after: str) -> list[dict[str, Any]]:
    """Return the records. Raises Failed unless both sides print the same."""
    expected, other = embedded.run("read", TOPIC), services.run("read", TOPIC)
    if expected != other or not expected:
        raise Failed(f"after {after} the embedded platform reads\n{expected[:1000]}\nthe services\n{other[:1000]}")
    records = [json.loads(line) for line in other.splitlines()]
    _say("equal", f"after {after}: {len(records)} records, SHA-256 {hashlib.sha256(other.encode()).hexdigest()[:16]}")
    return records


def _say(who: str, text: str) -> None:
    print(f"{who:9} {text}", flush=True)


def check_refusals(services: Side, keys: Secrets) -> None:
    """Check that a wrong secret gives an error message without the secret, and exit code 2."""
    for name in ("CLEANTAIL_CATALOG_PASSWORD", "CLEANTAIL_S3_SECRET_ACCESS_KEY"):
        wrong = Side("services", services.config, dict(services.env) | {name: "wrong"})
        said = wrong.run("status", TOPIC, code=2)
        if "Traceback" in said or any(secret in said for secret in keys.values()):
            raise Failed(f"with a wrong {name}: {said}")
        _say("refused", f"a wrong {name}: {said.strip()}")


def check_airflow(work: Path, embedded: Side, services: Side, keys: Secrets, ports: Ports) -> None:
    """Compare one whole DAG run of a second file by Airflow on Postgres with the same embedded steps."""
    landing = work / "home" / "landing" / TOPIC
    landing.mkdir(parents=True)
    file = write_changelog(landing / "second.jsonl", RECORDS)
    env = dict(services.env) | settings.airflow_environment(work, services.config, keys, ports)
    _script("init_airflow.py", env)
    conf = json.dumps({"now_ms": THIRD_NOW_MS, "force": True})
    began = time.monotonic()
    command = [str(BINARIES / "airflow"), "dags", "test", TOPIC, "--conf", conf]
    _say("airflow", f"dags test {TOPIC} begins")
    with (work / "logs" / "airflow.log").open("wb") as log:
        code = subprocess.run(command, env=env, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    _say("airflow", f"dags test {TOPIC}: exit {code}, {time.monotonic() - began:.1f} s")
    states = _task_states(env)
    _say("airflow", f"tasks: {states}")
    if code or states.get("publish") != "success" or "failed" in states.values():
        raise Failed((work / "logs" / "airflow.log").read_text(errors="replace")[-6000:])
    embedded.run("ingest", TOPIC, "--file", str(file))
    embedded.run("compact", TOPIC, "--now", str(THIRD_NOW_MS), "--force")
    compare(embedded, services, "one run of the DAG")


def _task_states(env: Mapping[str, str]) -> dict[str, str]:
    def ask(*command: str) -> list[dict[str, Any]]:
        argv = [str(BINARIES / "airflow"), *command, "--output", "json"]
        said = subprocess.run(argv, env=dict(env), capture_output=True, check=True, text=True).stdout
        answer: list[dict[str, Any]] = json.loads(said[said.rindex("[{") :])  # after Airflow's own log lines
        return answer

    run = ask("dags", "list-runs", TOPIC)[0]["run_id"]
    return {task["task_id"]: task["state"] for task in ask("tasks", "states-for-dag-run", TOPIC, run)}


def check_places(ports: Ports, s3: Path) -> None:
    """Check that the cluster did the work, and that the store has the result."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{ports['master_ui']}/json/", timeout=10) as answer:
        applications = [app["name"] for app in json.load(answer)["completedapps"]]
    files = [file for file in (s3 / "cleantail" / "warehouse").rglob("*") if file.is_file()]
    _say("spark", f"{len(applications)} applications were completed on the cluster: {sorted(set(applications))}")
    _say("s3", f"{len(files)} objects in the bucket")
    if not applications or not files:
        raise Failed("the cluster or the store was not used")


def write_changelog(file: Path, first_offset: int) -> Path:
    """Write kcat -J lines with repeated keys; every ninth is a tombstone. The same offsets give the same lines."""
    file.write_text("".join(json.dumps(record) + "\n" for record in _changelog(first_offset)))
    return file


def _changelog(first: int) -> Iterator[dict[str, Any]]:
    for number in range(first, first + RECORDS):
        key = int(hashlib.sha256(str(number).encode()).hexdigest(), 16) % KEYS
        yield {
            "topic": TOPIC,
            "partition": key % PARTITIONS,
            "offset": number,
            "tstype": "create",
            "ts": START_MS + number,
            "headers": ["source", str(number)],
            "key": f"key-{key}",
            "payload": None if number % 9 == 0 else f"value {number} ✓",
        }


def _script(name: str, env: Mapping[str, str]) -> None:
    began = time.monotonic()
    command = [sys.executable, str(ROOT / "deploy" / name)]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{name}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    _say("script", f"{name}: {done.stdout.strip().splitlines()[-1]} ({time.monotonic() - began:.1f} s)")


if __name__ == "__main__":
    sys.exit(main())

"""Runs the settings of docker-compose.yaml on services started as processes, and compares with the embedded platform.

    .venv/bin/python deploy/check_services.py            # about five minutes; --keep leaves the directory

Needs: Postgres (apt-get install postgresql), Java 17, and versitygw or Go. Starts Postgres, an S3 gateway, a Spark
master and two workers on loopback, with deploy/config (addresses replaced, nothing else) and random secrets. Then
the same small changelog goes through both platforms: ingest, compact twice (the second time past the delete horizon),
reclaim; `cleantail read` must print the same. Last, Airflow on Postgres runs one whole DAG, made ready by the script
that its container runs. Everything that was started is stopped, also after a failure.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import make_env
import yaml
from service_processes import LOOPBACK, ROOT, NotStarted, Processes, free_port, start_postgres, start_s3, start_spark

TOPIC = "services-check"
START_MS = 1_750_000_000_000
RECORDS, PARTITIONS, KEYS = 3000, 3, 400
DAY_MS = 86_400_000
FIRST_NOW_MS = START_MS + DAY_MS
SECOND_NOW_MS = FIRST_NOW_MS + 2 * DAY_MS
THIRD_NOW_MS = SECOND_NOW_MS + 10 * DAY_MS
SNAPSHOTS_EXPIRE_MS = 10 * DAY_MS
ORPHAN_AGE_S = 30 * 86_400
BINARIES = Path(sys.executable).parent
Secrets = Mapping[str, str]
Ports = Mapping[str, int]


class Failed(Exception):
    """Something came out otherwise than it should."""


@dataclass(frozen=True)
class Side:
    """One platform: the embedded one, or the one on services."""

    name: str
    config: Path
    env: Mapping[str, str]

    def run(self, *command: str, code: int = 0) -> str:
        """A `cleantail` command; its standard output. Raises Failed unless it ends with `code`."""
        began = time.monotonic()
        argv = [str(BINARIES / "cleantail"), "--config", str(self.config), *command]
        done = subprocess.run(argv, env=dict(self.env), capture_output=True, text=True, check=False)
        _say(self.name, f"{' '.join(command)}: exit {done.returncode}, {time.monotonic() - began:.1f} s")
        if done.returncode != code:
            raise Failed(f"{' '.join(argv)}: exit code {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}")
        return done.stdout if code == 0 else done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the directory with configuration, logs and tables")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="cleantail-services-"))
    work.chmod(0o711)  # Postgres runs as a user of its own and has to pass through
    try:
        check(work)
    except (Failed, NotStarted, subprocess.CalledProcessError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        print(f"directory: {work}") if arguments.keep else shutil.rmtree(work)
    print("OK: the services gave what the embedded platform gave")
    return 0


def check(work: Path) -> None:
    directories = {name: work / name for name in ("logs", "postgres", "s3", "spark", "home", "embedded", "airflow")}
    for directory in directories.values():
        directory.mkdir(mode=0o700)
    env = _environment(work, _jars(work), _packages(work))
    embedded = Side("embedded", _embedded_config(work), env | {"CLEANTAIL_HOME": str(directories["embedded"])})
    keys = _secrets()
    ports = {name: free_port() for name in ("postgres", "s3", "spark", "master_ui")}
    with Processes(directories["logs"]) as processes:
        start_postgres(processes, directories["postgres"], ports["postgres"], keys)
        start_s3(processes, directories["s3"], ports["s3"], keys)
        spark_env = env | {"_SPARK_AUTH_SECRET": keys["CLEANTAIL_SPARK_SECRET"]} | _daemon_options()
        start_spark(processes, directories["spark"], ports["spark"], ports["master_ui"], spark_env)
        service_env = _services_environment(env, keys, directories["home"])
        services = Side("services", _services_config(work, ports), service_env)
        _script("init_bucket.py", services.env | {"CLEANTAIL_CONFIG": str(services.config)})
        check_rounds(work, embedded, services)
        check_reclaim(embedded, services, directories["s3"])
        check_refusals(services, keys)
        check_airflow(work, embedded, services, keys, ports)
        check_places(ports, directories["s3"])


def check_rounds(work: Path, embedded: Side, services: Side) -> None:
    """The command line's whole way on both sides."""
    file = write_changelog(work / "first.jsonl", 0)
    for side in (embedded, services):
        side.run("ingest", TOPIC, "--file", str(file))
        side.run("compact", TOPIC, "--now", str(FIRST_NOW_MS))
        side.run("compact", TOPIC, "--now", str(SECOND_NOW_MS))
    records = compare(embedded, services, "compact")
    if any(record["payload"] is None for record in records) or len(records) >= RECORDS / 2:
        raise Failed(f"{len(records)} of {RECORDS} records are left, some of them tombstones that were due")


def check_reclaim(embedded: Side, services: Side, s3: Path) -> None:
    """Files are rewritten, snapshots expired, orphans removed; what lies beside the table stays."""
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
        raise Failed("the wrong files are left: an orphan, or not those beside the table")


def _old_file(file: Path) -> Path:
    """An object that no table knows; the gateway keeps objects as files, and their times."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("of no table")
    old = time.time() - ORPHAN_AGE_S
    os.utime(file, (old, old))
    return file


def compare(embedded: Side, services: Side, after: str) -> list[dict[str, Any]]:
    """Raises Failed unless both print the same records; returns them."""
    expected, found = embedded.run("read", TOPIC), services.run("read", TOPIC)
    if expected != found or not expected:
        raise Failed(f"after {after} the embedded platform reads\n{expected[:1000]}\nthe services\n{found[:1000]}")
    records = [json.loads(line) for line in found.splitlines()]
    _say("equal", f"after {after}: {len(records)} records, SHA-256 {hashlib.sha256(found.encode()).hexdigest()[:16]}")
    return records


def _say(who: str, text: str) -> None:
    print(f"{who:9} {text}", flush=True)


def check_refusals(services: Side, keys: Secrets) -> None:
    """Wrong secrets are an error in words, with exit code 2, and show no secret."""
    for name in ("CLEANTAIL_CATALOG_PASSWORD", "CLEANTAIL_S3_SECRET_ACCESS_KEY"):
        wrong = Side("services", services.config, dict(services.env) | {name: "wrong"})
        said = wrong.run("status", TOPIC, code=2)
        if "Traceback" in said or any(secret in said for secret in keys.values()):
            raise Failed(f"with a wrong {name}: {said}")
        _say("refused", f"a wrong {name}: {said.strip()}")


def check_airflow(work: Path, embedded: Side, services: Side, keys: Secrets, ports: Ports) -> None:
    """One whole DAG run by Airflow on Postgres, fed by a second file, against the same steps embedded."""
    landing = work / "home" / "landing" / TOPIC
    landing.mkdir(parents=True)
    file = write_changelog(landing / "second.jsonl", RECORDS)
    env = services.env | _airflow_environment(work, services, keys, ports)
    _script("init_airflow.py", env)
    conf = json.dumps({"now_ms": THIRD_NOW_MS, "force": True})
    began = time.monotonic()
    command = [str(BINARIES / "airflow"), "dags", "test", TOPIC, "--conf", conf]
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
        answer: list[dict[str, Any]] = json.loads(said[said.index("[") :])
        return answer

    run = ask("dags", "list-runs", TOPIC)[0]["run_id"]
    return {task["task_id"]: task["state"] for task in ask("tasks", "states-for-dag-run", TOPIC, run)}


def check_places(ports: Ports, s3: Path) -> None:
    """It really was the cluster that worked, and the store that kept it."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{ports['master_ui']}/json/", timeout=10) as answer:
        applications = [app["name"] for app in json.load(answer)["completedapps"]]
    files = [file for file in (s3 / "cleantail" / "warehouse").rglob("*") if file.is_file()]
    _say("spark", f"{len(applications)} applications were completed on the cluster: {sorted(set(applications))}")
    _say("s3", f"{len(files)} objects in the bucket")
    if not applications or not files:
        raise Failed("the cluster or the store was not used")


def write_changelog(file: Path, first_offset: int) -> Path:
    """kcat -J lines: keys written again and again, every ninth record a tombstone. The same offsets, the same lines."""
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


def _secrets() -> dict[str, str]:
    """What .env would hold."""
    lines = make_env.filled((ROOT / ".env.example").read_text()).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def _environment(work: Path, jars: Path, packages: str) -> dict[str, str]:
    """Nothing of the caller's settings but where Java and Python are."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    path = f"{BINARIES}:{os.environ.get('PATH', os.defpath)}"
    own = {"PATH": path, "HOME": str(work), "CLEANTAIL_JARS": str(jars), "PYTHONPATH": f"{ROOT}:{packages}"}
    return kept | own | {"SPARK_CONF_DIR": str(ROOT / "spark_jobs/conf"), "GX_ANALYTICS_ENABLED": "false"}


def _jars(work: Path) -> Path:
    """Those of the image."""
    subprocess.run([str(ROOT / "bin/fetch-jars"), str(work / "jars"), "with-s3"], check=True)
    return work / "jars"


def _packages(work: Path) -> str:
    """The packages of deploy/requirements.txt: in a directory of their own where the environment lacks them."""
    if importlib.util.find_spec("asyncpg") and importlib.util.find_spec("psycopg2"):
        return ""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(work / "packages")]
    subprocess.run([*command, "-r", str(ROOT / "deploy/requirements.txt"), "psycopg2-binary"], check=True)
    return str(work / "packages")


def _embedded_config(work: Path) -> Path:
    config = work / "config-embedded"
    _write_topic(config)
    (config / "defaults.yaml").write_text("platform: {spark: {master: 'local[2]'}}\n")
    return config


def _services_config(work: Path, ports: Ports) -> Path:
    """deploy/config/defaults.yaml on this machine's addresses; all topics of the repository, and the check's own."""
    config = work / "config-services"
    shutil.copytree(ROOT / "deploy/config", config)
    _write_topic(config)
    text = (config / "defaults.yaml").read_text()
    for name, port in {"postgres:5432": "postgres", "rustfs:9000": "s3", "spark-master:7077": "spark"}.items():
        text = text.replace(f"//{name}", f"//{LOOPBACK}:{ports[port]}")
    settings = yaml.safe_load(text.replace("/opt/cleantail/jars", str(work / "jars")))
    settings["platform"]["spark"]["conf"] |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    (config / "defaults.yaml").write_text(yaml.safe_dump(settings))
    return config


def _write_topic(config: Path) -> None:
    """`source` is for the DAG; the command line is given its files."""
    topic = {"topic": TOPIC, "schedule": None, "source": {"path": f"landing/{TOPIC}/*.jsonl"}}
    topic["config"] = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.01, "delete.retention.ms": DAY_MS}
    (config / "topics").mkdir(parents=True, exist_ok=True)
    (config / "topics" / f"{TOPIC}.yaml").write_text(yaml.safe_dump(topic))


def _compose() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    return compose


def _daemon_options() -> dict[str, str]:
    environment = _compose()["services"]["spark-worker"]["environment"]
    return {name: value for name, value in environment.items() if name.startswith("SPARK_") and "$" not in value}


def _services_environment(env: Mapping[str, str], keys: Secrets, home: Path) -> dict[str, str]:
    named = {name: value for name, value in keys.items() if name.startswith("CLEANTAIL_")}
    own = {"CLEANTAIL_HOME": str(home), "CLEANTAIL_CATALOG_USER": "cleantail", "SPARK_LOCAL_IP": LOOPBACK}
    return {**env, **named, **own}


def _airflow_environment(work: Path, services: Side, keys: Secrets, ports: Ports) -> dict[str, str]:
    """What docker-compose.yaml gives to Airflow, on this machine's places, addresses and secrets."""
    texts = _compose()["x-airflow-environment"]
    found = {name: _filled(value, keys) for name, value in texts.items() if name.startswith("AIRFLOW")}
    places = {"/opt/cleantail": str(ROOT), "/var/lib/airflow": str(work / "airflow")}
    places |= {"postgres:5432": f"{LOOPBACK}:{ports['postgres']}"}
    places |= {"spark-master:7077": f"{LOOPBACK}:{ports['spark']}"}
    for old, new in places.items():
        found = {name: value.replace(old, new) for name, value in found.items()}
    passwords = {name: value for name, value in keys.items() if name.startswith("AIRFLOW_PASSWORD_")}
    own = {"AIRFLOW_HOME": str(work / "airflow"), "CLEANTAIL_CONFIG": str(services.config)}
    return found | passwords | own | {"AIRFLOW__API__HOST": LOOPBACK}


def _filled(text: str, keys: Secrets) -> str:
    """${NAME:?…} as compose would fill it in."""
    for name, value in keys.items():
        text = text.replace(f"${{{name}:?see .env.example}}", value)
    return text


def _script(name: str, env: Mapping[str, str]) -> None:
    began = time.monotonic()
    command = [sys.executable, str(ROOT / "deploy" / name)]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{name}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    _say("script", f"{name}: {done.stdout.strip().splitlines()[-1]} ({time.monotonic() - began:.1f} s)")


if __name__ == "__main__":
    sys.exit(main())

"""The settings of docker-compose.yaml for services that run as processes, with this machine's addresses.

Everything is read from docker-compose.yaml, .env.example and deploy/config; only places, addresses and secrets differ.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import make_env
import yaml
from service_processes import LOOPBACK, ROOT

BINARIES = Path(sys.executable).parent
Secrets = Mapping[str, str]
Ports = Mapping[str, int]


def new_secrets() -> dict[str, str]:
    """Return the content of .env, by name."""
    lines = make_env.filled((ROOT / ".env.example").read_text()).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def jars(work: Path) -> Path:
    """Fetch the jars of the image, and return their folder."""
    subprocess.run([str(ROOT / "bin/fetch-jars"), str(work / "jars"), "with-s3"], check=True)
    return work / "jars"


def packages(work: Path) -> str:
    """Return the folder of the packages of deploy/requirements.txt. It is empty if the environment has them."""
    if importlib.util.find_spec("asyncpg") and importlib.util.find_spec("psycopg2"):
        return ""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(work / "packages")]
    subprocess.run([*command, "-r", str(ROOT / "deploy/requirements.txt"), "psycopg2-binary"], check=True)
    return str(work / "packages")


def environment(work: Path, jars: Path, packages: str) -> dict[str, str]:
    """Return an environment with only the caller's places of Java and Python."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    path = f"{BINARIES}:{os.environ.get('PATH', os.defpath)}"
    own = {"PATH": path, "HOME": str(work), "CLEANTAIL_JARS": str(jars), "PYTHONPATH": f"{ROOT}:{packages}"}
    return kept | own | {"GX_ANALYTICS_ENABLED": "false"}


def embedded_config(work: Path, topic: Mapping[str, Any]) -> Path:
    config = work / "config-embedded"
    _write_topic(config, topic)
    (config / "defaults.yaml").write_text("platform: {allow_clock: true, spark: {master: 'local[2]'}}\n")
    return config


def services_config(work: Path, ports: Ports, topic: Mapping[str, Any]) -> Path:
    """Write deploy/config with this machine's addresses and one more topic."""
    config = work / "config-services"
    shutil.copytree(ROOT / "deploy/config", config)
    _write_topic(config, topic)
    text = (config / "defaults.yaml").read_text()
    for name, port in {"postgres:5432": "postgres", "rustfs:9000": "s3", "spark-master:7077": "spark"}.items():
        text = text.replace(f"//{name}", f"//{LOOPBACK}:{ports[port]}")
    platform = yaml.safe_load(text.replace("/opt/cleantail/jars", str(work / "jars")))
    platform["platform"]["spark"]["conf"] |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    platform["platform"]["allow_clock"] = True  # lets snapshots expire by a clock ahead of the real one
    (config / "defaults.yaml").write_text(yaml.safe_dump(platform))
    return config


def _write_topic(config: Path, topic: Mapping[str, Any]) -> None:
    (config / "topics").mkdir(parents=True, exist_ok=True)
    (config / "topics" / f"{topic['topic']}.yaml").write_text(yaml.safe_dump(dict(topic)))


def services_environment(env: Mapping[str, str], keys: Secrets, home: Path) -> dict[str, str]:
    """Return the environment of the command line and of the jobs that Airflow starts."""
    named = {name: value for name, value in keys.items() if name.startswith("CLEANTAIL_")}
    own = {"CLEANTAIL_HOME": str(home), "CLEANTAIL_CATALOG_USER": "cleantail", "SPARK_LOCAL_IP": LOOPBACK}
    return {**env, **named, **own}


def daemon_environment(keys: Secrets) -> dict[str, str]:
    """Return the environment of the Spark master and its workers."""
    return _filled(_compose()["services"]["spark-worker"]["environment"], keys)


def airflow_environment(work: Path, config: Path, keys: Secrets, ports: Ports) -> dict[str, str]:
    """Return Airflow's environment of docker-compose.yaml, with this machine's folders, addresses and secrets."""
    settings = _filled(_compose()["x-airflow-environment"], keys)
    here = {"/opt/cleantail": str(ROOT), "/var/lib/airflow": str(work / "airflow")}
    here |= {"postgres:5432": f"{LOOPBACK}:{ports['postgres']}"}
    here |= {"spark-master:7077": f"{LOOPBACK}:{ports['spark']}"}
    for old, new in here.items():
        settings = {name: value.replace(old, new) for name, value in settings.items()}
    passwords = {name: value for name, value in keys.items() if name.startswith("AIRFLOW_PASSWORD_")}
    own = {"AIRFLOW_HOME": str(work / "airflow"), "CLEANTAIL_CONFIG": str(config), "AIRFLOW__API__HOST": LOOPBACK}
    return settings | passwords | own


def _compose() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    return compose


def _filled(texts: Mapping[str, str], keys: Secrets) -> dict[str, str]:
    """Return the texts with ${NAME:?…} and ${NAME:-default} filled in, as compose does."""

    def value(match: re.Match[str]) -> str:
        return keys[match[1]] if match[2] == "?" else match[3]

    return {name: re.sub(r"\$\{(\w+):([?-])([^}]*)\}", value, text) for name, text in texts.items()}

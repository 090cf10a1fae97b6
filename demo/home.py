"""The demonstration's own CLEANTAIL_HOME, the folder `demo` in the caller's, with its own Airflow. The demonstration
uses no other state of the caller."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cleantail.erasure.erased_keys import ERASURE_KEY
from cleantail.home.driver_process import CERTIFICATE_KEY
from cleantail.home.home_folder import make_home
from demo.kafka_broker import KafkaBroker
from differential.broker import kafka_jars

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "demo" / "config"
MARK = ".made-by-cleantail-demo"
DAG_FOLDERS = {"topics": ROOT / "dags", "demo": ROOT / "demo" / "dags"}
PARSED_ONCE = {f"AIRFLOW__DAG_PROCESSOR__{name}": "3600" for name in ("REFRESH_INTERVAL", "MIN_FILE_PROCESS_INTERVAL")}
"""Settings with which Airflow parses DAG files once. The files do not change during a demonstration, and parsing them
takes much processor time on a small machine."""


class DemoError(Exception):
    """The demonstration cannot continue, or a claim is false."""


@dataclass(frozen=True, slots=True)
class Home:
    """The demonstration's CLEANTAIL_HOME. The jars of Spark and of the broker stay in the folders of `make setup`."""

    path: Path
    jars: Path
    kafka_jars: Path

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Home:
        callers = Path(env.get("CLEANTAIL_HOME") or ROOT / ".cleantail").absolute()
        jars = Path(env.get("CLEANTAIL_JARS") or callers / "jars").absolute()
        return cls(callers / "demo", jars, kafka_jars(env))

    def make_afresh(self) -> None:
        """Delete the state of the last demonstration, and nothing else."""
        if not list(self.jars.glob("*.jar")):
            raise DemoError(f"no Spark jars in {self.jars}: run `make setup` first")
        self.broker.require_parts()
        if self.path.exists():
            if not (self.path / MARK).exists() and any(self.path.iterdir()):
                raise DemoError(f"{self.path} exists, and the demonstration did not create it: move it away first")
            self.airflow("down")
            self.broker.down()
            shutil.rmtree(self.path)
        make_home(self.path.parent)
        make_home(self.path)
        (self.path / MARK).touch()
        made = {name: base64.b64encode(os.urandom(32)).decode() for name in (ERASURE_KEY, CERTIFICATE_KEY)}
        self._secrets.write_text(json.dumps(made))

    @property
    def broker(self) -> KafkaBroker:
        """Return the broker with its present port. Before the broker's first start, each call returns another port."""
        return KafkaBroker.of(self.path / "broker", self.kafka_jars)

    def start_airflow(self, port: int, broker: KafkaBroker) -> str:
        """Start Airflow with the connection to the broker. Return the output of `up`. Raises DemoError."""
        return self.airflow("up", "--port", str(port), variables=broker.variables)

    def environment(self) -> dict[str, str]:
        """Return the caller's environment, without the variables of the caller's own Airflow and configuration."""
        bundles = [
            {
                "name": name,
                "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
                "kwargs": {"path": str(path)},
            }
            for name, path in DAG_FOLDERS.items()
        ]
        return {
            name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "CLEANTAIL_"))
        } | {
            "CLEANTAIL_HOME": str(self.path),
            "CLEANTAIL_JARS": str(self.jars),
            "CLEANTAIL_CONFIG": str(CONFIG),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            **(json.loads(self._secrets.read_text()) if self._secrets.exists() else {}),
            **PARSED_ONCE,
        }

    @property
    def _secrets(self) -> Path:
        """The file with the two keys of erasures."""
        return self.path / "erasure-keys.json"

    def airflow(self, command: str, *options: str, variables: Mapping[str, str] | None = None) -> str:
        """Run bin/cleantail-airflow on this home, with more variables in its environment, and return its output.

        Raises DemoError with the output if the script fails. It runs in a separate session, so that Ctrl-C reaches only
        the demonstration. The demonstration then stops Airflow in order.
        """
        argv = [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), command, *options]
        env = self.environment() | dict(variables or {})
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, start_new_session=True)
        if done.returncode:
            raise DemoError(f"bin/cleantail-airflow {command} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    @property
    def passwords(self) -> Path:
        return self.path / "airflow" / "passwords.json"

    @property
    def password(self) -> str:
        passwords: dict[str, str] = json.loads(self.passwords.read_text())
        return passwords["admin"]

    @property
    def alerts(self) -> Path:
        return self.path / "alerts" / "demo.jsonl"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port

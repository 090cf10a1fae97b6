"""The demonstration's Kafka broker: one node on loopback, without a login. Its data are in CLEANTAIL_HOME/demo/broker.

The broker runs as long as the demonstration's Airflow. With --keep both continue after the process that started them.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # comes with Airflow

from differential.broker import (
    LOOPBACK,
    free_port,
    is_formatted,
    java_command,
    start_broker,
    stop_broker,
    wait_until_started,
)

CONNECTION = "kafka_demo"
"""The Airflow connection of the broker, which demo/config names."""
STATE = "up.json"
CALM = {"log.cleaner.backoff.ms": 60_000, "log.retention.check.interval.ms": 300_000}
"""Properties of a broker that has nothing to clean: its cleaner checks no more often than by default."""


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """The broker of one demonstration: the folder of its data, its jars and its port."""

    folder: Path
    jars: Path
    port: int

    @classmethod
    def of(cls, folder: Path, jars: Path) -> KafkaBroker:
        """Return the broker at its present or last port. The broker gets a new port if another program uses that port,
        or if it never had one."""
        noted = _noted(folder)
        port = int(noted["port"]) if noted and (_process(noted) or _is_free(noted["port"])) else free_port()
        return cls(folder, jars, port)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def has_data(self) -> bool:
        """Return whether the broker was ever started."""
        return is_formatted(self.folder)

    @property
    def variables(self) -> dict[str, str]:
        """Return the variable of the connection, for the environment of Airflow and of the command line."""
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": self.address}}
        return {f"AIRFLOW_CONN_{CONNECTION.upper()}": json.dumps(connection)}

    def require_parts(self) -> None:
        """Raise BrokerError if there is no Java, or if the broker's jars are missing."""
        java_command(self.jars)

    def up(self) -> None:
        """Start the broker if it does not run, and wait until it answers. Raises BrokerError."""
        noted = _noted(self.folder)
        if noted and _process(noted):
            return
        self.folder.mkdir(exist_ok=True)
        process = start_broker(self.folder, java_command(self.jars), self.port, CALM)
        note = {"pid": process.pid, "port": self.port, "started": psutil.Process(process.pid).create_time()}
        (self.folder / STATE).write_text(json.dumps(note))
        wait_until_started(process, self.folder / "broker.log")

    def down(self) -> bool:
        """Stop the broker. Return whether it ran."""
        noted = _noted(self.folder)
        process = _process(noted) if noted else None
        if process is not None:
            stop_broker(process.pid)
        return process is not None


def _noted(folder: Path) -> dict[str, Any] | None:
    """Return the notes of the last start. None if the broker was never started."""
    try:
        noted: dict[str, Any] = json.loads((folder / STATE).read_text())
    except (OSError, ValueError):
        return None
    return noted


def _process(noted: dict[str, Any]) -> psutil.Process | None:
    """Return the process that the notes name. None if it has ended, even if another process now has its number."""
    try:
        process = psutil.Process(noted["pid"])
        same = process.create_time() == noted["started"] and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if same else None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True

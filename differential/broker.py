"""A real Kafka broker for the time of a block: KRaft, one node, loopback, with its data in the caller's directory.

    with running_broker(directory, jars) as broker:
        ...

The jars are those that `make setup` fetched. The JVM ends with the block, also after an error.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # comes with Airflow
import pyspark

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = "127.0.0.1"
READY_WITHIN_S = 90
STOPPED_WITHIN_S = 20
BACKOFF_MS = 200
SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that starts fast. It ends, or only waits, before more compilation would pay off."""
JVM = ("-Xmx512m", *SHORT_LIFE)
CLEANED = re.compile(r"cleaned log (\S+)-(\d+) \(dirty section = \[(\d+), (\d+)\]\)")


class BrokerError(Exception):
    """The broker did not start, or did not do what the comparison needs."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """One cleaning of one log in the broker's own log."""

    topic: str
    partition: int
    first_dirty_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker: its address, its process, and the state of its logs from its directory."""

    address: str
    logs: Path
    output: Path
    pid: int = 0

    def checkpoints(self, topic: str) -> dict[int, int]:
        """Return partition -> first dirty offset, from `cleaner-offset-checkpoint`. It omits logs that were never
        cleaned."""
        return {partition: offset for (name, partition), offset in self.all_checkpoints().items() if name == topic}

    def all_checkpoints(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> first dirty offset, of all logs that were ever cleaned."""
        file = self.logs / "cleaner-offset-checkpoint"
        rows = [line.split() for line in file.read_text().splitlines()[2:]] if file.exists() else []
        return {(name, int(partition)): int(offset) for name, partition, offset in rows}

    def segment_bases(self, topic: str, partition: int) -> list[int]:
        """Return the base offsets of the segments, ascending: the last one is the active segment's."""
        return sorted(int(file.stem) for file in (self.logs / f"{topic}-{partition}").glob("*.log"))

    def cleanings(self, topic: str) -> list[Cleaning]:
        """Return every cleaning of the topic's logs so far."""
        lines = CLEANED.findall(self.output.read_text(errors="replace"))
        return [Cleaning(name, *map(int, numbers)) for name, *numbers in lines if name == topic]


def kafka_jars(env: Mapping[str, str]) -> Path:
    """Return CLEANTAIL_KAFKA_JARS, else `jars-kafka` under CLEANTAIL_HOME (default: .cleantail next to this
    package)."""
    home = Path(env.get("CLEANTAIL_HOME") or ROOT / ".cleantail")
    return Path(env.get("CLEANTAIL_KAFKA_JARS") or home / "jars-kafka").absolute()


@contextlib.contextmanager
def running_broker(
    directory: Path,
    jars: Path,
    jvm: Sequence[str] = JVM,
    extra_properties: Mapping[str, object] | None = None,
    cluster_id: str | None = None,
) -> Iterator[Broker]:
    """Format and start a broker, wait until it answers, and stop it at the end of the block. Raises BrokerError.

    `extra_properties` are added to those of a broker for tests, or replace them. `cluster_id`: None for a random one.
    """
    java, port, output = java_command(jars, jvm), free_port(), directory / "broker.log"
    process = start_broker(directory, java, port, extra_properties, cluster_id)
    try:
        wait_until_started(process, output)
        yield Broker(f"{LOOPBACK}:{port}", directory / "logs", output, process.pid)
    finally:
        stop_broker(process.pid)
        process.wait()


def start_broker(
    directory: Path,
    java: Sequence[str],
    port: int,
    extra_properties: Mapping[str, object] | None = None,
    cluster_id: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a broker on the data in `directory`, which is formatted first if it is empty. The broker runs until it is
    stopped, even if the process that started it ends. Its output is in `broker.log`. Raises BrokerError."""
    settings, logs = directory / "server.properties", directory / "logs"
    controller_port = next(other for other in free_ports(2) if other != port)
    properties = _properties(logs, port, controller_port) | dict(extra_properties or {})
    settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    if not is_formatted(directory):
        _format(java, settings, cluster_id or random_cluster_id())
    with (directory / "broker.log").open("wb") as log:
        # a separate session: Ctrl-C reaches only this process, which stops the broker in order
        return subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def is_formatted(directory: Path) -> bool:
    """Return whether a broker has its data in `directory`."""
    return (directory / "logs" / "meta.properties").exists()


def java_command(jars: Path, jvm: Sequence[str] = JVM) -> list[str]:
    """Return the command that starts Java with the jars. Raises BrokerError if there is no Java, or no jars.

    Spark's resolver omits scala-library, because Spark has its own. The broker uses Spark's.
    """
    if shutil.which("java") is None:
        raise BrokerError("there is no java on PATH: Java 17 or newer is needed")
    if not list(jars.glob("*kafka_2.13*.jar")):
        raise BrokerError(f"no Kafka jars in {jars}: run `make setup`, or name them in CLEANTAIL_KAFKA_JARS")
    scala = next((Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"))
    return ["java", *jvm, "-cp", f"{jars}/*:{scala}"]


def _properties(logs: Path, port: int, controller_port: int) -> dict[str, object]:
    """Return the properties of a broker for tests of the cleaner: it checks often, and nothing is deleted by age."""
    one_replica = {
        f"{name}.{setting}": 1
        for name in ("offsets.topic", "transaction.state.log")
        for setting in ("replication.factor", "num.partitions")
    }
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": logs,
        "auto.create.topics.enable": "false",
        "transaction.state.log.min.isr": 1,
        **one_replica,
        "log.cleaner.backoff.ms": BACKOFF_MS,
        "log.cleaner.dedupe.buffer.size": 8 << 20,
        "log.initial.task.delay.ms": 100,
        "log.retention.check.interval.ms": 1000,
        "log.retention.ms": -1,
    }


def random_cluster_id() -> str:
    """Return an id in the form of Kafka's own tool: 16 random bytes in base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _format(java: Sequence[str], settings: Path, cluster_id: str) -> None:
    """Format the broker's directory. The id is joined to its option, because one id of 64 begins with a dash and would
    be parsed as an option."""
    command = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrokerError(f"the broker's directory could not be formatted:\n{done.stderr[-2000:]}")


def wait_until_started(process: subprocess.Popen[bytes], output: Path) -> None:
    """Wait until the broker that writes `output` is up. Raises BrokerError, with the end of the output, if it ended or
    takes too long."""
    began = time.monotonic()
    while "Kafka Server started" not in (log := output.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() - began > READY_WITHIN_S:
            raise BrokerError(f"the broker did not start:\n{log[-2000:]}")
        time.sleep(0.1)


def stop_broker(pid: int) -> None:
    """Stop a broker's process group, which start_new_session made. A second Ctrl-C does not interrupt this."""
    with _signals_ignored():
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal_group(pid, number)
            with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                psutil.Process(pid).wait(STOPPED_WITHIN_S)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM during the block."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def free_port() -> int:
    [port] = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Return this many free ports. All are held until the last one is found, so that they differ."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]

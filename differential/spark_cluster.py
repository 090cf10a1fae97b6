"""A Spark standalone cluster on this machine, for tests and benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cleantail.home.driver_process import with_own_python
from differential.broker import SHORT_LIFE, free_ports

LOOPBACK = "127.0.0.1"
READY_WITHIN_S = 60
LOG_END = 3000


class ClusterError(Exception):
    """The workers did not start in time."""


@contextmanager
def spark_cluster(directory: Path, workers: int = 2, memory: str = "1g") -> Iterator[str]:
    """Start a master and workers of one core each, and yield the master's address. Their log is `directory`/log."""
    port, page = free_ports(2)
    env = {**with_own_python(os.environ), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_WORKER_DIR": str(directory)}
    env.setdefault("SPARK_DAEMON_JAVA_OPTS", " ".join(SHORT_LIFE))
    env.pop("PYSPARK_GATEWAY_PORT", None)
    spark, address = str(Path(sys.executable).parent / "spark-class"), f"spark://{LOOPBACK}:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[spark, f"{deploy}.master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]]
    worker = [spark, f"{deploy}.worker.Worker", "--host", LOOPBACK, "--cores", "1", "--memory", memory]
    commands += workers * [[*worker, "--webui-port", "0", address]]
    running = []
    try:
        with (directory / "log").open("wb") as log:
            for command in commands:
                running.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True))
        _wait_for(page, workers, running, directory / "log")
        yield address
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def _wait_for(page: int, workers: int, running: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
    """Wait until the workers are registered. Raises ClusterError with the end of their log, at once if one of the
    processes has ended."""
    began = time.monotonic()
    while time.monotonic() - began < READY_WITHIN_S and all(process.poll() is None for process in running):
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{page}/json/") as answer:
                if json.load(answer)["aliveworkers"] == workers:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    end = log.read_text(errors="replace")[-LOG_END:].strip()
    raise ClusterError(f"{workers} workers did not start within {READY_WITHIN_S} s. The end of their log:\n{end}")


def processes_of(directory: Path, what: str) -> list[int]:
    """Return the processes in the cluster's directory with the text `what` in their command line."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").resolve().is_relative_to(directory.resolve())
            if inside and what.encode() in (process / "cmdline").read_bytes():
                processes.append(int(process.name))
        except OSError:
            continue
    return processes

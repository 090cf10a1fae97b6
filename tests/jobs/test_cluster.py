"""Spark standalone, with two workers: rounds run there as on a local master, once the workers have what tasks import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from differential.broker import free_port
from tests.jobs.test_rounds import NOW, offsets, record

LOOPBACK = "127.0.0.1"
READY_WITHIN_S = 60


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """The address of a master with two workers of one core."""
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(directory) as address:
        yield address


@contextmanager
def cluster(directory):
    port, page = free_port(), free_port()
    env = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "SPARK_WORKER_DIR": str(directory)}
    env.pop("PYSPARK_GATEWAY_PORT", None)
    spark, address = str(Path(sys.executable).parent / "spark-class"), f"spark://{LOOPBACK}:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[spark, f"{deploy}.master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]]
    worker = [spark, f"{deploy}.worker.Worker", "--host", LOOPBACK, "--cores", "1", "--memory", "1g"]
    commands += 2 * [[*worker, "--webui-port", "0", address]]
    running = []
    try:
        with (directory / "log").open("wb") as log:
            for command in commands:
                running.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True))
        _wait_for_workers(page, 2)
        yield address
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def _wait_for_workers(page, workers):
    began = time.monotonic()
    while time.monotonic() - began < READY_WITHIN_S:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{page}/json/") as answer:
                if json.load(answer)["aliveworkers"] == workers:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("the workers did not come up")


def command(workshop, master, python, *argv):
    """Runs a command in a process of its own on the cluster, whose workers have this Python."""
    conf = {"spark.pyspark.python": str(python), "spark.executor.memory": "512m", "spark.executor.cores": 1}
    spark = {"master": master, "insecure": True, "conf": conf}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": spark}}))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    cli = [sys.executable, "-m", "cleantail.cli", *map(str, argv), "--config", str(workshop.config)]
    return subprocess.run(cli, capture_output=True, text=True, env=env, check=False)


def test_rounds_run_on_a_cluster_once_its_workers_have_what_tasks_import(workshop, master, tmp_path):
    topic = workshop.topic("clustered", {"compaction.strategy": "timestamp"})
    lines = [record(i, f"k{i % 5}", "x", partition=p) for p in range(3) for i in range(20)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    refused = command(workshop, master, bare / "bin" / "python", "compact", topic, "--now", NOW)
    assert refused.returncode == 2
    assert "the Python of Spark's workers cannot run Cleantail's tasks: " in refused.stderr
    assert "duckdb is not installed" in refused.stderr and "make worker-environment" in refused.stderr
    assert len(workshop.read(topic)) == 60
    done = command(workshop, master, sys.executable, "compact", topic, "--now", NOW, "--json")
    assert done.returncode == 0, done.stderr
    assert offsets(workshop.read(topic)) == 3 * list(range(15, 20))

"""Spark standalone, with two workers: rounds run there as on a local master.

A driver whose executors are lost ends after a configured time, and its next try does the work.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cleantail.lake.spark_settings import SMALL_RUN
from differential.broker import ROOT, SHORT_LIFE
from differential.spark_cluster import processes_of, spark_cluster
from tests.jobs.round.test_rounds import NOW, offsets, record

pytestmark = pytest.mark.integration
SHORT_RUN = {
    **SMALL_RUN,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": " ".join(SHORT_LIFE),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def master(directory):
    """The address of a master with two workers of one core."""
    with spark_cluster(directory) as address:
        yield address


def command(workshop, master, python, *argv, archive=None, executors=2):
    """Runs a command in a process of its own on so many executors of the cluster, whose workers have this Python, or that
    of an archive."""
    conf = {**SHORT_RUN, "spark.pyspark.python": str(python), "spark.cores.max": executors, "spark.executor.cores": 1}
    if archive is not None:
        conf |= {"spark.archives": f"{archive}#environment", "spark.pyspark.driver.python": sys.executable}
    spark = {"master": master, "insecure": True, "conf": conf}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": spark}}))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    cli = [sys.executable, "-m", "cleantail_cli", *map(str, argv), "--config", str(workshop.config)]
    return subprocess.run(cli, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("kills", [0, pytest.param(2, marks=pytest.mark.deep)])
def test_a_round_runs_on_a_cluster_and_outlives_executors_that_are_killed(workshop, master, directory, kills):
    """Spark gives the tasks of a killed one to others; a second copy of a task changes nothing, as tasks only return what
    they find."""
    topic = workshop.topic(f"clustered-{kills}", {"compaction.strategy": "timestamp"})
    lines = [record(i, f"k{i % 5}", "x", partition=p) for p in range(3) for i in range(20)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    with killed_at_work(directory, kills) as killed:
        done = command(workshop, master, sys.executable, "compact", topic, "--now", NOW, "--json", executors=1 + kills)
    assert bool(killed) == bool(kills)
    assert done.returncode == 0, done.stderr
    assert offsets(workshop.read(topic)) == 3 * list(range(15, 20))


@contextmanager
def killed_at_work(directory, count):
    """Kills so many executors of the cluster. One is at work once it has started Python."""
    killed = list[int]()
    over = threading.Event()

    def kill():
        while len(killed) < count and not over.is_set():
            if processes_of(directory, "pyspark.daemon"):
                for executor in processes_of(directory, "CoarseGrainedExecutorBackend")[:1]:
                    os.kill(executor, signal.SIGKILL)
                    killed.append(executor)
                    time.sleep(2)
            time.sleep(0.1)  # the daemon lives as long as its executor, and each look goes through all processes

    killer = threading.Thread(target=kill)
    killer.start()
    yield killed
    over.set()
    killer.join()


@pytest.mark.deep
def test_a_round_is_refused_if_the_workers_python_lacks_the_packages(workshop, master, tmp_path):
    """test_a_command_changes_nothing_where_workers_lack_a_package holds the rule."""
    topic = workshop.topic("bare-workers")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(i, "k", "x") for i in range(3)]))
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    refused = command(workshop, master, bare / "bin" / "python", "compact", topic, "--now", NOW, executors=1)
    assert refused.returncode == 2
    assert "the Python of Spark's workers cannot run Cleantail's tasks: " in refused.stderr
    assert "duckdb is not installed" in refused.stderr and "make worker-environment" in refused.stderr
    assert len(workshop.read(topic)) == 3


@pytest.mark.deep
def test_the_packed_environment_is_all_that_workers_need(workshop, master, directory, tmp_path):
    topic = workshop.topic("packed-environment")
    lines = [record(i, f"k{i % 5}", "x") for i in range(20)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    archive = tmp_path / "environment.tar.gz"
    subprocess.run(["bin/worker-environment", str(archive)], check=True, cwd=ROOT)
    python = "./environment/bin/python"
    done = command(workshop, master, python, "compact", topic, "--now", NOW, "--json", archive=archive)
    assert done.returncode == 0, done.stderr
    assert offsets(workshop.read(topic)) == list(range(15, 20))
    assert [folder for folder in directory.rglob("environment") if (folder / "lib").is_dir()]


@contextmanager
def restarted_at_work(address, directory):
    """Kill the master once an executor is at work, and start one at its address that does not know the application.

    The executor's Python processes are stopped first, so that the job cannot end before."""
    over, restarted, stopped = threading.Event(), list[subprocess.Popen[bytes]](), list[int]()

    def restart():
        while not (at_work := processes_of(directory, "pyspark.daemon")) and not over.wait(0.02):
            pass
        for pid in at_work:
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        pid = master_of(address)
        command, environment = (
            (Path(f"/proc/{pid}") / name).read_bytes().rstrip(b"\0").split(b"\0") for name in ("cmdline", "environ")
        )
        os.kill(pid, signal.SIGKILL)
        time.sleep(1)
        env = dict(line.split(b"=", 1) for line in environment if b"=" in line)
        with (directory / "log").open("ab") as log:
            restarted.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        yield restarted
    finally:
        over.set()
        thread.join()
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def master_of(address):
    port = address.rpartition(":")[2]
    for process in Path("/proc").glob("[0-9]*"):
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0") if process.exists() else []
        if "org.apache.spark.deploy.master.Master" in words and port in words and words[0].endswith("java"):
            return int(process.name)
    raise AssertionError("no master runs")


@pytest.mark.deep
def test_a_driver_whose_master_forgot_it_fails_with_what_it_saw_and_its_next_try_goes_on(
    workshop, master, directory, tmp_path
):
    """The last test of the cluster: another master is there at its end."""
    topic = workshop.topic("lost-executors")
    lines = [record(i, f"k{i % 5}", "x") for i in range(20)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    result = tmp_path / "result.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    conf = {**SHORT_RUN, "spark.pyspark.python": sys.executable, "spark.cores.max": 1}
    platform = {"spark": {"master": master, "insecure": True, "conf": conf}}
    platform["cleaner"] = {"cleantail.executors.lost.ms": 10_000}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    job = [sys.executable, "-m", "spark_jobs.run_station", "run_pack", "--config", str(workshop.config)]
    request = {"topics": [topic], "now_ms": int(time.time() * 1000)}
    command = [*job, "--request", json.dumps(request), "--result", str(result)]
    with restarted_at_work(master, directory) as restarted:
        first = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200)
    try:
        assert first.returncode == 4, first.stderr
        error = json.loads(result.read_text())["error"]
        assert f"lost all of its executors from {master}" in error and "10s" in error
        assert error in first.stderr
        again = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200)
        assert again.returncode == 0, again.stderr
        assert offsets(workshop.read(topic)) == list(range(15, 20))
    finally:
        for process in restarted:
            process.kill()
            process.wait()

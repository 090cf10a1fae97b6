"""A driver whose executors are lost, or that never got one, ends after a configured time. Its next try does the work."""

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

from differential.broker import SHORT_LIFE
from differential.spark_cluster import processes_of, spark_cluster
from spark_jobs.iceberg.executor_watch import Watch
from tests.jobs.round.test_rounds import offsets, record

MASTER = "spark://host:7077"


@pytest.mark.parametrize(
    ("seen", "ends_at"),
    [
        pytest.param([(0, 1, 2), (500, 1, 2)], None, id="it has executors"),
        pytest.param([(0, 0, 0), (500, 0, 0)], None, id="nothing to do"),
        pytest.param([(0, 1, 0), (9, 1, 0), (10, 1, 0)], 10, id="no executor from the beginning"),
        pytest.param([(0, 1, 2), (100, 1, 0), (105, 1, 2), (109, 1, 0), (118, 1, 0)], None, id="others in between"),
        pytest.param([(0, 1, 2), (100, 1, 0), (105, 0, 0), (109, 1, 0), (118, 1, 0)], None, id="no job in between"),
        pytest.param([(0, 1, 2), (100, 1, 0), (111, 1, 0)], 111, id="lost"),
    ],
)
def test_an_application_ends_once_its_jobs_have_had_no_executor_for_too_long(seen, ends_at):
    watch = Watch(10_000, MASTER)
    errors = {now: watch.error(jobs, executors, now) for now, jobs, executors in seen}
    assert [now for now, error in errors.items() if error] == ([ends_at] if ends_at else [])


def test_the_error_names_master_jobs_time_and_what_happened():
    never, lost = Watch(1_000, MASTER), Watch(1_000, MASTER)
    lost.error(1, 2, 0)
    for watch in (never, lost):
        assert watch.error(2, 0, 1) is None
    assert str(never.error(2, 0, 3)).startswith(
        f"the application got no executor from {MASTER}: 2 jobs waited for cleantail.executors.lost.ms 1s"
    )
    assert "lost all of its executors" in str(lost.error(2, 0, 3))


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


@pytest.mark.integration
def test_a_driver_whose_master_forgot_it_fails_with_what_it_saw_and_its_next_try_goes_on(workshop, tmp_path):
    topic = workshop.topic("lost-executors")
    lines = [record(i, f"k{i % 5}", "x") for i in range(20)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    directory = tmp_path / "cluster"
    directory.mkdir()
    result = tmp_path / "result.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    with spark_cluster(directory, workers=1) as master:
        conf = {"spark.pyspark.python": sys.executable, "spark.executor.memory": "512m", "spark.cores.max": 1}
        conf |= dict.fromkeys(
            ("spark.executor.extraJavaOptions", "spark.driver.extraJavaOptions"), " ".join(SHORT_LIFE)
        )
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

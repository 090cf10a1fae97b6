"""A worker that is killed in the middle of a task: what it has left running is ended by the next try, which then runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.airflow_environment import ROOT
from tests.airflow_site import Site, StubbedJobs
from tests.plugins.tasks.test_spark_operator import Publish, execute

WORKER = """
import sys
config, root, folder = sys.argv[1:]
sys.path.insert(0, root)
import tests.airflow_environment
from cleantail_airflow.tasks import spark_job as operators
from tests.plugins.tasks.test_spark_operator import Publish, execute
real = operators.spark_environment
operators.spark_environment = lambda env: {**(own := real(env)), "PATH": f"{folder}:{own['PATH']}"}
execute(Publish(task_id="publish", topic="orders", config_dir=config))
"""
SLOW = """#!/bin/sh
echo $$ > "$STUB/first.pid"
sleep 600
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_the_next_try_ends_what_a_killed_worker_has_left_and_runs(
    site: Site, jobs: StubbedJobs, tmp_path: Path
) -> None:
    site.topic("orders")
    folder, stub = tmp_path / "slow", jobs.place
    folder.mkdir()
    (folder / "spark-submit").write_text(SLOW)
    (folder / "spark-submit").chmod(0o755)
    env = {**os.environ, "CLEANTAIL_HOME": str(site.home), "STUB": str(stub)}
    command = [sys.executable, "-c", WORKER, str(site.config), str(ROOT), str(folder)]
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
    notes, ends_s = site.home / "drivers", time.monotonic() + 120
    while not (list(notes.glob("*.json")) and (stub / "first.pid").exists()):
        assert worker.poll() is None and time.monotonic() < ends_s, log.read_text()[-3000:]
        time.sleep(0.1)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    left = int((stub / "first.pid").read_text())
    assert is_there(left)
    jobs.answer("publish", {"ok": True, "published": [0]})
    operator = Publish(task_id="publish", topic="orders", config_dir=str(site.config))
    assert execute(operator) == {"ok": True, "published": [0]}
    assert not is_there(left)
    assert not list(notes.glob("*.json")), [json.loads(f.read_text()) for f in notes.glob("*.json")]

"""A whole DAG run of a small topic under a real Airflow, and the cost of that Airflow while it is idle."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil  # comes with Airflow

from benchmarks.harness.dataset import build
from benchmarks.harness.fresh_process import BenchmarkError, in_fresh_process, say
from benchmarks.harness.lake import Lake, spark_jars
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import TOPIC_CONFIG
from benchmarks.topics.startup import SMALL
from demo.airflow_api import AirflowApi
from demo.home import free_port
from differential.broker import ROOT

COLUMNS = (
    Column("what", "text"),
    Column("begins, s"),
    Column("takes, s"),
    Column("fastest to slowest", "text"),
    Column("of the whole", "percent"),
)
NOTES = (
    "The time of a run is from its start to its end, on the embedded Airflow (LocalExecutor) as shipped, with "
    "scheduler, DAG processor, triggerer and web server on the same cores. The table is restored between the runs.",
    "A task's time is from its process's start to its end. Tasks that were skipped are left out.",
    "Idle: processor time of all of Airflow's processes over a minute in which no run is due, as a share of one core.",
)
RUN_WITHIN_S, SETTLED_AFTER_S, IDLE_S = 300, 60, 60
STATE = ("catalog.db", "warehouse")
"""The parts of CLEANTAIL_HOME that a run changes, without Airflow's own files."""


def run(options: Options) -> Table:
    # 1. a lake, and a copy to restore
    lake = replace(options.lake, directory=options.lake.directory / "in_airflow")
    shutil.rmtree(lake.directory, ignore_errors=True)
    lake.directory.mkdir()
    in_fresh_process(build, lake, SMALL)
    _keep(lake.home, lake.directory / "saved")
    _with_schedule(lake)
    # 2. the runs
    runs = []
    with airflow(lake) as api:
        api.wait_for_dag(SMALL.topic, lambda: False)
        for number in range(options.repetitions + 1):
            say(f"DAG run {number} of {options.repetitions}: {SMALL.text}")
            _keep(lake.directory / "saved", lake.home)
            runs.append(_run(api, f"bench-{number}"))
        # 3. Airflow while nothing is due, with one topic and with many
        idle = [("Airflow idle, 1 topic", idle_share(lake))]
        for number in range(1, options.topics):
            lake.write_topic(f"idle_{number:04d}", TOPIC_CONFIG)
            _with_schedule(lake, f"idle_{number:04d}")
        api.wait_for_dag(f"idle_{options.topics - 1:04d}", lambda: False)
        time.sleep(SETTLED_AFTER_S)
        idle.append((f"Airflow idle, {options.topics} topics", idle_share(lake)))
    # 4. the table
    title = f"A DAG run over {SMALL.total:,} records in {SMALL.partitions} partitions, evaluate to expiry"
    rows = (*_rows(runs), *((name, None, None, f"{share:.1%} of a core", None) for name, share in idle))
    return Table("in_airflow", title, COLUMNS, rows, (*NOTES, options.text))


def _keep(source: Path, target: Path) -> None:
    """Copy the table at `source` to `target`. Iceberg's paths are absolute, so a table is used only at its first
    path."""
    target.mkdir(exist_ok=True)
    for name in STATE:
        if (target / name).is_dir():
            shutil.rmtree(target / name)
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy
        copy(source / name, target / name)


def _with_schedule(lake: Lake, name: str = SMALL.topic) -> None:
    """Remove the topic's schedule, so that only the measured runs take place."""
    file = lake.config / "topics" / f"{name}.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schedule": None}))


@contextmanager
def airflow(lake: Lake) -> Iterator[AirflowApi]:
    port = free_port()
    _command(lake, "up", "--port", str(port))
    try:
        passwords = json.loads((lake.home / "airflow" / "passwords.json").read_text())
        yield AirflowApi(port, passwords["admin"])
    finally:
        _command(lake, "down")


def _command(lake: Lake, *arguments: str) -> None:
    """Run bin/cleantail-airflow on the lake, without the caller's variables of Airflow."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_", "CLEANTAIL_"))}
    folders = {"HOME": lake.home, "CONFIG": lake.config, "JARS": spark_jars()}
    environment = environment | {f"CLEANTAIL_{name}": str(folder) for name, folder in folders.items()}
    argv = [sys.executable, str(ROOT / "bin" / "cleantail-airflow"), *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"bin/cleantail-airflow {arguments[0]} failed:\n{done.stdout}{done.stderr}")


def _run(api: AirflowApi, run_id: str) -> dict[str, tuple[float, float]]:
    """Return task -> (begin, end) in seconds from the run's start; "" is the run."""
    api.trigger(SMALL.topic, run_id)
    end = time.monotonic() + RUN_WITHIN_S
    while time.monotonic() < end:
        run = api.run(SMALL.topic, run_id)
        if run["state"] == "success":
            spans = {_name(task): span(task) for task in api.tasks(SMALL.topic, run_id) if task["state"] == "success"}
            begin, last = span(run)
            _require_all(spans)
            return {"": (0.0, last - begin)} | {n: (a - begin, b - begin) for n, (a, b) in spans.items()}
        if run["state"] == "failed":
            raise BenchmarkError(f"the run {run_id} failed")
        time.sleep(0.5)
    raise BenchmarkError(f"the run {run_id} did not end within {RUN_WITHIN_S} s")


def _name(task: dict[str, Any]) -> str:
    number = task["map_index"]
    return str(task["task_id"]) if number < 0 else f"{task['task_id']} [{number}]"


def span(timed: dict[str, Any]) -> tuple[float, float]:
    begin, end = (datetime.fromisoformat(timed[name]).timestamp() for name in ("start_date", "end_date"))
    return begin, end


def _require_all(spans: dict[str, tuple[float, float]]) -> None:
    """Raise BenchmarkError if the run published nothing: its time would not be that of a round."""
    if not any(name.startswith("publish") for name in spans):
        raise BenchmarkError(f"nothing was published; what ran: {sorted(spans)}")


def _rows(runs: list[dict[str, tuple[float, float]]]) -> list[tuple[Value, ...]]:
    whole = Times.of(run[""][1] for run in runs)
    rows: list[tuple[Value, ...]] = []
    for name in sorted(set.union(*(set(run) for run in runs)) - {""}):
        spans = [run[name] for run in runs if name in run]
        took = Times.of(end - begin for begin, end in spans)
        rows.append((name, Times.of(b for b, _ in spans).warm, took.warm, took.spread, ratio(took.warm, whole.warm)))
    rows.sort(key=lambda row: float(row[1] or 0))
    return [*rows, ("the run, start to end", 0.0, whole.warm, whole.spread, 1.0)]


def idle_share(lake: Lake) -> float:
    """Return the processor seconds that Airflow's processes use in one second."""
    leader = psutil.Process(json.loads((lake.home / "airflow" / "up.json").read_text())["pid"])
    before, began = _processor_seconds(leader), time.monotonic()
    time.sleep(IDLE_S)
    return (_processor_seconds(leader) - before) / (time.monotonic() - began)


def _processor_seconds(leader: psutil.Process) -> float:
    """Return the processor seconds of a process and all its descendants, including those that have ended."""
    total = 0.0
    for process in (leader, *leader.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended meanwhile, and its parent's seconds include its own
            total += sum(process.cpu_times()[:4])
    return total

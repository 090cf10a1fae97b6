"""The gain of each trick that saves time: `cleantail compact` with and without the trick, for few and for many records,
on a local master and on Spark standalone. Also the start of the embedded Airflow with and without its forks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.harness.dataset import build
from benchmarks.harness.fresh_process import BenchmarkError, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import NOW_MS, Shape
from benchmarks.rounds.standalone import WORKER_MEMORY
from benchmarks.topics.commands import cleantail, saved
from benchmarks.topics.startup import SMALL
from cleantail.lake.spark_settings import JVM_OPTIONS, LOGGING, SMALL_RECORDS
from demo.home import free_port
from differential.broker import ROOT
from differential.spark_cluster import spark_cluster
from embedded_airflow.supervisor import wait_until_healthy


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How to run without a trick: Spark's settings, or Python code that runs before the command."""

    conf: Mapping[str, str] = field(default_factory=dict)
    before: str = ""


ALL = "all of them"
FEW = "without the settings for few records"
WITHOUT: Mapping[str, LeftOut] = {
    ALL: LeftOut(),
    "without the archive of classes": LeftOut(
        {"spark.driver.defaultJavaOptions": f'-Dlog4j2.configurationFile="{LOGGING.as_uri()}"'}
    ),
    "without workers that are forked with their imports": LeftOut({"spark.python.daemon.module": "pyspark.daemon"}),
    FEW: LeftOut(
        {
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.codegen.wholeStage": "true",
            "spark.sql.codegen.factoryMode": "FALLBACK",
            "spark.sql.shuffle.partitions": "8",
            "spark.driver.extraJavaOptions": JVM_OPTIONS,
        }
    ),
    "without answers of the JVM that are acknowledged at once": LeftOut(
        before="from spark_jobs.iceberg import session; session.QUICK_ACK = None"
    ),
    "without the import of Great Expectations while Spark starts": LeftOut(
        before="from spark_jobs.quality import gx_validation; gx_validation.preload = lambda: None"
    ),
}
"""Name of the omitted trick -> how to omit it."""
AIRFLOW = {
    "all of them": "",
    "without components that are forked with their imports": "import psutil, sys; components.preload = "
    "components.preload_for_tasks = lambda: None; components.start = lambda *command: "
    'psutil.Popen([sys.executable, "-m", "airflow", *command])',
}
"""Name of the omitted trick of the embedded Airflow -> Python code that omits it."""
COLUMNS = (
    Column("on", "text"),
    Column("records", "count"),
    Column("what runs", "text"),
    Column("takes, s"),
    Column("fastest to slowest", "text"),
    Column("to all of them", "ratio"),
)
NOTES = (
    "The time of `cleantail compact` is from the process's start to its end. *without* replaces one trick by the "
    "behaviour of Spark or Py4J. The time of the embedded Airflow is from its start with an empty home until its "
    "scheduler and its DAG processor are healthy.",
    "20 % of the records are updates. Standalone: workers of one core, as many as the local master has threads.",
)


def run(options: Options) -> Table:
    rows: list[tuple[Value, ...]] = []
    for shape in (SMALL, Shape(options.records, 0.2)):
        lake = replace(options.lake, directory=options.lake.directory / f"tricks_{shape.total}")
        shutil.rmtree(lake.directory, ignore_errors=True)  # a killed run may have left it compacted
        lake.directory.mkdir()
        in_fresh_process(build, lake, shape)
        rows += _rows(lake, shape, options.repetitions)
        shutil.rmtree(lake.directory)
    rows += _airflow_rows(options.lake, options.repetitions)
    return Table("tricks", "What the speed tricks give", COLUMNS, tuple(rows), (*NOTES, options.text))


def _rows(lake: Lake, shape: Shape, repetitions: int) -> Iterator[tuple[Value, ...]]:
    again = saved(lake)
    with tempfile.TemporaryDirectory() as folder, spark_cluster(Path(folder), lake.cores, WORKER_MEMORY) as master:
        for name, each in {f"local[{lake.cores}]": lake, "standalone": replace(lake, cluster=master)}.items():
            in_fresh_process(_write_config, each)
            tricks = {k: v for k, v in WITHOUT.items() if k != FEW or shape.total <= SMALL_RECORDS}
            seconds: dict[str, list[float]] = {left_out: [] for left_out in tricks}
            for number in range(repetitions + 1):
                say(f"{name}, {shape.total:,} records, {number} of {repetitions}")
                for left_out, how in tricks.items():
                    again()
                    command = ("compact", shape.topic, "--now", str(NOW_MS), "--force")
                    config = _config_with(each, how.conf)
                    seconds[left_out].append(cleantail(each, *command, config=config, before=how.before))
            times = {left_out: Times.of(took) for left_out, took in seconds.items()}
            for left_out, took in times.items():
                yield name, shape.total, left_out, took.warm, took.spread, ratio(took.warm, times[ALL].warm)


def _write_config(lake: Lake) -> None:
    assert lake.platform


def _config_with(lake: Lake, conf: Mapping[str, str]) -> Path:
    """Write a copy of the lake's configuration with more settings of Spark, and return its directory."""
    folder = lake.directory / "config_without"
    shutil.copytree(lake.config, folder, dirs_exist_ok=True)
    defaults = json.loads((folder / "defaults.yaml").read_text())
    defaults["platform"]["spark"]["conf"] |= conf
    (folder / "defaults.yaml").write_text(json.dumps(defaults))
    return folder


def _airflow_rows(lake: Lake, repetitions: int) -> Iterator[tuple[Value, ...]]:
    seconds: dict[str, list[float]] = {left_out: [] for left_out in AIRFLOW}
    for number in range(repetitions + 1):
        say(f"start of the embedded Airflow, {number} of {repetitions}")
        for left_out, before in AIRFLOW.items():
            seconds[left_out].append(_start_of_airflow(lake, before))
    times = {left_out: Times.of(took) for left_out, took in seconds.items()}
    for left_out, took in times.items():
        yield "embedded Airflow", None, left_out, took.warm, took.spread, ratio(took.warm, times[ALL].warm)


def _start_of_airflow(lake: Lake, before: str) -> float:
    port = free_port()
    code = f"from embedded_airflow import components, supervisor\n{before}\nsupervisor.run({port})"
    with tempfile.TemporaryDirectory() as home:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_", "CLEANTAIL_"))}
        environment |= {
            "CLEANTAIL_HOME": home,
            "CLEANTAIL_CONFIG": str(ROOT / "demo" / "config"),
            "PYTHONPATH": str(ROOT),
        }
        began = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=home,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                if not wait_until_healthy(process, port):
                    raise BenchmarkError("the embedded Airflow did not become healthy")
                return time.perf_counter() - began
            finally:
                process.terminate()

"""What each of our settings that shorten a start is worth: `cleantail compact` without it, of few and of many records,
on a local master and on Spark standalone."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.dataset import build
from benchmarks.harness.fresh_process import in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import NOW_MS, Shape
from benchmarks.rounds.standalone import WORKER_MEMORY
from benchmarks.topics.commands import cleantail, saved
from benchmarks.topics.startup import SMALL
from cleantail.lake.spark_settings import JVM_OPTIONS, LOGGING
from differential.spark_cluster import spark_cluster

ALL = "all of them"
WITHOUT: Mapping[str, Mapping[str, str]] = {
    ALL: {},
    "without the archive of classes": {
        "spark.driver.defaultJavaOptions": f'-Dlog4j2.configurationFile="{LOGGING.as_uri()}"'
    },
    "without workers that are forked with their imports": {"spark.python.daemon.module": "pyspark.daemon"},
    "without the settings for few records": {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.shuffle.partitions": "8",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
    },
}
"""Name of what is left out -> Spark's settings without it."""
COLUMNS = (
    Column("master", "text"),
    Column("records", "count"),
    Column("settings", "text"),
    Column("takes, s"),
    Column("fastest to slowest", "text"),
    Column("to all of them", "ratio"),
)
NOTES = (
    "`cleantail compact` from the process's start to its end; *without* has one of our settings replaced by Spark's.",
    "20 % of the records are updates. Standalone: workers of one core, as many as the local master has threads.",
)


def run(options: Options) -> Table:
    rows: list[tuple[Value, ...]] = []
    for shape in (SMALL, Shape(options.records, 0.2)):
        lake = replace(options.lake, directory=options.lake.directory / f"tricks_{shape.total}")
        shutil.rmtree(lake.directory, ignore_errors=True)  # a run that was killed has left it compacted
        lake.directory.mkdir()
        in_fresh_process(build, lake, shape)
        rows += _rows(lake, shape, options.repetitions)
        shutil.rmtree(lake.directory)
    return Table("tricks", "What the speed tricks give", COLUMNS, tuple(rows), (*NOTES, options.text))


def _rows(lake: Lake, shape: Shape, repetitions: int) -> Iterator[tuple[Value, ...]]:
    again = saved(lake)
    with tempfile.TemporaryDirectory() as folder, spark_cluster(Path(folder), lake.cores, WORKER_MEMORY) as master:
        for name, each in {f"local[{lake.cores}]": lake, "standalone": replace(lake, cluster=master)}.items():
            in_fresh_process(_write_config, each)
            seconds: dict[str, list[float]] = {left_out: [] for left_out in WITHOUT}
            for number in range(repetitions + 1):
                say(f"{name}, {shape.total:,} records, {number} of {repetitions}")
                for left_out, conf in WITHOUT.items():
                    again()
                    command = ("compact", shape.topic, "--now", str(NOW_MS), "--force")
                    seconds[left_out].append(cleantail(each, *command, config=_config_with(each, conf)))
            times = {left_out: Times.of(took) for left_out, took in seconds.items()}
            for left_out, took in times.items():
                yield name, shape.total, left_out, took.warm, took.spread, ratio(took.warm, times[ALL].warm)


def _write_config(lake: Lake) -> None:
    assert lake.platform


def _config_with(lake: Lake, conf: Mapping[str, str]) -> Path:
    """Write a configuration beside the lake's own that adds settings of Spark, and return its directory."""
    folder = lake.directory / "config_without"
    shutil.copytree(lake.config, folder, dirs_exist_ok=True)
    defaults = json.loads((folder / "defaults.yaml").read_text())
    defaults["platform"]["spark"]["conf"] |= conf
    (folder / "defaults.yaml").write_text(json.dumps(defaults))
    return folder

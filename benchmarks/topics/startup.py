"""A whole `cleantail compact` of a small topic, from the process's start, step by step, and without each of the
settings that shorten it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.dataset import build
from benchmarks.harness.fresh_process import Stopwatch, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, median, ratio
from benchmarks.harness.shape import NOW_MS, Shape
from benchmarks.topics.commands import cleantail, timed
from cleantail.lake.spark_settings import JVM_OPTIONS, LOGGING

SMALL = Shape(10_000, 0.2, first_clean=True, partitions=3)
COLUMNS = (
    Column("step", "text"),
    Column("begins, s"),
    Column("takes, s"),
    Column("fastest to slowest", "text"),
    Column("of the whole", "percent"),
)
NOTES = (
    "All of it includes imports, the JVM, evaluate, compact, check, publish, expire, and the end of the JVM.",
    "Steps may be within one another (launch_gateway, the JVM's start, is within start_session) or run at the "
    "same time (great_expectations is imported by a thread). They are of runs that watch themselves; the whole "
    "is of runs that do not.",
    "*without* is the whole with one of our settings replaced by Spark's. An answer of 12 KiB is the properties of a "
    "table with many rounds, over a connection that acknowledges at once, and over one of Py4J.",
)
WITHOUT: Mapping[str, Mapping[str, str]] = {
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
"""What is left out -> the settings of Spark that do so."""
ANSWERS = 50
Spans = dict[str, list[float]]


def run(options: Options) -> Table:
    # 1. a lake of its own
    lake = replace(options.lake, directory=options.lake.directory / "startup")
    shutil.rmtree(lake.directory, ignore_errors=True)  # a run that was killed has left it compacted
    lake.directory.mkdir()
    in_fresh_process(build, lake, SMALL)
    again = _saved(lake)
    # 2. each command on the same lake
    whole, watched, plan = [], [], []
    without: dict[str, list[float]] = {name: [] for name in WITHOUT}
    for number in range(options.repetitions + 1):
        say(f"cleantail compact, {number} of {options.repetitions}: {SMALL.text}")
        again()
        plan.append(cleantail(lake, "plan", SMALL.topic, "--now", str(NOW_MS)))
        whole.append(cleantail(lake, *_command()))
        again()
        watched.append(_watched(lake))
        for name, conf in WITHOUT.items():
            again()
            without[name].append(cleantail(lake, *_command(), config=_config_with(lake, conf)))
    # 3. the table
    title = f"`cleantail compact` of {SMALL.total:,} records in {SMALL.partitions} partitions"
    times = {name: Times.of(seconds) for name, seconds in without.items()}
    rows = _rows(Times.of(whole), Times.of(plan), watched[1:], times | in_fresh_process(answers, lake))
    return Table("startup", title, COLUMNS, tuple(rows), (*NOTES, options.text))


def _command() -> list[str]:
    return ["compact", SMALL.topic, "--now", str(NOW_MS), "--force"]


def _saved(lake: Lake) -> Callable[[], None]:
    """Returns a function that makes the lake as it is now, at the same path: Iceberg's paths are absolute."""
    saved = lake.directory / "saved"
    shutil.copytree(lake.home, saved)

    def again() -> None:
        shutil.rmtree(lake.home)
        shutil.copytree(saved, lake.home)

    return again


def _watched(lake: Lake) -> Spans:
    result = lake.directory / "steps.json"
    arguments = [str(result), repr(time.time()), *_command(), "--config", str(lake.config)]
    seconds = timed(lake, ["-m", "benchmarks.topics.watched_command", *arguments])
    spans: Spans = json.loads(result.read_text())
    return spans | {"the end of the process": [spans.pop("all of main")[1], seconds]}


def _config_with(lake: Lake, conf: Mapping[str, str]) -> Path:
    """Writes a configuration beside the lake's own that adds settings of Spark, and returns its directory."""
    folder = lake.directory / "config_without"
    shutil.copytree(lake.config, folder, dirs_exist_ok=True)
    defaults = json.loads((folder / "defaults.yaml").read_text())
    defaults["platform"]["spark"]["conf"] |= conf
    (folder / "defaults.yaml").write_text(json.dumps(defaults))
    return folder


def answers(lake: Lake) -> dict[str, Times]:
    """Returns the seconds of an answer of 12 KiB of the JVM, with and without its acknowledgement at once."""
    from spark_jobs.iceberg.iceberg_reads import texts

    session = lake.session()
    jvm: Any = session._jvm
    java_map, client = jvm.java.util.HashMap(), jvm._gateway_client
    for number in range(120):
        java_map.put(f"cleantail.{number}", "x" * 90)

    def measure() -> Times:
        watch = Stopwatch()
        for _ in range(ANSWERS):
            with watch(""):
                texts(java_map)
        return Times.of(watch.seconds[""])

    at_once = measure()
    del client._create_new_connection  # what acknowledge_at_once has put there; a new thread has a new connection
    with ThreadPoolExecutor(1) as other:
        late = other.submit(measure).result()
    return {"an answer of 12 KiB": at_once, "the same, acknowledged late": late}


def _rows(whole: Times, plan: Times, watched: list[Spans], without: Mapping[str, Times]) -> list[tuple[Value, ...]]:
    """Returns the steps in the order in which they begin; a run without a step is left out of that step's median."""
    rows: list[tuple[Value, ...]] = []
    for name in dict.fromkeys(name for spans in watched for name in spans):
        spans = [each[name] for each in watched if name in each]
        took = [end - begin for begin, end in spans]
        begins = median([begin for begin, _ in spans])
        spread = f"{min(took):.2f} to {max(took):.2f}"
        rows.append((name, begins, median(took), spread, ratio(median(took), whole.warm)))
    rows.sort(key=lambda row: float(row[1] or 0))
    all_of_it = ("cleantail compact, all of it", 0.0, whole.warm, whole.spread, 1.0)
    return [
        *rows,
        all_of_it,
        *((name, 0.0, each.warm, each.spread, ratio(each.warm, whole.warm)) for name, each in without.items()),
        ("cleantail plan, for comparison", 0.0, plan.warm, plan.spread, ratio(plan.warm, whole.warm)),
    ]

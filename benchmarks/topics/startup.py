"""A whole `cleantail compact` of a small topic, from the process's start, step by step."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks.harness.dataset import build
from benchmarks.harness.fresh_process import Stopwatch, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, median, ratio
from benchmarks.harness.shape import NOW_MS, Shape
from benchmarks.topics.commands import cleantail, saved, timed

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
    "A step may contain another one: launch_gateway, the JVM's start, is part of start_session. Steps may run at the "
    "same time: a thread imports great_expectations. Steps are measured in separate runs; the whole is measured in "
    "runs without this measurement.",
    "An answer of 12 KiB has the properties of a table with many rounds. It comes over a connection that acknowledges "
    "at once, and over one of Py4J.",
)
ANSWERS = 50
Spans = dict[str, list[float]]


def run(options: Options) -> Table:
    # 1. a lake of its own
    lake = replace(options.lake, directory=options.lake.directory / "startup")
    shutil.rmtree(lake.directory, ignore_errors=True)  # a killed run may have left it compacted
    lake.directory.mkdir()
    in_fresh_process(build, lake, SMALL)
    again = saved(lake)
    # 2. each command on the same lake
    whole, watched, plan = [], [], []
    for number in range(options.repetitions + 1):
        say(f"cleantail compact, {number} of {options.repetitions}: {SMALL.text}")
        again()
        plan.append(cleantail(lake, "plan", SMALL.topic, "--now", str(NOW_MS)))
        whole.append(cleantail(lake, *_command()))
        again()
        watched.append(_watched(lake))
    # 3. the table
    title = f"`cleantail compact` of {SMALL.total:,} records in {SMALL.partitions} partitions"
    rows = _rows(Times.of(whole), Times.of(plan), watched[1:], in_fresh_process(answers, lake))
    return Table("startup", title, COLUMNS, tuple(rows), (*NOTES, options.text))


def _command() -> list[str]:
    return ["compact", SMALL.topic, "--now", str(NOW_MS), "--force"]


def _watched(lake: Lake) -> Spans:
    result = lake.directory / "steps.json"
    arguments = [str(result), repr(time.time()), *_command(), "--config", str(lake.config)]
    seconds = timed(lake, ["-m", "benchmarks.topics.watched_command", *arguments])
    spans: Spans = json.loads(result.read_text())
    return spans | {"the end of the process": [spans.pop("all of main")[1], seconds]}


def answers(lake: Lake) -> dict[str, Times]:
    """Return the seconds of an answer of 12 KiB from the JVM, with and without immediate TCP acknowledgements."""
    from spark_jobs.iceberg.java_calls import texts

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
    del client._create_new_connection  # remove what acknowledge_at_once has set; a new thread has a new connection
    with ThreadPoolExecutor(1) as other:
        late = other.submit(measure).result()
    return {"an answer of 12 KiB": at_once, "the same, acknowledged late": late}


def _rows(whole: Times, plan: Times, watched: list[Spans], answers: Mapping[str, Times]) -> list[tuple[Value, ...]]:
    """Return the steps in the order in which they begin. The median of a step is over the runs that have it."""
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
        *((name, 0.0, each.warm, each.spread, ratio(each.warm, whole.warm)) for name, each in answers.items()),
        ("cleantail plan, for comparison", 0.0, plan.warm, plan.spread, ratio(plan.warm, whole.warm)),
    ]

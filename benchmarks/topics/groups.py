"""A group of many small topics under a real Airflow: runs with a new file for each topic, and a run without."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.harness.fresh_process import BenchmarkError, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value
from benchmarks.harness.shape import FIRST_TIMESTAMP_MS
from benchmarks.topics.group_evaluation import evaluate_twice
from benchmarks.topics.in_airflow import IDLE_S, SETTLED_AFTER_S, airflow, idle_share, span
from demo.airflow_api import AirflowApi

PARTITIONS, RECORDS, KEYS = 6, 100, 40
GROUP, ALONE = "many", "alone"
"""The group of all topics, and the one of a single topic."""
RUN_WITHIN_S = 3 * 3600
COLUMNS = (Column("what", "text"), Column("topics", "count"), Column("takes, s"), Column("each topic, s"))
NOTES = (
    f"Every topic has {PARTITIONS} partitions; its file has {RECORDS} new records for each of them. The time of a run "
    "is from its start to its end, on the embedded Airflow (LocalExecutor) as shipped, with its processes on the same "
    "cores. There is one repetition. As many packs run at once as there are cores.",
    "Time of the packs: from the start of the first task run_pack to the end of the last.",
    "Evaluation alone: the work of the task evaluate without Airflow, twice in a fresh process, after the last run. "
    "Cold is the first one, with its own imports.",
    f"Idle: processor time of all of Airflow's processes over {IDLE_S} s in which no run is due.",
)


def run(options: Options) -> Table:
    lake = replace(options.lake, directory=options.lake.directory / "groups")
    shutil.rmtree(lake.directory, ignore_errors=True)
    names = [f"t{number:04d}" for number in range(options.topics)]
    _write(lake, names)
    rows: list[tuple[Value, ...]] = []
    with airflow(lake) as api:
        for group in (GROUP, ALONE):
            api.wait_for_dag(group, lambda: False)
        # 1. first rounds, later ones, and nothing due
        for what in ("first file of each", "second file of each", "nothing due"):
            number = len(rows)
            if what != "nothing due":
                _land(lake, [*names, ALONE], number)
            say(f"group of {len(names)} topics: {what}")
            whole, packs = _run(api, GROUP, f"run-{number}")
            rows.append((f"whole run: {what}", len(names), whole, whole / len(names)))
            if packs:
                rows.append((f"its packs: {what}", len(names), packs, packs / len(names)))
        # 2. one topic in a group of its own
        _run(api, ALONE, "first")
        _land(lake, [ALONE], 9)
        say("a group of one topic")
        whole, packs = _run(api, ALONE, "second")
        rows.append(("whole run: one topic in a group of its own", 1, whole, whole))
        rows.append(("its pack: one topic in a group of its own", 1, packs, packs))
        # 3. an idle Airflow
        time.sleep(SETTLED_AFTER_S)
        share = idle_share(lake)
    rows.append((f"Airflow idle: {share:.1%} of a core", len(names) + 1, None, None))
    # 4. the evaluation by itself, in a fresh process
    say("the evaluation by itself")
    rows += _evaluation(lake)
    return Table("groups", f"A group of {len(names)} small topics under Airflow", COLUMNS, tuple(rows), NOTES)


def _evaluation(lake: Lake) -> list[tuple[Value, ...]]:
    """Return the rows of an evaluation of all topics, and of a second one in the same process."""
    seen, topics = in_fresh_process(evaluate_twice, lake), len(list((lake.config / "topics").glob("*.yaml")))
    if seen.due:
        raise BenchmarkError(f"{seen.due} topics are due after a run without due work")
    return [
        ("evaluation alone, cold", topics, seen.cold_s, seen.cold_s / topics),
        ("evaluation alone, warm", topics, seen.warm_s, seen.warm_s / topics),
        (f"its process: {seen.peak_mib} MiB at most, {seen.begun_mib} MiB at its start", topics, None, None),
    ]


def _write(lake: Lake, names: list[str]) -> None:
    """Write the configuration. Without schedules, only triggered runs take place."""
    for folder in ("topics", "groups"):
        (lake.config / folder).mkdir(parents=True)
    spark = {"master": f"local[{lake.cores}]"}
    cleaner = {"log.cleaner.threads": lake.cores}
    defaults = {"platform": {"spark": spark, "cleaner": cleaner}, "topic": {"config": {"segment.ms": 1}}}
    (lake.config / "defaults.yaml").write_text(json.dumps(defaults))
    for group in (GROUP, ALONE):
        of_group = {"group": group, "schedule": None}
        (lake.config / "groups" / f"{group}.yaml").write_text(json.dumps(of_group))
    for name, group in [*((name, GROUP) for name in names), (f"topic-{ALONE}", ALONE)]:
        text: dict[str, Any] = {"topic": name, "group": group, "source": {"path": f"landing/{_folder(name)}/*.jsonl"}}
        (lake.config / "topics" / f"{name}.yaml").write_text(json.dumps(text))


def _folder(name: str) -> str:
    return name.removeprefix("topic-")


def _land(lake: Lake, names: list[str], number: int) -> None:
    """Write a file for each topic into the landing folder. Every key occurs twice or three times in it."""
    for name in names:
        folder = lake.home / "landing" / name
        folder.mkdir(parents=True, exist_ok=True)
        lines = (line(p, number * RECORDS + o) for p in range(PARTITIONS) for o in range(RECORDS))
        (folder / f"{number}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def line(partition: int, offset: int) -> Mapping[str, Any]:
    """Return a record of a file. Every key occurs twice or three times in a file."""
    payload = None if offset % 20 == 19 else f"value {offset}"
    ts = FIRST_TIMESTAMP_MS + offset
    return {"partition": partition, "offset": offset, "ts": ts, "key": f"k{offset * 7 % KEYS}", "payload": payload}


def _run(api: AirflowApi, group: str, run_id: str) -> tuple[float, float]:
    """Return the seconds of a run, and of its packs."""
    api.trigger(group, run_id)
    end = time.monotonic() + RUN_WITHIN_S
    while time.monotonic() < end:
        run = api.run(group, run_id)
        if run["state"] in ("success", "failed"):
            begin, last = span(run)
            tasks = [task for task in api.tasks(group, run_id) if task["task_id"] == "run_pack"]
            packs = [span(task) for task in tasks if task["state"] == "success"]
            if run["state"] == "failed":
                raise BenchmarkError(f"the run {run_id} of {group} failed")
            return last - begin, max(e for _, e in packs) - min(b for b, _ in packs) if packs else 0.0
        time.sleep(0.5)
    raise BenchmarkError(f"the run {run_id} did not end within {RUN_WITHIN_S} s")

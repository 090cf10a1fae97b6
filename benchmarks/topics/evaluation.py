"""The evaluation of many small topics in groups, from their tables' metadata: cold, again in the same process, and in
another one."""

from __future__ import annotations

import shutil
from dataclasses import replace

from benchmarks.harness.fresh_process import BenchmarkError, in_fresh_process, say
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, median
from benchmarks.topics.group_evaluation import evaluate_twice
from benchmarks.topics.small_tables import APPENDS, CLEAN_EVERY, GROUPS, PARTITIONS, RECORDS, make_small_tables
from cleantail.lake.facts_cache import FOLDER

COLUMNS = (
    Column("evaluation", "text"),
    Column("topics", "count"),
    Column("s"),
    Column("fastest to slowest", "text"),
    Column("a topic, s"),
)


def run(options: Options) -> Table:
    # 1. the topics
    lake = replace(options.lake, directory=options.lake.directory / f"evaluation_{options.topics}")
    names = [f"topic_{number:04d}" for number in range(options.topics)]
    in_fresh_process(make_small_tables, lake, names)
    # 2. two fresh processes for each repetition: the second one reads the cache of the first
    seen, after = [], []
    for number in range(options.repetitions):
        say(f"evaluation {number + 1} of {options.repetitions}")
        shutil.rmtree(lake.home / FOLDER, ignore_errors=True)
        seen.append(in_fresh_process(evaluate_twice, lake))
        after.append(in_fresh_process(evaluate_twice, lake))
    due = {each.due for each in (*seen, *after)}
    dirty = sum(number % CLEAN_EVERY != 0 for number in range(options.topics))
    if due != {dirty}:
        raise BenchmarkError(f"{due} topics are due, but {dirty} have records that no round has read")
    # 3. the table
    rows = [
        _row("cold", options, [each.cold_s for each in seen]),
        _row("warm", options, [each.warm_s for each in seen]),
        _row("in another process", options, [each.cold_s for each in after]),
    ]
    notes = (
        f"Topics of {PARTITIONS} partitions in {GROUPS} groups, each with {APPENDS} appends of {RECORDS} records a "
        f"partition; {dirty} of them are due.",
        "Each evaluation reads configuration, new files, metadata and triggers of each topic, as the task `evaluate` "
        "does before it packs.",
        "Cold is the first evaluation in a fresh process, without its imports. Warm is the second one.",
        "The third row is the first evaluation of a later process, which reads the cache of metadata on the disk.",
        f"The process took at most {max(each.peak_mib for each in seen)} MiB, and "
        f"{max(each.begun_mib for each in seen)} MiB before the first topic.",
        f"Medians of {options.repetitions} processes.",
    )
    return Table("evaluation", f"The evaluation of {options.topics} small topics", COLUMNS, tuple(rows), notes)


def _row(name: str, options: Options, seconds: list[float]) -> tuple[Value, ...]:
    middle = median(seconds)
    return name, options.topics, middle, f"{min(seconds):.1f} to {max(seconds):.1f}", middle / options.topics

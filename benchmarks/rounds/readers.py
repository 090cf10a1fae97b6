"""The cost of comparing Spark's Iceberg reader with Cleantail's in a round, and of a full proof."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from benchmarks.harness.dataset import build, reset
from benchmarks.harness.fresh_process import Stopwatch, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, ratio
from benchmarks.harness.shape import NOW_MS, REDPANDA_3, Shape
from benchmarks.systems.cleantail_round import scan_keys

SHARE = 0.2
WITHOUT, KNOWN, NEW, SCAN, PROOF = "without", "known", "new", "scan", "proof"
COLUMNS = (
    Column("table", "text"),
    Column("records", "count"),
    Column("round without comparison"),
    Column("kinds known"),
    Column("a new kind"),
    Column("known to without", "ratio"),
    Column("key scan"),
    Column("full proof"),
    Column("proof to scan", "ratio"),
)
NOTES = (
    "Seconds are warm medians of compact alone; 20 % of the records are dirty. Without comparison: the code that "
    "compares is replaced. A new kind: neither the table nor this process remembers a kind.",
    "The full proof is that of cleantail check: every key of the clean part, by Spark's Iceberg reader.",
)


def run(options: Options) -> Table:
    rows = []
    for name, shape in _shapes(options.records).items():
        in_fresh_process(build, options.lake, shape)
        warm = {
            step: times.warm
            for step, times in in_fresh_process(_measured, options.lake, shape, options.repetitions).items()
        }
        without, known, scan, proof = (warm[step] for step in (WITHOUT, KNOWN, SCAN, PROOF))
        ratios = ratio(known, without), ratio(proof, scan)
        rows.append((name, shape.total, without, known, warm[NEW], ratios[0], scan, proof, ratios[1]))
        say(f"{name}: {warm}")
        options.forget(shape)
    return Table("readers", "Two readers, compared", COLUMNS, tuple(rows), (*NOTES, options.text))


def _shapes(records: int) -> dict[str, Shape]:
    base = Shape(records, SHARE)
    return {"own": base, "adopted, version 3": replace(base, layout=REDPANDA_3)}


def _measured(lake: Lake, shape: Shape, repetitions: int) -> dict[str, Times]:
    from cleantail.lake.evaluate import evaluate_topic
    from cleantail.log.work_units import PartitionWork
    from spark_jobs.engine import compared_readers
    from spark_jobs.engine.measures import prove_keys
    from spark_jobs.round import make

    built, table = build(lake, shape), lake.table(shape.topic)
    watch = Stopwatch()
    for number in range(repetitions + 1):
        say(f"repetition {number} of {repetitions}: {shape.text}")
        for step in (WITHOUT, NEW, KNOWN):
            reset(table, shape, built)
            plan = evaluate_topic(table.topic, now_ms=NOW_MS, force=True)
            if step == NEW:
                compared_readers.forget(table)
            with (
                patch.object(
                    make, "compare_readers", _nothing if step == WITHOUT else compared_readers.compare_readers
                ),
                watch(step),
            ):
                units = [make.compact_unit(table, unit) for unit in plan.units]
            table.drop_branches(unit.branch for unit in units)
        reset(table, shape, built)
        with watch(SCAN):
            scan_keys(table)
        works = [PartitionWork(p, 0, shape.first_dirty_offset, 0, 0) for p in range(shape.partitions)]
        with watch(PROOF):
            prove_keys(table.at_snapshot(built.base_snapshot_id), works)
    return {name: Times.of(seconds) for name, seconds in watch.seconds.items()}


def _nothing(*_: object) -> object:
    from spark_jobs.engine.compared_readers import NOTHING_NEW

    return NOTHING_NEW

"""The same rounds on Spark standalone, with as many workers of one core as the local master has threads."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, ratio
from benchmarks.harness.shape import Shape
from benchmarks.systems import cleantail_round as steps
from benchmarks.systems.cleantail_round import CleantailRound, measured_round
from differential.spark_cluster import spark_cluster

SHARE, WORKER_MEMORY = 0.2, "3g"
COLUMNS = (
    Column("master", "text"),
    Column("records", "count"),
    Column("key scan"),
    Column("round"),
    Column("check"),
    Column("publish"),
    Column("round to the first row", "ratio"),
    Column("check to the first row", "ratio"),
)
NOTES = ("Seconds are warm medians; 20 % of the records are dirty. Workers, master and driver share one machine.",)


def run(options: Options) -> Table:
    lake, shape = options.lake, Shape(options.records, SHARE)
    local = measured_round(lake, shape, options.repetitions)
    with tempfile.TemporaryDirectory() as folder, spark_cluster(Path(folder), lake.cores, WORKER_MEMORY) as master:
        remote = measured_round(replace(lake, cluster=master), shape, options.repetitions)
    options.forget(shape)
    measured = {f"local[{lake.cores}]": local, f"standalone, {lake.cores} workers of one core": remote}
    rows = tuple(_row(name, shape, each, local) for name, each in measured.items())
    return Table("standalone", "A round on a standalone cluster", COLUMNS, rows, (*NOTES, options.text))


def _row(name: str, shape: Shape, measured: CleantailRound, first: CleantailRound) -> tuple[Value, ...]:
    warm, local = ({step: times.warm for step, times in each.seconds.items()} for each in (measured, first))
    return (
        name,
        shape.total,
        warm[steps.SCAN],
        warm[steps.ROUND],
        warm[steps.CHECK],
        warm[steps.PUBLISH],
        ratio(warm[steps.ROUND], local[steps.ROUND]),
        ratio(warm[steps.CHECK], local[steps.CHECK]),
    )

"""Reclaim's rewriting, against a plain Spark copy of the same files."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cleantail_round import compact_once, live_records
from benchmarks.dataset import Shape, build, reset
from benchmarks.duckdb_copy import data_files
from benchmarks.fresh_process import Stopwatch, in_fresh_process, require_records, say
from benchmarks.lake import Lake
from benchmarks.options import Options
from benchmarks.report import Column, Table, Times, Value, ratio

if TYPE_CHECKING:
    from spark_jobs.iceberg.tables import TopicTable

COPY_FILES, COPY_LIVE, RECLAIM = "plain copy of the files", "copy of the live records", "reclaim"
COLUMNS = (
    Column("records", "text"),
    Column("work", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("throughput", "rate"),
    Column("to the plain copy", "ratio"),
)
NOTES = (
    "Throughput: bytes of the files that are rewritten, over warm seconds.",
    "The plain copy reads the Parquet files as they are, deleted records too, and writes Parquet with zstd; the copy "
    "of the live records reads the table. Neither sorts, counts, or commits to a table. All in one process, in turn.",
    "reclaim is the whole job: it reads metadata, rewrites in offset order, counts, swaps, and looks for orphans.",
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    seconds: dict[str, Times]
    bytes: int


def run(options: Options) -> Table:
    rows: list[tuple[Value, ...]] = []
    for shape in (Shape(options.records, 0.2), Shape(options.records, 0.5, first_clean=True)):
        rows += _rows(shape, in_fresh_process(measure_reclaim, options.lake, shape, options.repetitions))
        options.forget(shape)
    return Table(
        "reclaim", "Rewriting files without their deleted records", COLUMNS, tuple(rows), (*NOTES, options.text)
    )


def measure_reclaim(lake: Lake, shape: Shape, repetitions: int) -> Rewriting:
    """Measures both copies and reclaim, once cold and `repetitions` times warm."""
    from spark_jobs.round.upkeep.reclaim import reclaim_topic

    # 1. a compacted table
    built, table, watch = build(lake, shape), lake.table(shape.topic), Stopwatch()
    compact_once(lake, table, shape, built)
    compacted, states = _head(table), _states(table)
    files = data_files(lake, shape)
    # 2. both copies and reclaim, and the table put back
    for number in range(repetitions + 1):
        say(f"reclaim, {number} of {repetitions}: {shape.text}")
        _copies(lake, table, files, watch)
        with watch(RECLAIM):
            result = reclaim_topic(table, lake.platform, int(time.time() * 1000))
        require_records(result.rewritten_files, len(files), "reclaim, of files to rewrite,")
        require_records(live_records(lake, shape.topic), shape.survivors, "reclaim")
        table.load().manageSnapshots().setCurrentSnapshot(compacted).commit()
        table.set_properties(states)
    reset(table, shape, built)
    return Rewriting({name: Times.of(seconds) for name, seconds in watch.seconds.items()}, built.log_bytes)


def _copies(lake: Lake, table: TopicTable, files: list[str], watch: Stopwatch) -> None:
    """Makes both copies, in a directory that is deleted afterwards."""
    out = lake.directory / "copy"
    frames = {COPY_FILES: table.spark.read.parquet(*files), COPY_LIVE: table.spark.table(table.name)}
    for name, frame in frames.items():
        with watch(name):
            frame.write.mode("overwrite").option("compression", "zstd").parquet(f"file://{out}")
    shutil.rmtree(out)


def _states(table: TopicTable) -> dict[str, str]:
    from cleantail.log.partition_state import PROPERTY_PARTITION

    return {k: v for k, v in dict(table.load().properties()).items() if k.startswith(PROPERTY_PARTITION)}


def _head(table: TopicTable) -> int:
    return int(table.load().currentSnapshot().snapshotId())


def _rows(shape: Shape, rewriting: Rewriting) -> list[tuple[Value, ...]]:
    kind = "after a first clean, half left" if shape.first_clean else "after a steady round, 80 % left"
    base = rewriting.seconds[COPY_FILES].warm
    return [
        (kind, name, t.cold, t.warm, t.spread, rewriting.bytes / t.warm, ratio(t.warm, base))
        for name, t in rewriting.seconds.items()
    ]

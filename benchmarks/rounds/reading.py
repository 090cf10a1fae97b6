"""A scan of a compacted topic with hidden records, compared with a scan of the same records after a rewrite."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.harness.dataset import build, reset
from benchmarks.harness.fresh_process import Stopwatch, in_fresh_process, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import Shape
from benchmarks.systems.cleantail_round import compact_once, live_records

if TYPE_CHECKING:
    from spark_jobs.iceberg.tables import TopicTable

DIRTY, VECTORS, CLEAN = "before the round", "compacted: deletion vectors", "compacted and rewritten"
READERS = ("Spark, all columns", "PyIceberg, all columns as Arrow")
COLUMNS = (
    Column("records", "text"),
    Column("reader", "text"),
    Column("table", "text"),
    Column("records read", "count"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("to rewritten", "ratio"),
)
HIDDEN = (0.05, 0.1, 0.2)
"""Shares of hidden records. A reclaim rewrites files with a share above cleantail.reclaim.deleted.ratio (default:
0.3)."""
ScanTimes = dict[tuple[str, str], Times]


def run(options: Options) -> Table:
    """Measure after rounds of a steady state, which hide some records, and after a first clean, which leaves half of
    them."""
    rows: list[tuple[Value, ...]] = []
    steady = [Shape(options.records, share) for share in HIDDEN]
    for shape in (*steady, Shape(options.records, 0.5, first_clean=True)):
        rows += _rows(shape, in_fresh_process(measure_reading, options.lake, shape, options.repetitions))
        options.forget(shape)
    notes = (
        "The three states are snapshots of one table, read in turn in one process.",
        "If a share h of the records in each file is hidden, every reader reads 1 / (1 - h) times the bytes.",
    )
    return Table("reading", "Reading a compacted topic", COLUMNS, tuple(rows), (*notes, options.text))


def measure_reading(lake: Lake, shape: Shape, repetitions: int) -> ScanTimes:
    """Return the seconds by reader and state: one cold repetition, and `repetitions` warm ones."""
    from spark_jobs.round.reclaim import reclaim_topic

    # 1. three states of one table
    built, table, watch = build(lake, shape), lake.table(shape.topic), Stopwatch()
    compact_once(lake, table, shape, built)
    states = {DIRTY: built.base_snapshot_id, VECTORS: _head(table)}
    reclaim_topic(table, int(time.time() * 1000))
    require_records(live_records(lake, shape.topic), shape.survivors, "reclaim")
    states[CLEAN] = _head(table)
    # 2. a scan of each state by each reader
    for number in range(repetitions + 1):
        say(f"reading, {number} of {repetitions}: {shape.text}")
        for state, snapshot_id in states.items():
            expected = shape.total if state == DIRTY else shape.survivors
            with watch(f"{READERS[0]}/{state}"):
                table.at_snapshot(snapshot_id).write.format("noop").mode("overwrite").save()
            with watch(f"{READERS[1]}/{state}"):
                count = _read_with_pyiceberg(lake, shape, snapshot_id)
            require_records(count, expected, f"reading {state}")
    reset(table, shape, built)
    return {(r, s): Times.of(watch.seconds[f"{r}/{s}"]) for r in READERS for s in states}


def _read_with_pyiceberg(lake: Lake, shape: Shape, snapshot_id: int) -> int:

    from cleantail.lake.catalogs import load_table, open_catalog

    platform = lake.platform
    table = load_table(open_catalog(platform), lake.topic(shape.topic))
    assert table is not None, f"{shape.topic} was built above"
    batches = table.scan(snapshot_id=snapshot_id).to_arrow_batch_reader()
    return sum(batch.num_rows for batch in batches)


def _head(table: TopicTable) -> int:
    return int(table.load().currentSnapshot().snapshotId())


def _rows(shape: Shape, scan_times: ScanTimes) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    share = f"{shape.update_share:.0%}"
    kind = f"first clean, {share} updates" if shape.first_clean else f"steady, {share} dirty"
    for (reader, state), times in scan_times.items():
        base = scan_times[reader, CLEAN].warm
        read = shape.total if state == DIRTY else shape.survivors
        rows.append((kind, reader, state, read, times.cold, times.warm, times.spread, ratio(times.warm, base)))
    return rows

"""A round over more records at the same dirty share, and over the same records at other shares."""

from __future__ import annotations

from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, ratio
from benchmarks.harness.shape import Shape
from benchmarks.systems import cleantail_round as steps
from benchmarks.systems.cleantail_round import CleantailRound, measured_round

SIZES = (0.1, 0.3, 1.0, 3.0)
"""Sizes as shares of `--records`: 1, 3, 10 and 30 million by default."""
SHARE = 0.2
SHARES = (0.001, 0.01, 0.1, 0.5)
SMALLEST_SHARE = 0.001

COLUMNS = (
    Column("records", "count"),
    Column("dirty", "text"),
    Column("key scan"),
    Column("evaluate"),
    Column("round"),
    Column("check"),
    Column("publish"),
    Column("round to scan", "ratio"),
    Column("check to scan", "ratio"),
    Column("log", "bytes"),
    Column("written", "bytes"),
    Column("written to log", "percent"),
    Column("metadata", "bytes"),
    Column("read, round", "bytes"),
    Column("read, check", "bytes"),
    Column("shuffled, round", "bytes"),
    Column("shuffled, check", "bytes"),
    Column("spilled", "bytes"),
    Column("peak memory", "bytes"),
)
NOTES = (
    "Seconds are warm medians.",
    "written: new files in the table's data directory, which are deletion vectors. metadata: Iceberg's own new files.",
    "read: bytes that Spark's stages and the driver's Python read in the last repetition. shuffled, spilled: Spark's "
    "numbers. peak memory: VmHWM of the JVM and of that Python together, over all repetitions and the scan.",
)


def shapes(records: int) -> list[Shape]:
    """Return sizes at a fixed share of updates, shares at a fixed size, few updates in the largest log, and
    tombstones."""
    by_size = [Shape(round(records * size), SHARE) for size in SIZES]
    by_share = [Shape(records, share) for share in SHARES]
    largest_with_few_updates = Shape(round(records * SIZES[-1]), SMALLEST_SHARE)
    return [*by_size, *by_share, largest_with_few_updates, Shape(records, SHARE, tombstone_share=0.05)]


def run(options: Options) -> Table:
    rows = []
    for shape in shapes(options.records):
        rows.append(_row(shape, measured_round(options.lake, shape, options.repetitions)))
        options.forget(shape)
    return Table(
        "growth", "A round over more records and other dirty shares", COLUMNS, tuple(rows), (*NOTES, options.text)
    )


def _row(shape: Shape, measured: CleantailRound) -> tuple[Value, ...]:
    warm = {name: times.warm for name, times in measured.seconds.items()}
    tombstones = f", {shape.tombstone_share:.0%} tombstones" if shape.tombstone_share else ""
    return (
        shape.total,
        f"{shape.update_share:.4g}{tombstones}",
        *(warm[name] for name in (steps.SCAN, steps.EVALUATE, steps.ROUND, steps.CHECK, steps.PUBLISH)),
        ratio(warm[steps.ROUND], warm[steps.SCAN]),
        ratio(warm[steps.CHECK], warm[steps.SCAN]),
        measured.log_bytes,
        measured.written.data,
        ratio(measured.written.data, measured.log_bytes),
        measured.written.metadata,
        measured.round_costs.read,
        measured.check_costs.read,
        measured.round_costs.shuffled,
        measured.check_costs.shuffled,
        measured.round_costs.spilled + measured.check_costs.spilled,
        measured.peak_memory_bytes,
    )

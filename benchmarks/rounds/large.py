"""Ten times as many records, in four logs and in one: seconds for each record, and memory."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness.fresh_process import say
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, ratio, row_text
from benchmarks.harness.shape import Shape
from benchmarks.systems import cleantail_round as steps
from benchmarks.systems.cleantail_round import CleantailRound, measured_round

TIMES, SHARE, VALUE_BYTES = 10, 0.2, 64
COLUMNS = (
    Column("records", "count"),
    Column("logs", "count"),
    Column("key scan"),
    Column("round"),
    Column("check"),
    Column("publish"),
    Column("proof"),
    Column("round to scan", "ratio"),
    Column("round, per record, to the first row", "ratio"),
    Column("read, round", "bytes"),
    Column("shuffled, round", "bytes"),
    Column("spilled, round", "bytes"),
    Column("peak memory", "bytes"),
)
NOTES = (
    "Seconds are warm medians; 20 % of the records are dirty, values have 64 bytes, the strategy is offset.",
    "peak memory is the sum of VmHWM of the JVM and of all Python processes, over all steps.",
)


def shapes(records: int) -> list[Shape]:
    """Return the shapes to measure: `--records`, and ten times as many."""
    base = Shape(records, SHARE, value_bytes=VALUE_BYTES)
    return [base, replace(base, records=TIMES * records), replace(base, records=TIMES * records, partitions=1)]


def run(options: Options) -> Table:
    rows, first = list[tuple[Value, ...]](), 0.0
    for shape in shapes(options.records):
        measured = measured_round(options.lake, shape, options.repetitions)
        first = first or measured.seconds[steps.ROUND].warm / shape.total
        rows.append(_row(shape, measured, first))
        say(row_text(COLUMNS, rows[-1]))
        options.forget(shape)
    return Table("large", "Ten times as many records", COLUMNS, tuple(rows), (*NOTES, options.text))


def _row(shape: Shape, measured: CleantailRound, first: float) -> tuple[Value, ...]:
    warm = {step: times.warm for step, times in measured.seconds.items()}
    scan, round_s = warm[steps.SCAN], warm[steps.ROUND]
    return (
        shape.total,
        shape.partitions,
        scan,
        round_s,
        warm[steps.CHECK],
        warm[steps.PUBLISH],
        warm[steps.PROOF],
        ratio(round_s, scan),
        ratio(round_s / shape.total, first),
        measured.round_costs.read,
        measured.round_costs.shuffled,
        measured.round_costs.spilled,
        measured.peak_memory_bytes,
    )

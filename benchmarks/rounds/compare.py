"""A round, and other programs that do the same work, on the same records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.harness.fresh_process import in_fresh_process
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import Shape
from benchmarks.systems import cleantail_round as steps
from benchmarks.systems.cleantail_round import measured_round
from benchmarks.systems.duckdb_copy import JOIN, PLANS, measure_duckdb
from benchmarks.systems.kafka_cleaner import measure_cleaner
from benchmarks.systems.rewrites import DELETE, MERGE, REWRITE, measure_rewrite

COLUMNS = (
    Column("records", "text"),
    Column("system", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("to round + check + publish", "ratio"),
    Column("to round + publish", "ratio"),
    Column("to the key scan", "ratio"),
)
NOTES = (
    "warm is the median of the repetitions after the first. Each repetition starts from the same table or log, and is "
    "checked to leave one record a key.",
    "Key scan: sum(length(key)), sum(offset) in Cleantail's session. No round can read less.",
    "Spark's rewrite, DELETE and MERGE run with Spark's default settings and 4 GiB of driver memory, Cleantail with "
    "its own settings and 3 GiB. Spark's statements check nothing and keep no checkpoint, so every run reads "
    "everything.",
    "DuckDB runs with as many threads as cores and need not keep an order.",
    "Kafka: one broker with its default heap and buffer, and as many cleaner threads as cores. The time begins when "
    "the ratio is lowered, and ends when all checkpoints are written. The cleaner polls for work every 200 ms. Its own "
    "seconds are those of its log lines, summed over the logs, which its threads clean at the same time.",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One system on one data set."""

    shape: Shape
    system: str
    times: Times


def run(options: Options) -> Table:
    """Compare all systems on a steady state: 20 % of the records are dirty."""
    return compared("compare", Shape(options.records, 0.2), options)


def compared(name: str, shape: Shape, options: Options) -> Table:
    """Return the table of all systems on one data set."""
    rows = tuple(_rows(list(_measured(options, shape))))
    options.forget(shape)
    title = f"One round on {options.records:,} records of 256 B, against other ways to do its work"
    return Table(name, title, COLUMNS, rows, (*NOTES, options.text))


def _measured(options: Options, shape: Shape) -> Iterator[Measured]:
    """Yield Cleantail's steps and their sums first, then the other systems. Each runs in a fresh process."""
    lake, times = options.lake, options.repetitions
    seconds = measured_round(lake, shape, times).seconds
    scan, parts = seconds[steps.SCAN], {name: seconds[name] for name in (steps.ROUND, steps.CHECK, steps.PUBLISH)}
    yield Measured(shape, "key scan", scan)
    for name, part_times in parts.items():
        yield Measured(shape, f"Cleantail: {name}", part_times)
    yield Measured(shape, "Cleantail: round + publish", parts[steps.ROUND] + parts[steps.PUBLISH])
    yield Measured(
        shape, "Cleantail: round + check + publish", parts[steps.ROUND] + parts[steps.CHECK] + parts[steps.PUBLISH]
    )
    yield from _others(lake, shape, times)


def _others(lake: Lake, shape: Shape, times: int) -> Iterator[Measured]:
    cleaned = in_fresh_process(measure_cleaner, lake, shape, times)
    yield Measured(shape, f"Kafka's cleaner, {lake.cores} threads", cleaned.wall)
    yield Measured(shape, "Kafka's cleaner, its own seconds, all logs", cleaned.cleaner)
    plain = replace(lake, plain=True)
    names = {
        REWRITE: "Spark: row_number, INSERT OVERWRITE",
        DELETE: "Iceberg: DELETE WHERE EXISTS",
        MERGE: "Iceberg: MERGE",
    }
    for statement, name in names.items():
        yield Measured(shape, name, in_fresh_process(measure_rewrite, plain, shape, times, statement))
    duck = {plan: in_fresh_process(measure_duckdb, lake, shape, times, plan) for plan in PLANS}
    fastest = min(duck, key=lambda plan: duck[plan].warm)
    other = ", ".join(f"{plan} {plan_times.warm:.2f} s" for plan, plan_times in duck.items() if plan != fastest)
    yield Measured(shape, f"DuckDB: {'join' if fastest == JOIN else 'window'} to Parquet ({other})", duck[fastest])


def _rows(measured: list[Measured]) -> Iterator[tuple[Value, ...]]:
    by_name = {m.system: m.times.warm for m in measured}
    bases = ("Cleantail: round + check + publish", "Cleantail: round + publish", "key scan")
    for m in measured:
        ratios = [ratio(m.times.warm, by_name[base]) for base in bases]
        kind = "first clean, 50 % updates" if m.shape.first_clean else "steady, 20 % dirty"
        yield (kind, m.system, m.times.cold, m.times.warm, m.times.spread, *ratios)

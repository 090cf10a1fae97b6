"""Rounds, checks and full proofs by strategy, table and shape of the log, compared with a scan of the key columns."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness.fresh_process import say
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, ratio, row_text
from benchmarks.harness.shape import REDPANDA_2, REDPANDA_3, UUIDS, Shape
from benchmarks.systems import cleantail_round as steps
from benchmarks.systems.cleantail_round import CleantailRound, measured_round

SHARE, FEW, MANY_FILES = 0.2, 0.05, 1000
COLUMNS = (
    Column("what", "text"),
    Column("records", "count"),
    Column("key scan"),
    Column("round"),
    Column("check"),
    Column("proof"),
    Column("round to scan", "ratio"),
    Column("check to round", "ratio"),
    Column("proof to scan", "ratio"),
    Column("round to the first row", "ratio"),
    Column("read, round", "bytes"),
    Column("shuffled, round", "bytes"),
    Column("peak memory", "bytes"),
)
NOTES = (
    "Seconds are warm medians; 20 % of the records are dirty. The key scan is Spark's, of the same table: "
    "sum(length(key)), sum(offset).",
    "proof: cleantail check counts every key of the clean part again, without the comparison of copies.",
    "An adopted table has Redpanda's layout: columns in a struct, and no bounds in the metadata.",
    "Zipf: updates choose their key by Zipf's law with s = 1.1.",
)


def shapes(records: int) -> dict[str, Shape]:
    """Return name of a row -> shape of its data."""
    base = Shape(records, SHARE)
    return {
        "by offset": base,
        "by timestamp": replace(base, strategy="timestamp"),
        "by header": replace(base, strategy="header"),
        "adopted, version 3": replace(base, layout=REDPANDA_3),
        "adopted, version 2": replace(base, layout=REDPANDA_2),
        "one log": replace(base, partitions=1),
        "one log, by timestamp": replace(base, partitions=1, strategy="timestamp"),
        "5 % tombstones": replace(base, tombstone_share=FEW),
        "UUIDs as keys": replace(base, keys=UUIDS),
        "UUIDs, Zipf": replace(base, keys=UUIDS, zipf=True),
        f"{MANY_FILES:,} files": replace(base, files=MANY_FILES),
    }


def run(options: Options) -> Table:
    rows, first = list[tuple[Value, ...]](), 0.0
    for name, shape in shapes(options.records).items():
        measured = measured_round(options.lake, shape, options.repetitions)
        first = first or measured.seconds[steps.ROUND].warm
        rows.append(_row(name, shape, measured, first))
        say(row_text(COLUMNS, rows[-1]))
        options.forget(shape)
    return Table("engine", "A round by strategy, table and log", COLUMNS, tuple(rows), (*NOTES, options.text))


def _row(name: str, shape: Shape, measured: CleantailRound, first: float) -> tuple[Value, ...]:
    warm = {step: times.warm for step, times in measured.seconds.items()}
    scan, round_s, check_s, proof_s = (warm[s] for s in (steps.SCAN, steps.ROUND, steps.CHECK, steps.PROOF))
    return (
        name,
        shape.total,
        scan,
        round_s,
        check_s,
        proof_s,
        ratio(round_s, scan),
        ratio(check_s, round_s),
        ratio(proof_s, scan),
        ratio(round_s, first),
        measured.round_costs.read,
        measured.round_costs.shuffled,
        measured.peak_memory_bytes,
    )

"""The rewrite of a reclaim, compared with Iceberg's own procedure and with plain copies of the same files."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
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

COPY_FILES, COPY_LIVE = "plain copy of the files", "copy of the live records"
ICEBERG, RECLAIM = "Iceberg's rewrite_data_files", "reclaim"
COLUMNS = (
    Column("records", "text"),
    Column("work", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("throughput", "rate"),
    Column("a core", "rate"),
    Column("to the plain copy", "ratio"),
    Column("to rewrite_data_files", "ratio"),
)
NOTES = (
    "Throughput: bytes of the rewritten files, divided by warm seconds.",
    "The plain copy reads the Parquet files with their deleted records, and writes Parquet with zstd. The copy of the "
    "live records reads the table. Neither sorts, counts, or commits to a table. All run in one process, in turn.",
    "rewrite_data_files is Iceberg's procedure in Spark, for the files with hidden records: it does not sort.",
    "reclaim is the whole job: it reads metadata, rewrites in offset order, counts, swaps files, and searches orphans.",
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    seconds: dict[str, Times]
    bytes: int


def run(options: Options) -> Table:
    rows: list[tuple[Value, ...]] = []
    for shape in (Shape(options.records, 0.2), Shape(options.records, 0.5, first_clean=True)):
        measured = in_fresh_process(measure_reclaim, options.lake, shape, options.repetitions)
        rows += _rows(shape, measured, options.lake.cores)
        options.forget(shape)
    return Table(
        "reclaim", "Rewriting files without their deleted records", COLUMNS, tuple(rows), (*NOTES, options.text)
    )


def measure_reclaim(lake: Lake, shape: Shape, repetitions: int) -> Rewriting:
    """Measure the copies, Iceberg's procedure and reclaim: one cold repetition, and `repetitions` warm ones."""
    from spark_jobs.round.reclaim import reclaim_topic

    # 1. a compacted table
    built, table, watch = build(lake, shape), lake.table(shape.topic), Stopwatch()
    compact_once(lake, table, shape, built)
    compacted, states = _head(table), _states(table)
    files = _files_with_deletions(table)
    # 2. each of them in turn; the table is restored after each
    for number in range(repetitions + 1):
        say(f"reclaim, {number} of {repetitions}: {shape.text}")
        _copies(lake, table, files, watch)
        with watch(ICEBERG):
            rewritten = _iceberg_rewrites(table)
        require_records(rewritten, len(files), "rewrite_data_files, of files to rewrite,")
        require_records(live_records(lake, shape.topic), shape.survivors, "rewrite_data_files")
        _put_back(table, compacted, states)
        with watch(RECLAIM):
            result = reclaim_topic(table, int(time.time() * 1000))
        require_records(result.rewritten_files, len(files), "reclaim, of files to rewrite,")
        require_records(live_records(lake, shape.topic), shape.survivors, "reclaim")
        _put_back(table, compacted, states)
    reset(table, shape, built)
    return Rewriting({name: Times.of(seconds) for name, seconds in watch.seconds.items()}, built.log_bytes)


def _files_with_deletions(table: TopicTable) -> list[str]:
    """Return the paths of the data files with hidden records. Reclaim and the procedure rewrite these."""
    rows = table.spark.sql(f"SELECT DISTINCT referenced_data_file AS f FROM {table.name}.delete_files").collect()
    return sorted(row.f.removeprefix("file:") for row in rows)


def _copies(lake: Lake, table: TopicTable, files: list[str], watch: Stopwatch) -> None:
    """Make both copies, in a directory that is deleted afterwards."""
    out = lake.directory / "copy"
    frames = {COPY_FILES: table.spark.read.parquet(*files), COPY_LIVE: table.spark.table(table.name)}
    for name, frame in frames.items():
        with watch(name):
            frame.write.mode("overwrite").option("compression", "zstd").parquet(f"file://{out}")
    shutil.rmtree(out)


def _iceberg_rewrites(table: TopicTable) -> int:
    """Rewrite the files with hidden records by Iceberg's procedure. Return the number of rewritten files."""
    catalog = table.name.split(".", 1)[0]
    options = "map('delete-file-threshold', '1', 'min-file-size-bytes', '0', 'max-file-size-bytes', '99999999999')"
    call = f"CALL {catalog}.system.rewrite_data_files(table => '{table.name}', options => {options})"
    return int(table.spark.sql(call).first()["rewritten_data_files_count"])  # type: ignore[index]


def _put_back(table: TopicTable, snapshot_id: int, states: dict[str, str]) -> None:
    """Make the snapshot the current one again, and restore the table's properties of that time."""
    table.load().manageSnapshots().setCurrentSnapshot(snapshot_id).commit()
    table.set_properties(states)


def _states(table: TopicTable) -> dict[str, str]:
    from cleantail.log.partition_state import PROPERTY_PARTITION
    from cleantail.rounds.rewritten_history import PROPERTY_HISTORY

    kept = (PROPERTY_PARTITION, PROPERTY_HISTORY)
    return {k: v for k, v in dict(table.load().properties()).items() if k.startswith(kept)}


def _head(table: TopicTable) -> int:
    return int(table.load().currentSnapshot().snapshotId())


def _rows(shape: Shape, rewriting: Rewriting, cores: int) -> list[tuple[Value, ...]]:
    kind = "after a first clean, half left" if shape.first_clean else "after a steady round, 80 % left"
    copy, iceberg = (rewriting.seconds[name].warm for name in (COPY_FILES, ICEBERG))
    return [
        (
            kind,
            name,
            t.cold,
            t.warm,
            t.spread,
            rewriting.bytes / t.warm,
            rewriting.bytes / t.warm / cores,
            ratio(t.warm, copy),
            ratio(t.warm, iceberg),
        )
        for name, t in rewriting.seconds.items()
    ]

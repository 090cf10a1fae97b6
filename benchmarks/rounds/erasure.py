"""The erasure of keys with a proof, compared with Spark's four steps without a proof: DELETE, rewrite, expire, remove
orphans."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.dataset import BASE_TAG, build, reset
from benchmarks.harness.fresh_process import BenchmarkError, Stopwatch, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import CLEAN_STEP, KEY_DIGITS, UPDATE_STEP, Shape

if TYPE_CHECKING:
    from spark_jobs.iceberg.tables import TopicTable

KEYS = 1_000
SPARK, OURS = "DELETE, rewrite_data_files, expire_snapshots, remove_orphan_files", "erase, with its proof"
WHOLE, HIDING, REWRITING, REMOVING, PROVING = "whole", "hiding", "rewriting", "removing", "proving"
SCATTERED, CLUSTERED = "every file", "one file of each log"
FILE_RECORDS = 100_000
"""Approximate number of records in a file."""
STEPS = {
    "searching for the keys": HIDING,
    "rewriting files": REWRITING,
    "removing files": REMOVING,
    "searching again": PROVING,
}
"""Step of an erasure -> the part of the time that begins with this step."""
COLUMNS = (
    Column("records", "count"),
    Column("the keys are in", "text"),
    Column("work", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("to Spark's procedures", "ratio"),
    Column("of it: finding and hiding, s"),
    Column("rewriting, s"),
    Column("removing, s"),
    Column("proving, s"),
)
NOTES = (
    f"Each repetition erases {KEYS:,} other keys. Both ways leave no file with one of them.",
    "Each way runs in a separate process, and begins with the same files and snapshots.",
    "Spark's own procedures delete by a join with a table of the keys. They rewrite files with deletes, keep one "
    "snapshot, and list the table's folder. They prove nothing.",
    "erase searches the table with another engine, publishes a checked round, rewrites and removes files, and searches "
    "again.",
)


@dataclass(frozen=True)
class Case:
    shape: Shape
    keys_in: str

    def keys(self) -> Iterator[bytes]:
        """Yield each key to erase once. Clustered keys have no update, and are in the first file of each log."""
        numbers: Iterator[int] = iter(range(self.shape.keys_per_log))
        if self.keys_in == CLUSTERED:
            all_keys, updates = self.shape.keys_per_log, range(self.shape.keys_per_log, self.shape.per_log)
            updated = {offset * UPDATE_STEP % all_keys for offset in updates}
            first_file = (offset * CLEAN_STEP % all_keys for offset in range(FILE_RECORDS // 2))
            numbers = (number for number in first_file if number not in updated)
        return (f"key-{number:0{KEY_DIGITS}d}".encode() for number in numbers)


def run(options: Options) -> Table:
    rows: list[tuple[Value, ...]] = []
    for records, places in ((options.records // 4, (CLUSTERED,)), (options.records, (CLUSTERED, SCATTERED))):
        shape = replace(Shape(records, 0.2), files=max(records // FILE_RECORDS, 1))
        in_fresh_process(_built, options.lake, shape)
        for case in (Case(shape, place) for place in places):
            measured: dict[str, Mapping[str, Times]] = {}
            for name, way in ((SPARK, _by_spark), (OURS, _by_erase)):
                with _as_before(options.lake):
                    measured[name] = in_fresh_process(
                        measure_erasure, options.lake, case, options.repetitions, f"{name}, {case.keys_in}", way
                    )
            rows += _rows(case, measured)
        options.forget(shape)
    return Table("erasure", f"Erasing {KEYS:,} keys", COLUMNS, tuple(rows), (*NOTES, options.text))


def _rows(case: Case, measured: Mapping[str, Mapping[str, Times]]) -> list[tuple[Value, ...]]:
    spark = measured[SPARK][WHOLE].warm
    parts = (HIDING, REWRITING, REMOVING, PROVING)
    return [
        (
            case.shape.total,
            case.keys_in,
            name,
            times[WHOLE].cold,
            times[WHOLE].warm,
            times[WHOLE].spread,
            ratio(times[WHOLE].warm, spark),
            *(times[part].warm if part in times else None for part in parts),
        )
        for name, times in measured.items()
    ]


def _built(lake: Lake, shape: Shape) -> None:
    built, table = build(lake, shape), lake.table(shape.topic)
    reset(table, shape, built)
    tags = table.load().refs().keys()
    if BASE_TAG in tags:
        table.load().manageSnapshots().removeTag(BASE_TAG).commit()  # the tag's snapshot would keep the old files


@contextmanager
def _as_before(lake: Lake) -> Iterator[None]:
    """Restore the lake's home after the block. Files of tables never change, so hard links serve as copies."""
    kept = lake.directory / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(lake.home, kept, copy_function=_linked)
    yield
    shutil.rmtree(lake.home)
    kept.rename(lake.home)


def _linked(source: str, target: str) -> None:
    if "warehouse" in Path(source).parts:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


Part = Callable[[str], None]
"""End the measured part of the work, and begin the next."""


def measure_erasure(
    lake: Lake, case: Case, repetitions: int, what: str, way: Callable[[TopicTable, list[bytes], Part], None]
) -> dict[str, Times]:
    """Measure one way: a cold repetition, and `repetitions` warm ones. Return the whole times and the times by part."""
    table, keys, watch = lake.table(case.shape.topic), case.keys(), Stopwatch()
    parts: list[dict[str, float]] = []
    for number in range(repetitions + 1):
        say(f"{what}, {number} of {repetitions}")
        chosen, clock = list(islice(keys, KEYS)), _Parts()
        with watch(WHOLE):
            way(table, chosen, clock)
            clock("")
        parts.append(clock.seconds)
        _require_gone(table, chosen, what)
    by_part = {name: Times.of(part[name] for part in parts) for name in parts[0]}
    return by_part | {WHOLE: Times.of(watch.seconds[WHOLE])}


class _Parts:
    """Adds up the seconds of each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name, self._began = "", 0.0

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        if self._name:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._began
        self._name, self._began = name, now


def _by_spark(table: TopicTable, keys: list[bytes], part: Part) -> None:
    catalog, name, spark = table.name.split(".", 1)[0], table.name, table.spark
    part(HIDING)
    spark.createDataFrame([(key,) for key in keys], "key binary").createOrReplaceTempView("erased_keys")
    spark.sql(f"DELETE FROM {name} WHERE `key` IN (SELECT `key` FROM erased_keys)")
    part(REWRITING)
    options = "map('delete-file-threshold', '1', 'min-file-size-bytes', '0', 'max-file-size-bytes', '99999999999')"
    spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => {options})").collect()
    part(REMOVING)
    now = spark.sql(f"SELECT timestamp_millis({int(time.time() * 1000)})").first()[0]  # type: ignore[index]
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '{now}', retain_last => 1)"
    ).collect()
    # Iceberg refuses a time within the last day; with its default it lists and compares the same files
    spark.sql(f"CALL {catalog}.system.remove_orphan_files(table => '{name}')").collect()


def _by_erase(table: TopicTable, keys: list[bytes], part: Part) -> None:
    import pyarrow as pa

    from cleantail.erasure.erased_keys import ErasedKeys, ErasureSecret
    from spark_jobs.round.erase import erase_keys
    from spark_jobs.round.run import Run

    def progress(step: str) -> None:
        if step in STEPS:
            part(STEPS[step])

    erased = ErasedKeys.of(table.topic.topic, ErasureSecret(bytes(32)), pa.array(keys, pa.binary()))
    result = erase_keys(Run(table, progress), erased, lambda *_: None, {})
    if result.proven is None:
        raise BenchmarkError(f"erase proved nothing: {result}")
    if result.proven["keys_found"] != len(keys):
        raise BenchmarkError(f"erase has found {result.proven['keys_found']} of {len(keys)} keys")


def _require_gone(table: TopicTable, keys: list[bytes], what: str) -> None:
    table.spark.createDataFrame([(key,) for key in keys], "key binary").createOrReplaceTempView("erased_keys")
    left = table.spark.sql(f"SELECT count(*) FROM {table.name} WHERE `key` IN (SELECT `key` FROM erased_keys)").first()
    if left is None or left[0]:
        raise BenchmarkError(f"{what} has left records of the keys: {left}")

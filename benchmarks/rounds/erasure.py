"""Erasing keys with a proof, against Spark's own four steps without one: DELETE, rewrite, expire, remove orphans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.harness.dataset import BASE_TAG, build, reset
from benchmarks.harness.fresh_process import BenchmarkError, Stopwatch, in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, ratio
from benchmarks.harness.shape import KEY_DIGITS, Shape

if TYPE_CHECKING:
    from spark_jobs.iceberg.tables import TopicTable

KEYS = 1_000
SPARK, OURS = "DELETE, rewrite_data_files, expire_snapshots, remove_orphan_files", "erase, with its proof"
COLUMNS = (
    Column("work", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("to Spark's procedures", "ratio"),
)
NOTES = (
    f"Each repetition takes {KEYS:,} other keys, which lie in every file. Both ways leave no file with one of them.",
    "Spark's own procedures delete by a join with a table of the keys. They rewrite files with deletes, keep one "
    "snapshot, and list the table's folder. They prove nothing.",
    "erase searches the table, publishes a checked round, rewrites, removes, and searches again by another engine.",
)


def run(options: Options) -> Table:
    shape = Shape(options.records, 0.2)
    seconds = in_fresh_process(measure_erasure, options.lake, shape, options.repetitions)
    options.forget(shape)
    spark = seconds[SPARK].warm
    rows = [(name, t.cold, t.warm, t.spread, ratio(t.warm, spark)) for name, t in seconds.items()]
    return Table("erasure", f"Erasing {KEYS:,} keys of {shape.text}", COLUMNS, tuple(rows), (*NOTES, options.text))


def measure_erasure(lake: Lake, shape: Shape, repetitions: int) -> dict[str, Times]:
    """Measures both ways in turn, once cold and `repetitions` times warm."""
    built, table, watch = build(lake, shape), lake.table(shape.topic), Stopwatch()
    reset(table, shape, built)
    table.load().manageSnapshots().removeTag(BASE_TAG).commit()  # it would keep the old files
    for number in range(repetitions + 1):
        say(f"erasure, {number} of {repetitions}: {shape.text}")
        first = 2 * number * KEYS
        for name, way, start in ((SPARK, _by_spark, first), (OURS, _by_erase, first + KEYS)):
            keys = [f"key-{n:0{KEY_DIGITS}d}".encode() for n in range(start, start + KEYS)]
            with watch(name):
                way(table, keys)
            _require_gone(table, keys, name)
    return {name: Times.of(seconds) for name, seconds in watch.seconds.items()}


def _by_spark(table: TopicTable, keys: list[bytes]) -> None:
    catalog, name, spark = table.name.split(".", 1)[0], table.name, table.spark
    spark.createDataFrame([(key,) for key in keys], "key binary").createOrReplaceTempView("erased_keys")
    spark.sql(f"DELETE FROM {name} WHERE `key` IN (SELECT `key` FROM erased_keys)")
    options = "map('delete-file-threshold', '1', 'min-file-size-bytes', '0', 'max-file-size-bytes', '99999999999')"
    spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => {options})").collect()
    now = f"timestamp_millis({int(time.time() * 1000)})"
    now = spark.sql(f"SELECT {now}").first()[0]  # type: ignore[index]
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '{now}', retain_last => 1)"
    ).collect()
    # Iceberg allows no time within a day: it lists and compares all the same
    spark.sql(f"CALL {catalog}.system.remove_orphan_files(table => '{name}')").collect()


def _by_erase(table: TopicTable, keys: list[bytes]) -> None:
    import pyarrow as pa

    from cleantail.erasure.erased_keys import ErasedKeys, ErasureSecret
    from spark_jobs.round.erase import erase_keys
    from spark_jobs.round.run import Run

    erased = ErasedKeys.of(table.topic.topic, ErasureSecret(bytes(32)), pa.array(keys, pa.binary()))
    result = erase_keys(Run(table), erased, lambda *_: None, {})
    if result.proven is None:
        raise BenchmarkError(f"erase has proven nothing: {result}")


def _require_gone(table: TopicTable, keys: list[bytes], name: str) -> None:
    table.spark.createDataFrame([(key,) for key in keys], "key binary").createOrReplaceTempView("erased_keys")
    left = table.spark.sql(f"SELECT count(*) FROM {table.name} WHERE `key` IN (SELECT `key` FROM erased_keys)").first()
    if left is None or left[0]:
        raise BenchmarkError(f"{name} has left records of the keys: {left}")

"""Find the keys of a bucket that are alive in the table and gone at the brokers, and count removed records.

A key is alive in the table if its last record below the round's end has a value. A key is present at the brokers if
they have any record of it from that end on. It is also present if their last record below the end has a value. So a key
that was written again meanwhile survives. If the table has not yet read a key's tombstone, that tombstone deletes the
key later.

Retention or DeleteRecords removed the records below the brokers' log start. No tombstone deleted them. A key whose last
record is below the log start is kept, and counted.

The check takes only the bounds from the round. It reads the topic in Kafka a second time, and finds again the keys that
are alive in the table and gone at the brokers. The brokers change meanwhile, so two differences are not errors:

1. The brokers have a record of a removed key, but only above the offsets that the round has read. That record replaces
   the removed records.
2. A kept key was deleted at the brokers after the round, and more than their delete.retention.ms has passed. The round
   starts over.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cleantail.errors import ConflictError
from cleantail.human import duration, interval
from cleantail.kafka.source_topic import SourceTopic
from cleantail.log.rules import LogMeasure
from cleantail.log.winners import Booleans
from cleantail.rounds.checked_round import StagedUnit
from spark_jobs.engine.log_task import Bounds, LogCounts, LogTask, merged_counts
from spark_jobs.engine.measures import NO_COUNTS, RoundFiles
from spark_jobs.engine.shared_logs import RESULT, Message
from spark_jobs.engine.source_keys import (
    AFTER,
    BEFORE,
    SOURCE,
    SOURCE_KEYS,
    TABLE_KEYS,
    Counting,
    buckets_of,
    comparable,
    compared,
    read_source_keys,
)
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.task_records import Records, task_database
from spark_jobs.iceberg.log_files import BATCH_RECORDS
from spark_jobs.iceberg.tables import TopicTable

GONE = "gone_at_source"
"""The reason for which a reconciliation removes records, and the prefix of the measure's name."""
LEFT = "gone_at_source_left"


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Bounds of one log's comparison: the table's records below `end`, and the brokers' records from `source_start` on.

    `seen_to`: the round has read the brokers' records below. The later check also reads the records above."""

    end: int
    source_start: int
    seen_to: int
    checked_start: int = 0


@dataclass(frozen=True, slots=True)
class GoneKeys:
    """The gone keys by log. `keys`: number of gone keys. `cut_off`: number of keys below the brokers' log start.
    `positions`: (log, hash of the file's name) -> positions of the records, as a serialized BitMap64."""

    positions: Mapping[tuple[int, int], bytes] = field(default_factory=dict)
    keys: Mapping[int, int] = field(default_factory=dict)
    cut_off: Mapping[int, int] = field(default_factory=dict)


def find_gone(
    bounds: Mapping[int, LogBounds], memory_bytes: int, messages: Iterator[tuple[int, Message]]
) -> Iterator[Any]:
    """Yield the GoneKeys of one bucket. Before them, yield the errors of the tasks that made the messages."""
    with task_database(1, memory_bytes) as database:
        results = _fill(database, bounds, messages)
        yield from results
        database.execute(_ALIVE)
        [*rows] = database.execute(_GONE_KEYS).fetchall()
        keys = {log: count for log, count, _ in rows if count}
        cut_off = {log: count for log, _, count in rows if count}
        yield GoneKeys(_positions(database), keys, cut_off)


def judge_gone(
    bounds: Mapping[int, LogBounds], memory_bytes: int, messages: Iterator[tuple[int, Message]]
) -> Iterator[Any]:
    """Yield the counts of one bucket that depend on keys, one LogCounts for each log. Before them, yield the counts or
    errors of the tasks that made the messages."""
    with task_database(1, memory_bytes) as database:
        yield from _fill(database, bounds, messages)
        database.execute(_ALIVE)
        rows = database.execute(_VIOLATIONS).fetchall()
        yield [LogCounts(log, {"missing_winners": wrongly, LEFT: left}, {}) for log, wrongly, left in rows]


def merged_gone(parts: Iterable[GoneKeys]) -> GoneKeys:
    positions: dict[tuple[int, int], BitMap64] = {}
    keys, cut_off = Counter[int](), Counter[int]()
    for part in parts:
        for name, bits in part.positions.items():
            positions.setdefault(name, BitMap64()).update(BitMap64.deserialize(bits))
        keys.update(part.keys)
        cut_off.update(part.cut_off)
    return GoneKeys({name: bits.serialize() for name, bits in positions.items()}, dict(keys), dict(cut_off))


def _fill(database: Any, bounds: Mapping[int, LogBounds], messages: Iterable[tuple[int, Message]]) -> Sequence[Any]:
    """Insert the messages into the tables `source` and `archive`, and return the results among them."""
    rows = [(log, b.end, b.source_start, b.seen_to, b.checked_start) for log, b in bounds.items()]
    names = ("log", "end_offset", "source_start", "seen_to", "checked_start")
    columns = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate(names)}
    _insert(database, "bound", pa.table(columns), create=True)
    _insert(database, "source", SOURCE_KEYS.empty_table(), create=True)
    _insert(database, "archive", TABLE_KEYS.empty_table(), create=True)
    results = []
    for _, (kind, content) in messages:
        if kind == RESULT:
            results.append(content)
        else:
            _insert(database, "source" if kind == SOURCE else "archive", pa.ipc.open_stream(content).read_all())
    return results


def _insert(database: Any, name: str, rows: pa.Table, create: bool = False) -> None:
    database.register("message", rows)
    database.execute(f"CREATE TEMP TABLE {name} AS FROM message" if create else f"INSERT INTO {name} FROM message")
    database.unregister("message")


def _positions(database: Any) -> dict[tuple[int, int], bytes]:
    positions: dict[tuple[int, int], BitMap64] = {}
    for batch in database.sql(_GONE_RECORDS).to_arrow_reader(BATCH_RECORDS):
        log, file, pos = (batch.column(name).to_numpy() for name in ("log", "file", "pos"))
        for name in {*zip(log.tolist(), file.tolist(), strict=True)}:
            chosen = pos[(log == name[0]) & (file == name[1])]
            positions.setdefault(name, BitMap64()).update(BitMap64(chosen.astype(np.uint64)))
    return {name: bits.serialize() for name, bits in positions.items()}


_ALIVE = f"""
CREATE TEMP TABLE alive AS
SELECT a.log, a.key, a.last, b.source_start, b.checked_start, coalesce(s.known, false) AS known,
       coalesce(s.present, false) AS present
FROM (
    SELECT log, key, max("offset") AS last FROM archive WHERE (state & {BEFORE}) > 0
    GROUP BY log, key HAVING NOT arg_max(tombstone, "offset")
) a
JOIN bound b ON b.log = a.log
LEFT JOIN (
    SELECT s.log, s.key,
           bool_or(s."offset" >= b.end_offset AND s."offset" < b.seen_to)
           OR NOT coalesce(arg_max(s.tombstone, s."offset") FILTER (WHERE s."offset" < b.end_offset), true) AS known,
           bool_or(s."offset" >= b.end_offset)
           OR NOT coalesce(arg_max(s.tombstone, s."offset") FILTER (WHERE s."offset" < b.end_offset), true) AS present
    FROM source s JOIN bound b ON b.log = s.log GROUP BY s.log, s.key
) s ON s.log = a.log AND s.key = a.key
"""
"""The keys that are alive in the base. `present`: the brokers have the key. `known`: the round itself has read this."""
_GONE_KEYS = """
SELECT log, count(*) FILTER (WHERE last >= source_start), count(*) FILTER (WHERE last < source_start)
FROM alive WHERE NOT present GROUP BY log
"""
_GONE_RECORDS = """
SELECT r.log, r.file, r.pos FROM archive r JOIN alive k ON k.log = r.log AND k.key = r.key
WHERE NOT k.present AND k.last >= k.source_start AND NOT r.tombstone
"""
_VIOLATIONS = f"""
SELECT r.log,
       count(*) FILTER (WHERE r.state = {BEFORE} AND NOT r.tombstone
           AND (k.key IS NULL OR k.known OR k.last < k.source_start)),
       count(*) FILTER (WHERE r.state = {BEFORE | AFTER} AND NOT r.tombstone
           AND k.key IS NOT NULL AND NOT k.present AND k.last >= greatest(k.source_start, k.checked_start))
FROM archive r LEFT JOIN alive k ON k.log = r.log AND k.key = r.key
GROUP BY r.log
"""


def measure_reconciliation(table: TopicTable, source: SourceTopic, unit: StagedUnit) -> list[LogMeasure]:
    """Return the measures of each log of the unit. Raises CleantailError if the brokers cannot be read."""
    files = RoundFiles.of(table, unit, table.load())
    context, memory_bytes = table.spark.sparkContext, table.platform.cleaner.cleantail_task_memory_bytes
    offsets = sum((w.source_end or 0) - (w.source_start or 0) for w in unit.partitions)
    buckets = buckets_of(files.tasks, offsets, memory_bytes, context.defaultParallelism)
    broker, logs = comparable(table, source), [w.partition for w in unit.partitions]
    keys = read_source_keys(context, source, broker, logs, buckets, memory_bytes)
    try:
        bounds = {
            w.partition: LogBounds(
                w.end_offset, w.source_start or 0, w.source_end or 0, keys.starts.get(w.partition, 0)
            )
            for w in unit.partitions
        }
        parts = compared(table, files.tasks, keys, buckets, partial(judge_gone, bounds), tally_of)
    finally:
        keys.release()
    by_log = {log.partition: log for log in merged_counts(log for part in parts for log in part)}
    measures = [files.measure(work, by_log.get(work.partition, NO_COUNTS).counts) for work in unit.partitions]
    if any(measure.gone_at_source_left for measure in measures):
        _require_same_time(table, source, unit)
    return measures


def _require_same_time(table: TopicTable, source: SourceTopic, unit: StagedUnit) -> None:
    """Raise ConflictError, and drop the branch, if a kept key may have been deleted between the round and its check."""
    configs = source.brokers.cleaner_configs(table.topic.kafka_topic)
    passed_ms = int(time.time() * 1000) - (unit.began_ms or 0)
    if configs is not None and passed_ms > configs.delete_retention_ms:
        table.drop_branches([unit.branch])
        raise ConflictError(
            f"keys may have gone from {table.topic.kafka_topic} between the comparison and its check: it took "
            f"{duration(passed_ms)}, and delete.retention.ms is {interval(configs.delete_retention_ms)} there"
        )


def tally_of(task: LogTask) -> tuple[Counting, Callable[[], list[LogCounts]]]:
    """Return a function that counts a batch's measures without the brokers' keys, and one that returns the counts."""
    tally, bounds = Tally(task, {}), Bounds.of(task)

    def count(_: LogTask, records: Records, before: Booleans, after: Booleans) -> None:
        head = records.offset >= bounds.end[records.log]
        gone = before & ~after & ~head
        tombstone = records.tombstone if records.tombstone is not None else np.zeros(len(records), np.bool_)
        apart = records.keyless | (records.offset < bounds.retained[records.log])
        tally.add(
            records,
            {
                "records_in": before,
                "records_out": after,
                "foreign_records": after & ~before,
                "head_changed": (before != after) & head,
                "early_tombstones": gone & tombstone,
                "missing_winners": gone & ~tombstone & apart,
            },
        )

    return count, tally.result

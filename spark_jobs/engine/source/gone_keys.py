"""Finds the keys of a bucket that are alive in the table and gone at the brokers, and judges what a round has removed.

A key is alive in the table where its last record below the round's end has a value. It is there at its source where the
brokers have any record of it from that end on, whatever it is, or where their last one below has a value. So a key that
was written again meanwhile survives, and one whose deletion is still to be read is left to that.

Below the brokers' log start nothing is known: what was cut off there (a topic's earlier retention, deleted records) was
not deleted by key. A key whose last record lies there is left as it is, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from spark_jobs.engine.columns.task_database import task_database
from spark_jobs.engine.log_task import LogCounts
from spark_jobs.engine.shared.key_buckets import RESULT, Message
from spark_jobs.engine.source.broker_keys import SOURCE, SOURCE_KEYS
from spark_jobs.engine.source.table_keys import AFTER, BEFORE, TABLE_KEYS
from spark_jobs.iceberg.log_files import BATCH_RECORDS

GONE = "gone_at_source"
"""The reason for which a reconciliation removes records, and the beginning of the measure's name."""
LEFT = "gone_at_source_left"


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Says of one log what a comparison goes by: the table's records below `end`, the brokers' from `source_start` on.
    What the brokers have from `seen_to` on the round could not know of; a check that looks later sees it."""

    end: int
    source_start: int
    seen_to: int
    checked_start: int = 0


@dataclass(frozen=True, slots=True)
class GoneKeys:
    """Holds what is gone, by log: `keys` how many, `cut_off` how many are below the brokers' log start. `positions`:
    (log, hash of the file's name) -> the records' positions, as a serialized BitMap64."""

    positions: Mapping[tuple[int, int], bytes] = field(default_factory=dict)
    keys: Mapping[int, int] = field(default_factory=dict)
    cut_off: Mapping[int, int] = field(default_factory=dict)


def find_gone(
    bounds: Mapping[int, LogBounds], memory_bytes: int, messages: Iterator[tuple[int, Message]]
) -> Iterator[Any]:
    """Yields what is gone of one bucket, and before it what went wrong where the messages were made."""
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
    """Yields the counts of one bucket that depend on keys, one LogCounts a log; before them, what was counted where the
    messages were made, or went wrong there."""
    with task_database(1, memory_bytes) as database:
        yield from _fill(database, bounds, messages)
        database.execute(_ALIVE)
        rows = database.execute(_VIOLATIONS).fetchall()
        yield [LogCounts(log, {"missing_winners": wrongly, LEFT: left}, {}) for log, wrongly, left in rows]


def merged_gone(parts: Iterable[GoneKeys]) -> GoneKeys:
    """Returns what all buckets have found."""
    positions: dict[tuple[int, int], BitMap64] = {}
    keys, cut_off = Counter[int](), Counter[int]()
    for part in parts:
        for name, bits in part.positions.items():
            positions.setdefault(name, BitMap64()).update(BitMap64.deserialize(bits))
        keys.update(part.keys)
        cut_off.update(part.cut_off)
    return GoneKeys({name: bits.serialize() for name, bits in positions.items()}, dict(keys), dict(cut_off))


def _fill(database: Any, bounds: Mapping[int, LogBounds], messages: Iterable[tuple[int, Message]]) -> Sequence[Any]:
    """Puts the messages into the tables `source` and `archive`, and returns the results among them. The database goes
    to disk where they are larger than its memory."""
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
"""The keys that are alive in the base. `present`: the brokers have it; `known`: the round could know that they do."""
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

"""Numbers for keys, given out by a task's database: the keys of some records, and the records that have one of them.

    touched = number_keys(database, batches_of_the_dirty_part)
    for rows in with_key_number(database, batches_of_all_records): ...

Keys are compared as they are, byte by byte, never by a hash alone (semantics.md 3.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from cleantail.log.ranks.versions import Longs
from spark_jobs.engine.columns.task_database import reading
from spark_jobs.iceberg.log_files import BATCH_RECORDS

Number = Literal["rowid", "number"]
KEY_AND_OFFSET = pa.schema([("key", pa.binary()), ("offset", pa.int64())])


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """Holds the keys in the database's table `touched`: how many, the lowest and the highest; both None without any."""

    count: int
    low: bytes | None
    high: bytes | None


def number_keys(database: Any, batches: Iterable[pa.RecordBatch]) -> TouchedKeys:
    """Gives each key of the batches (`key`, `offset`) a number, with the lowest and the highest offset that it has: the
    table `touched` of the database. Records without a key are passed over."""
    with reading(database, "dirty", KEY_AND_OFFSET, batches):
        database.execute(
            'CREATE OR REPLACE TEMP TABLE touched AS SELECT key, min("offset") AS first, '
            'max("offset") AS last FROM dirty WHERE key IS NOT NULL GROUP BY key'
        )
    return _touched(database)


def offset_of_key(database: Any, nth: int) -> int | None:
    """Returns the offset of the record that brings the nth key; None where there are fewer keys."""
    rows = database.execute("SELECT first FROM touched ORDER BY first LIMIT 1 OFFSET ?", [nth - 1]).fetchall()
    return int(rows[0][0]) if rows else None


def without_keys_from(database: Any, offset: int) -> TouchedKeys:
    """Leaves only the keys that occur below the offset."""
    database.execute("CREATE TEMP TABLE fewer AS SELECT * FROM touched WHERE first < ?", [offset])
    database.execute("DROP TABLE touched")
    database.execute("ALTER TABLE fewer RENAME TO touched")
    return _touched(database)


def last_offsets(database: Any, count: int) -> Longs:
    """Returns the highest offset of each of `count` keys, by the key's number."""
    rows = database.sql("SELECT rowid AS number, last FROM touched").to_arrow_table()
    last: Longs = np.empty(count, np.int64)
    last[rows["number"].to_numpy()] = rows["last"].to_numpy()
    return last


def _touched(database: Any) -> TouchedKeys:
    [(low, high, count)] = database.execute("SELECT min(key), max(key), count(*) FROM touched").fetchall()
    return TouchedKeys(count, low, high)


def with_key_number(
    database: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch], number: Number = "rowid"
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yields the records whose key is in `touched`: their columns without the key, and `number`, that of their key.

    `schema`: of the batches, with `key`. `number`: where the table has the number, in its row ids or in a column.
    """
    with reading(database, "record", schema, batches):
        joined = f"SELECT t.{number} AS number, r.* EXCLUDE (key) FROM record r JOIN touched t ON r.key = t.key"
        rows = database.sql(joined)
        for batch in rows.to_arrow_reader(BATCH_RECORDS):
            if batch.num_rows:
                yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}

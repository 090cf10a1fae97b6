"""Touched keys in the database of a task, which goes to disk where they do not fit into its memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from cleantail.log.winners import Longs
from spark_jobs.engine.columns.key_numbers import KEY_AND_OFFSET, Rows, TouchedKeys
from spark_jobs.engine.columns.task_database import reading
from spark_jobs.iceberg.log_files import BATCH_RECORDS


class KeysInDatabase:
    """Holds the keys in the database's table `touched`. `column`: where that has a key's number."""

    def __init__(self, database: Any, column: Literal["rowid", "number"] = "rowid") -> None:
        self._database, self._column = database, column

    @classmethod
    def of(cls, database: Any, batches: Iterable[pa.RecordBatch]) -> KeysInDatabase:
        """Makes the table `touched` of the keys of the batches (KEY_AND_OFFSET), with the lowest and the highest offset
        of each. Records without a key are passed over."""
        with reading(database, "dirty", KEY_AND_OFFSET, batches):
            database.execute(
                'CREATE OR REPLACE TEMP TABLE touched AS SELECT key, min("offset") AS first, '
                'max("offset") AS last FROM dirty WHERE key IS NOT NULL GROUP BY key'
            )
        return cls(database)

    def touched(self) -> TouchedKeys:
        """Returns how many keys there are, and their bounds."""
        [(low, high, count)] = self._database.execute("SELECT min(key), max(key), count(*) FROM touched").fetchall()
        return TouchedKeys(count, low, high)

    def offset_of_key(self, nth: int) -> int | None:
        """Returns the offset of the record that brings the nth key; None where there are fewer keys."""
        ordered = "SELECT first FROM touched ORDER BY first LIMIT 1 OFFSET ?"
        rows = self._database.execute(ordered, [nth - 1]).fetchall()
        return int(rows[0][0]) if rows else None

    def below(self, offset: int) -> KeysInDatabase:
        """Returns only the keys that occur below the offset, numbered anew."""
        self._database.execute("CREATE TEMP TABLE fewer AS SELECT * FROM touched WHERE first < ?", [offset])
        self._database.execute("DROP TABLE touched")
        self._database.execute("ALTER TABLE fewer RENAME TO touched")
        return self

    def last_offsets(self) -> Longs:
        """Returns the highest offset of each key, by the key's number."""
        rows = self._database.sql("SELECT rowid AS number, last FROM touched").to_arrow_table()
        last: Longs = np.empty(len(rows), np.int64)
        last[rows["number"].to_numpy()] = rows["last"].to_numpy()
        return last

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        with reading(self._database, "record", schema, batches):
            joined = f"SELECT t.{self._column} AS number, r.* EXCLUDE (key) FROM record r JOIN touched t USING (key)"
            for batch in self._database.sql(joined).to_arrow_reader(BATCH_RECORDS):
                if batch.num_rows:
                    yield rows_of(batch)


def rows_of(batch: pa.RecordBatch) -> Rows:
    """Returns the columns of the batch."""
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}

"""Touched keys in memory: to number a few takes less time than to open a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cleantail.log.winners import Longs
from spark_jobs.engine.columns.key_numbers import KEY_AND_OFFSET, Rows, TouchedKeys

PORTION_BYTES = 8 << 20
"""Records are compared with the keys in portions of about so many bytes."""


class KeysInMemory:
    """Holds the keys, each once, with the lowest and the highest offset of each: a key's place is its number."""

    def __init__(self, keys: pa.Array, first: Longs, last: Longs) -> None:
        self._keys, self._first, self._last = keys, first, last

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch]) -> KeysInMemory:
        """Returns the keys of the batches (KEY_AND_OFFSET). Records without a key are passed over."""
        rows = pa.Table.from_batches(batches, KEY_AND_OFFSET)
        rows = rows.filter(pc.is_valid(rows["key"])) if rows["key"].null_count else rows
        keys = rows["key"].combine_chunks().dictionary_encode()
        offset, number = rows["offset"].to_numpy(), keys.indices.to_numpy()
        first = np.full(len(keys.dictionary), np.iinfo(np.int64).max)
        last = np.full(len(keys.dictionary), np.iinfo(np.int64).min)
        np.minimum.at(first, number, offset)
        np.maximum.at(last, number, offset)
        return cls(keys.dictionary, first, last)

    def touched(self) -> TouchedKeys:
        """Returns how many keys there are, and their bounds."""
        ends = pc.min_max(self._keys).as_py()
        return TouchedKeys(len(self._keys), ends["min"], ends["max"])

    def offset_of_key(self, nth: int) -> int | None:
        """Returns the offset of the record that brings the nth key; None where there are fewer keys."""
        return int(np.sort(self._first)[nth - 1]) if nth <= len(self._first) else None

    def below(self, offset: int) -> KeysInMemory:
        """Returns only the keys that occur below the offset, numbered anew."""
        chosen = self._first < offset
        return KeysInMemory(self._keys.filter(pa.array(chosen)), self._first[chosen], self._last[chosen])

    def last_offsets(self) -> Longs:
        """Returns the highest offset of each key, by the key's number."""
        return self._last

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        waiting, waiting_bytes = list[pa.RecordBatch](), 0
        for batch in batches:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
            if waiting_bytes >= PORTION_BYTES:
                yield self._matching(pa.Table.from_batches(waiting, schema))
                waiting, waiting_bytes = [], 0
        if waiting:
            yield self._matching(pa.Table.from_batches(waiting, schema))

    def _matching(self, records: pa.Table) -> Rows:
        number = pc.index_in(records["key"], value_set=self._keys)
        matches = pc.is_valid(number)
        rows = records.drop_columns("key").filter(matches)
        columns = {name: rows[name].to_numpy() for name in rows.schema.names}
        return {"number": number.filter(matches).to_numpy().astype(np.int64), **columns}

"""Numbers for keys: the keys of some records are numbered, and the records are found that have one of them.

    with task_keys(task) as keys:
        touched = keys.number(batches_of_the_dirty_part)
        for rows in keys.numbered(schema, batches_of_all_records): ...

Keys are compared as they are, byte by byte, never by a hash alone (semantics.md 3.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

KEY_AND_OFFSET = pa.schema([("key", pa.binary()), ("offset", pa.int64())])
Rows = Mapping[str, np.ndarray[Any, Any]]
"""Column -> its values, an entry for each record."""


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """Says how many keys were numbered, the lowest and the highest of them; both None without any."""

    count: int
    low: bytes | None
    high: bytes | None


class KeyNumbers(Protocol):
    """Knows the number of each touched key, from 0 to their count, which none has."""

    def numbered(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Rows]:
        """Yields the records whose key is touched: their columns without the key, and `number`, that of their key. All
        batches are read, also where no key is touched: records are counted as they are read. `schema`: of the batches,
        with `key`."""

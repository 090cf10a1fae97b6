"""The rules a second time, as simply as possible, over lists: the content of a topic after its rounds.

Shares no code with the kernel. A record is a dict in kcat's envelope. Everything that was ingested is one segment
per file, old enough not to be active, unless a test says otherwise.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable
from typing import Any

Rec = dict[str, Any]


def version_of(record: Rec, strategy: str, header: str = "") -> tuple[int, float, int]:
    """Return the rank of a record among those of its key. The highest wins."""
    if strategy == "timestamp":
        return (1, record["ts"], record["offset"])
    if strategy == "header":
        names, values = record["headers"][::2], record["headers"][1::2]
        found = [base64.b64decode(v) for n, v in zip(names, values, strict=True) if n == header and v is not None]
        if found and len(found[-1]) == 8:
            return (1, int.from_bytes(found[-1], "big", signed=True), record["offset"])
        return (0, 0, record["offset"])
    return (1, 0, record["offset"])


def compacted(records: Iterable[Rec], strategy: str = "offset", header: str = "") -> list[Rec]:
    """Return the winner of each key of each partition, in offset order. Tombstones are included."""
    best: dict[tuple[int, str], Rec] = {}
    for record in records:
        where = (record["partition"], record["key"])
        if where not in best or version_of(record, strategy, header) > version_of(best[where], strategy, header):
            best[where] = record
    return in_order(best.values())


def without_tombstones(records: Iterable[Rec]) -> list[Rec]:
    return [r for r in records if r["payload"] is not None]


def in_order(records: Iterable[Rec]) -> list[Rec]:
    return sorted(records, key=lambda r: (r["partition"], r["offset"]))


def changelog(
    count: int,
    partitions: int,
    keys: int,
    tombstones: int,
    seed: int,
    headers: Callable[[random.Random], list[Any]] | None = None,
) -> list[Rec]:
    """Return a generated changelog: `count` records over `partitions` logs, about `tombstones` of them deletes."""
    rng = random.Random(seed)
    offsets = [0] * partitions
    records: list[Rec] = []
    for i in range(count):
        key = f"key-{rng.randrange(keys)}"
        p = hash_of(key) % partitions
        offsets[p] += rng.choice((1, 1, 1, 3))
        payload = None if rng.random() < tombstones / count else f"value {i} " + "é" * rng.randrange(4)
        ts = 1_700_000_000_000 + i * 10 + rng.randrange(-500, 500)
        records.append(
            {
                "topic": "t",
                "partition": p,
                "offset": offsets[p],
                "tstype": "create",
                "ts": ts,
                "headers": headers(rng) if headers else [],
                "headers_encoding": "base64",
                "key": key,
                "payload": payload,
            }
        )
    return records


def hash_of(text: str) -> int:
    """Return a hash that is equal in every process, unlike Python's own."""
    return sum((i + 1) * b for i, b in enumerate(text.encode()))

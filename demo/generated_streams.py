"""Generate inputs: changes of customers that arrive out of order, sensors, and files if there is no repository.

Deterministic: the same seed and `now_ms` give the same records.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator

from demo.records import Change

SEED = 20_261_121
STEP_MS = 1000


def customer_changes(now_ms: int, count: int = 12_000, customers: int = 1500, late_by: int = 400) -> list[Change]:
    """Return change data capture: the version is the source database's log position, 8 bytes big-endian, in a header.

    One change in six is delayed by up to `late_by` others, so a higher offset does not mean a newer change. One in
    twenty-five deletes its customer. A later change may add the customer again.
    """
    rng = random.Random(SEED)
    arrival = [
        (version + (rng.randint(1, late_by) if rng.random() < 1 / 6 else 0), version) for version in range(count)
    ]
    changes = [
        _customer_change(rng, rng.randrange(customers), version, now_ms - (count - version) * STEP_MS)
        for version in range(count)
    ]
    return [changes[version] for _, version in sorted(arrival)]


def _customer_change(rng: random.Random, customer: int, version: int, at_ms: int) -> Change:
    row = {
        "id": customer,
        "tier": rng.choice(["basic", "plus", "gold"]),
        "credit": rng.randrange(10_000),
        "version": version,
    }
    value = None if rng.random() < 1 / 25 else json.dumps(row).encode()
    return Change(b"customer-%d" % customer, value, at_ms, (("version", version.to_bytes(8, "big")),))


def sensor_readings(now_ms: int, first: int = 12_000, second: int = 8_000, sensors: int = 300) -> list[Change]:
    """Return readings of sensors: the latest timestamp of a sensor wins.

    Every third sensor sends some readings late. Every tenth sends none after the first `first` readings."""
    rng = random.Random(SEED + 1)
    count = first + second
    alive = [sensor for sensor in range(sensors) if sensor % 10]
    return [
        _reading(rng, rng.randrange(sensors) if i < first else rng.choice(alive), now_ms - (count - i) * STEP_MS)
        for i in range(count)
    ]


def _reading(rng: random.Random, sensor: int, at_ms: int) -> Change:
    late_ms = rng.randrange(600_000) if sensor % 3 == 0 else 0
    reading = {"celsius": round(rng.gauss(20, 8), 3), "humidity": round(rng.random(), 4), "at": at_ms - late_ms}
    return Change(b"sensor-%03d" % sensor, json.dumps(reading).encode(), at_ms - late_ms)


def file_changes(now_ms: int, count: int = 3000, files: int = 400) -> list[Change]:
    """Return generated changes like those of a file history, for a source archive without a git history."""
    rng = random.Random(SEED + 2)
    return list(_file_changes(rng, now_ms, count, files))


def _file_changes(rng: random.Random, now_ms: int, count: int, files: int) -> Iterator[Change]:
    existing: set[int] = set()
    for i in range(count):
        file = rng.randrange(files)
        deletes = file in existing and rng.random() < 0.1
        (existing.discard if deletes else existing.add)(file)
        at_ms = now_ms - (count - i) * STEP_MS
        blob = hashlib.sha1(b"%d %d" % (file, i)).hexdigest()
        value = None if deletes else f"100644 {blob}".encode()
        yield Change(b"src/module_%03d.py" % file, value, at_ms, (("author_ts", b"%d" % at_ms),))

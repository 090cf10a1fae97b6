"""Draw histories with Hypothesis. Each partition has an independent history, so one run tries many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.histories import features
from tests.histories.history import Append, Compact, Configure, Misplace, Reader, Reclaim, Step
from tests.histories.rules import Record

NOW = 1_800_000_000_000
HOUR = 3_600_000
KEYS = [b"a", b"b", b"c", b"", b"\xff\x00"]
AGES = [0, 1, 999, 1000, HOUR - 1, HOUR, HOUR + 1, 2 * HOUR, 5 * HOUR, 20 * HOUR]
VERSION = "version"
DISPUTED = ["new", "new", "late", "copy", "copy"]
OFTEN = st.sampled_from  # equal chances, so that few examples cover many cases


@dataclass
class World:
    """State of the drawing: the clock, the configs, and the records of every log."""

    clock: int = NOW
    config: dict[str, Any] = field(default_factory=dict)
    logs: dict[int, list[Record]] = field(default_factory=dict)
    value: int = 0


FAMILIES: dict[str, dict[str, Any]] = {
    "offset": {"segment.ms": [1], "delete.retention.ms": [*[0] * features.RETENTION_ZERO, 1000, HOUR]},
    "timestamp": {"compaction.strategy": ["timestamp"], "segment.ms": [1], "delete.retention.ms": [1000, HOUR]},
    "header": {
        "compaction.strategy": ["header"],
        "compaction.strategy.header": [VERSION],
        "cleantail.header.occurrence": ["last", "first"],
        "segment.ms": [1],
        "delete.retention.ms": [1000, HOUR],
    },
    "bounds": {
        "segment.ms": [HOUR, 5 * HOUR],
        "segment.bytes": [14, 3000, 1 << 30],
        "min.compaction.lag.ms": [0, 1000, HOUR, 2 * HOUR],
        "max.compaction.lag.ms": [2 * HOUR, 10 * HOUR, 100 * HOUR],
        "min.cleanable.dirty.ratio": [0.0, 0.3, 0.5, 1.0],
        "delete.retention.ms": [1000],
    },
    "retention": {
        "cleanup.policy": ["compact,delete", "compact,delete", "delete", "compact"],
        "retention.ms": [-1, HOUR, 10 * HOUR],
        "retention.bytes": [-1, -1, 0, 2500, 5000],
        "segment.ms": [1, HOUR],
        "segment.bytes": [14, 3000],
        "min.cleanable.dirty.ratio": [0.0, 0.5],
        "delete.retention.ms": [1000],
    },
}
"""What a topic's configs are drawn from; the values of a family are what its config changes choose between."""


def is_varied(steps: list[Step]) -> bool:
    """Hypothesis tries the simplest history first; where an example costs half a minute, that one is not worth it."""
    records = [r for step in steps if isinstance(step, Append) for found in step.records.values() for r in found]
    return len({(r.key, r.value is None) for r in records}) > 4


@st.composite
def histories(draw: st.DrawFn, family: str, partitions: int = 6, runs: int = 3) -> list[Step]:
    world = World()
    world.config = configs(draw, family)
    steps: list[Step] = [Configure(world.config, cleaner(draw, runs))]
    for _ in range(draw(st.integers(max(1, runs - 1), runs))):
        for _ in range(draw(OFTEN([1, 1, 2]))):
            steps.append(append(draw, world, family, partitions))
        steps += between(draw, world, family, partitions, runs)
        steps.append(run(draw, world))
        if steps[-1].crash:  # the next run completes the interrupted work
            steps.append(Compact(steps[-1].now, force=steps[-1].force, partition=steps[-1].partition))
    steps.append(append(draw, world, family, partitions))
    world.clock += draw(OFTEN([0, 1000, HOUR]))
    steps.append(Compact(world.clock, force=True))
    return steps


def configs(draw: st.DrawFn, family: str) -> dict[str, Any]:
    drawn = {name: draw(OFTEN(values)) for name, values in FAMILIES[family].items()}
    if drawn.get("retention.ms", -1) >= 0 and not features.BOTH_RETENTIONS:
        drawn["retention.bytes"] = -1
    drawn.setdefault("min.cleanable.dirty.ratio", 0.0)  # the weight of copies and overlapping files is not specified
    drawn["cleantail.keyless.policy"] = draw(OFTEN(["drop", "quarantine", "fail"]))
    if features.LATENESS and family in ("offset", "timestamp", "header"):
        drawn["cleantail.tombstone.lateness.ms"] = draw(OFTEN([0, 1000, HOUR]))
    if features.AFTER_MAX and family == "timestamp":
        drawn["message.timestamp.after.max.ms"] = draw(OFTEN([0, 1000, HOUR]))
    if features.READERS:
        drawn["cleantail.readers.hold.cap.ms"] = draw(OFTEN([0, 1000, HOUR]))
    return drawn


def cleaner(draw: st.DrawFn, runs: int) -> dict[str, Any]:
    if runs == 1 or not features.BUDGET or draw(OFTEN([True, True, False])):  # many rounds take their time
        return {}
    keys = draw(OFTEN([1, 2, 3]))
    return {
        "cleantail.over.budget": "rounds",
        "log.cleaner.dedupe.buffer.size": 32 * 3,
        "log.cleaner.io.buffer.load.factor": {1: 0.34, 2: 0.67, 3: 1.0}[keys],
    }


def between(draw: st.DrawFn, world: World, family: str, partitions: int, runs: int) -> list[Step]:
    """Draw the events between an ingestion and a run."""
    steps: list[Step] = []
    if draw(OFTEN([0, 0, 1])):
        changed = configs(draw, family)
        if world.config.get("cleantail.tombstone.lateness.ms"):  # ranks of two strategies cannot be compared
            changed["cleantail.tombstone.lateness.ms"] = world.config["cleantail.tombstone.lateness.ms"]
        elif family == "offset":
            changed |= draw(OFTEN([{}, {}, {"compaction.strategy": "timestamp"}]))
        world.config = changed
        steps.append(Configure(changed, cleaner(draw, runs)))
    if draw(OFTEN([0, 0, 0, 1])):
        steps.append(Misplace(draw(st.integers(0, partitions - 1)), draw(OFTEN([1, 100, -1, -100]))))
    if features.RECLAIM and draw(OFTEN([0, 0, 0, 1])):
        steps.append(Reclaim(world.clock))
    if features.READERS and draw(st.booleans()):
        steps.append(Reader(draw(OFTEN(["r", "s"])), draw(st.integers(0, partitions - 1)), draw(st.integers(0, 20))))
    return steps


def run(draw: st.DrawFn, world: World) -> Compact:
    world.clock += draw(OFTEN([0, 1, 999, 1000, 1001, HOUR, HOUR, 2 * HOUR, -HOUR, -1]))
    crash = None
    if draw(OFTEN([0, 0, 1])):
        what = draw(
            OFTEN(
                [
                    "create_branch",
                    "delete_positions",
                    "check_round",
                    "publish_deletes",
                    "publish_deletes",
                    "append_answer",
                    "drop_branches",
                ]
            )
        )
        crash = (what, draw(OFTEN(["before", "after"])), draw(OFTEN([1, 2, 3])))
    only = draw(OFTEN([None, None, None, 0, 1]))
    return Compact(world.clock, force=draw(OFTEN([True, True, False])), partition=only, crash=crash)


def append(draw: st.DrawFn, world: World, family: str, partitions: int) -> Append:
    records: dict[int, tuple[Record, ...]] = {}
    for p in range(partitions):
        if draw(OFTEN([True, True, True, True, False])):  # some logs appear later
            made = batch(draw, world, p, family)
            if made:
                records[p] = made
    return Append(records)


@st.composite
def disputed_histories(draw: st.DrawFn, family: str, partitions: int = 6, runs: int = 2) -> list[Step]:
    """Of a table that others fill, who check nothing: copies, and other records at offsets that have one. Every second
    log is free of these."""
    world = World()
    world.config = configs(draw, family)
    steps: list[Step] = [Configure(world.config)]
    for _ in range(runs):
        for _ in range(2):
            drawn = {p: batch(draw, world, p, family, [*DISPUTED, *["other"] * (p % 2)]) for p in range(partitions)}
            steps.append(Append({p: records for p, records in drawn.items() if records}))
        world.clock += draw(OFTEN([0, 1000, 1001, HOUR, 2 * HOUR]))
        steps.append(Compact(world.clock, force=True))
    return steps


def disputes(steps: list[Step]) -> dict[int, set[int]]:
    """Return, by log, the offsets with two different records."""
    seen: dict[tuple[int, int], set[Record]] = {}
    for step in steps:
        if isinstance(step, Append):
            for p, records in step.records.items():
                for record in records:
                    seen.setdefault((p, record.offset), set()).add(record)
    found: dict[int, set[int]] = {}
    for (p, offset), records in seen.items():
        if len(records) > 1:
            found.setdefault(p, set()).add(offset)
    return found


def batch(
    draw: st.DrawFn, world: World, p: int, family: str, kinds_of_records: list[str] | None = None
) -> tuple[Record, ...]:
    """Draw a file's records of one log. The age is drawn once, so a whole file is old or young."""
    sent = world.logs.setdefault(p, [])
    base_age = draw(OFTEN(AGES)) if family in ("bounds", "retention") else 20 * HOUR
    made: list[Record] = []
    kinds = {"retention": ["new"], "bounds": ["new", "new", "new", "late"]}  # the weight of copies is not specified
    for _ in range(draw(OFTEN([1, 2, 3, 4, 6]))):
        usual = kinds_of_records or kinds.get(family, ["new", "new", "new", "new", "late", "copy"])
        kind = draw(OFTEN(usual)) if sent else "new"
        if kind == "copy":
            record = draw(OFTEN(sent))
        elif kind == "other":
            record = one(draw, world, draw(OFTEN(sent)).offset, base_age, family)
        else:
            record = one(
                draw, world, next_offset(draw, sent) if kind == "new" else late_offset(draw, sent), base_age, family
            )
        sent.append(record)
        made.append(record)
    return tuple(made)


def next_offset(draw: st.DrawFn, sent: list[Record]) -> int:
    if not sent:
        return draw(OFTEN([0, 0, 7]))
    return max(r.offset for r in sent) + draw(OFTEN([1, 1, 2, 5]))


def late_offset(draw: st.DrawFn, sent: list[Record]) -> int:
    """Draw an unused offset below the highest one. If all are used, return the next offset."""
    used = {r.offset for r in sent}
    free = [o for o in range(max(used)) if o not in used]
    return draw(OFTEN(free)) if free else max(used) + 1


def one(draw: st.DrawFn, world: World, offset: int, age: int, family: str) -> Record:
    world.value += 1
    key = draw(OFTEN([*KEYS, *KEYS, *KEYS, *KEYS, None]))
    value = draw(OFTEN([None, None, b"", b"v%d" % world.value, b"v%d" % world.value, b"\xfe%d" % world.value]))
    ts = world.clock - age
    if family == "timestamp":
        ts += draw(OFTEN([0, 1, -1, 2, HOUR, 20 * HOUR, 20 * HOUR + 1, 21 * HOUR, 21 * HOUR + 1]))
    elif draw(OFTEN([0, 0, 1])):
        ts += draw(OFTEN([1, -1, HOUR]))
    return Record(offset, ts, key, value, headers(draw) if family == "header" else plain_headers(draw))


def headers(draw: st.DrawFn) -> tuple[tuple[str, bytes | None], ...]:
    def version() -> tuple[str, bytes | None]:
        number = draw(OFTEN([-(1 << 63), -1, 0, 1, 1, 2, 2, 3, (1 << 63) - 1]))
        return VERSION, draw(
            OFTEN([number.to_bytes(8, "big", signed=True)] * 5 + [b"\x00" * 7, b"", None, b"\x01" * 9])
        )

    names = draw(OFTEN([(1,), (1,), (1,), (1, 1), (0, 1), (), (0,)]))
    return tuple(version() if name else ("other", b"\x00" * 8) for name in names)


def plain_headers(draw: st.DrawFn) -> tuple[tuple[str, bytes | None], ...]:
    return draw(OFTEN([(), (), (), (("h", b"x"), ("h", None), ("é", b""))]))

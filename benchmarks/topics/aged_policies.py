"""The policies that the benchmark age can age, and the sources of their records."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.harness.dataset import SINK_COLUMNS, adopted_table
from benchmarks.harness.lake import Lake

if TYPE_CHECKING:
    from cleantail.config.topic import Topic

RECORDS, KEYS, MINUTE_MS, DAY_MS = 60, 40, 60_000, 86_400_000
"""Records of one log in a run."""
LATE_RUNS, BEHIND_RUNS, RARE = 10, 20, 10
"""Runs by which a late record is late, and by which the registered reader is behind. Each 10th run has a record that
fails a check, or a statement of another engine."""
LONG = 100
"""Characters of a value above which the check of CHECKED fails."""


@dataclass(frozen=True, slots=True)
class Line:
    """A record of a run. The key is None for a record without a key, the payload for a tombstone."""

    offset: int
    ts: int
    key: str | None
    payload: str | None


Lines = Callable[[int, int], Iterator[Line]]
"""Yields the records of one log in the run of this number, at this time (Unix ms)."""


class Feed(Protocol):
    """Passes the records of a run to where the topic finds them."""

    def __call__(self, topic: str, number: int, logs: Sequence[Sequence[Line]]) -> None: ...


def in_turn(number: int, now_ms: int) -> Iterator[Line]:
    """Keys in turn, so that most records supersede a record of an earlier run."""
    for offset in range(number * RECORDS, (number + 1) * RECORDS):
        yield Line(offset, now_ms - MINUTE_MS + offset % RECORDS, f"key-{offset % KEYS}", "v" * 64)


def late(number: int, now_ms: int) -> Iterator[Line]:
    """The last record of each run comes LATE_RUNS later, out of order. Its time is older than the lag."""
    *punctual, missing = in_turn(number, now_ms)
    yield from punctual
    if number > LATE_RUNS:
        offset = missing.offset - LATE_RUNS * RECORDS
        yield Line(offset, now_ms - DAY_MS, f"key-{offset % KEYS}", "v" * 64)


def growing(number: int, now_ms: int) -> Iterator[Line]:
    """Half of the records have a key that never comes again."""
    for line in in_turn(number, now_ms):
        yield line if line.offset % 2 else Line(line.offset, line.ts, f"once-{line.offset}", line.payload)


def deleting(number: int, now_ms: int) -> Iterator[Line]:
    """Half of the records are new keys, which the next run deletes by the other half."""
    for line in in_turn(number, now_ms):
        place, of_run = line.offset % RECORDS % (RECORDS // 2), number - (line.offset % RECORDS < RECORDS // 2)
        yield Line(line.offset, line.ts, f"key-{of_run}-{place}", line.payload if of_run == number else None)


def keyless(number: int, now_ms: int) -> Iterator[Line]:
    """The first record of each run has no key."""
    first, *others = in_turn(number, now_ms)
    yield Line(first.offset, first.ts, None, first.payload)
    yield from others


def long_at_times(number: int, now_ms: int) -> Iterator[Line]:
    """In each 10th run a value is too long for the topic's check. The next run supersedes it."""
    *others, last = in_turn(number, now_ms)
    yield from others
    yield Line(last.offset, last.ts, last.key, "v" * 2 * LONG) if number % RARE == 0 else last


@contextlib.contextmanager
def files(lake: Lake, policy: Policy) -> Iterator[Feed]:
    """A file in each run, in a folder that has no other file then."""
    (lake.home / "landing").mkdir(parents=True, exist_ok=True)
    for topic in policy.topics:
        lake.write_topic(topic, policy.config, **policy.more, source={"path": f"{lake.home}/landing/{topic}-*.jsonl"})

    def feed(topic: str, number: int, logs: Sequence[Sequence[Line]]) -> None:
        (lake.home / "landing" / f"{topic}-{number - 1:06}.jsonl").unlink(missing_ok=True)
        texts = (
            json.dumps(
                {"topic": topic, "partition": partition, "offset": line.offset, "tstype": "create", "ts": line.ts}
                | {"key": line.key, "payload": line.payload}
            )
            for partition, lines in enumerate(logs)
            for line in lines
        )
        (lake.home / "landing" / f"{topic}-{number:06}.jsonl").write_text("".join(f"{text}\n" for text in texts))

    yield feed


@contextlib.contextmanager
def kafka(lake: Lake, policy: Policy) -> Iterator[Feed]:
    """A broker on loopback. It never cleans."""
    from confluent_kafka import Producer

    from differential.broker import kafka_jars, running_broker
    from differential.kafka_client import HELD_BACK, KafkaClient

    directory = lake.directory / "broker"
    directory.mkdir(parents=True)
    with running_broker(directory, kafka_jars(os.environ)) as broker:
        address = {"bootstrap.servers": broker.address}
        for topic in policy.topics:
            lake.write_topic(topic, policy.config, **policy.more, source={"kafka": address})
            KafkaClient(broker.address).create(topic, policy.logs, {"cleanup.policy": "compact", **HELD_BACK})
        producer = Producer(address)

        def feed(topic: str, number: int, logs: Sequence[Sequence[Line]]) -> None:
            for partition, lines in enumerate(logs):
                for line in lines:
                    producer.produce(topic, line.payload, line.key, partition, timestamp=line.ts)
            producer.flush()

        yield feed


@contextlib.contextmanager
def sink(lake: Lake, policy: Policy, version: int) -> Iterator[Feed]:
    """A sink's table, adopted. In each 10th run another engine updates a record of it, merge-on-read."""
    from pyspark.sql import functions as F

    [topic] = policy.topics
    table, spark = adopted_table(lake, topic, version, policy.config), lake.session()
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({ADVISED}, 'write.update.mode' = 'merge-on-read')")

    def feed(topic: str, number: int, logs: Sequence[Sequence[Line]]) -> None:
        rows = [(p, line.offset, line.ts, line.key, line.payload) for p, lines in enumerate(logs) for line in lines]
        frame = spark.createDataFrame(rows, "`partition` int, `offset` long, ms long, `key` string, `value` string")
        bytes_of = {name: F.col(name).cast("binary") for name in ("key", "value")}
        more = {"timestamp": F.expr("timestamp_millis(ms)"), "timestamp_type": F.lit(0), "headers": F.expr(NO_HEADERS)}
        frame.coalesce(1).withColumns(bytes_of | more).selectExpr(*SINK_COLUMNS).writeTo(table.name).append()
        if number % RARE == 0:
            changed = rows[-1][1]
            spark.sql(f"UPDATE {table.name} SET value = X'00' WHERE redpanda.`offset` = {changed}")

    yield feed


ADVISED = "'write.metadata.compression-codec' = 'gzip', 'write.metadata.previous-versions-max' = '10'"
"""The settings of docs/adopting.md for the metadata of an adopted table."""
NO_HEADERS = "cast(array() AS array<struct<key: string, value: binary>>)"


def behind(topic: Topic, number: int) -> None:
    """Register a reader that is BEHIND_RUNS behind."""
    from cleantail.lake.catalogs import kept_catalog
    from cleantail.lake.reader_positions import set_position

    offset = max(number - BEHIND_RUNS, 1) * RECORDS
    set_position(kept_catalog(topic.platform), topic, "aged-reader", 0, offset)


@dataclass(frozen=True, slots=True)
class Policy:
    """What to age. `lines`: the records of a log in a run. `extra`, `more`: configs and other keys of the topics' YAML.
    `feed`: how the records reach the topics. `after`: called after each run. `failing`: whether a run may block a
    log. `undue`: runs with which min.compaction.lag.ms may leave nothing to compact."""

    lines: Lines = in_turn
    extra: Mapping[str, object] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    feed: Callable[[Lake, Policy], AbstractContextManager[Feed]] = files
    number: int = 1
    logs: int = 1
    after: Callable[[Topic, int], None] | None = None
    failing: bool = False
    undue: tuple[int, ...] = (1,)

    @property
    def topics(self) -> list[str]:
        return [f"bench_age_{number}" if number else "bench_age" for number in range(self.number)]

    @property
    def config(self) -> Mapping[str, object]:
        """Each run compacts what it has ingested. All other configs have their defaults."""
        return {"segment.ms": 1, "min.cleanable.dirty.ratio": 0.01, **self.extra}


SHORT = {"expectation": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "value", "max_value": LONG}}
REMOVED = {"cleantail.adopted.orphans": "remove"}
POLICIES = {
    "compact": Policy(),
    "late": Policy(late, {"min.compaction.lag.ms": "1h"}, undue=(1, LATE_RUNS + 1)),  # the first late record's file
    "delete": Policy(growing, {"cleanup.policy": "compact,delete"}),
    "tombstones": Policy(deleting, {"cleantail.tombstone.lateness.ms": "7d"}, after=behind),
    "keyless": Policy(keyless, {"cleantail.keyless.policy": "quarantine"}),
    "failing": Policy(long_at_times, more={"checks": [SHORT]}, failing=True),
    "adopted-2": Policy(extra=REMOVED, feed=partial(sink, version=2)),
    "adopted-3": Policy(extra=REMOVED, feed=partial(sink, version=3)),
    "kafka": Policy(feed=kafka),
    "group": Policy(number=5, logs=3),
    "pack": Policy(number=20),
}

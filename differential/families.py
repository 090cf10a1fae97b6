"""Families of compared histories. Each family is one topic, with its configs for each round. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleantail.sources.kcat import Record, read_records
from differential.histories import SEGMENT_MS, SHAPES, Draft, History, Round, Segment, make_history

RETENTION = "delete.retention.ms"
LAG = "min.compaction.lag.ms"
DAY_MS = 86_400_000
SHORT_MS = 500
"""A horizon that the broker's own clock reaches between two rounds."""
FROM_KAFKA, FROM_FILES = "Kafka", "files"
"""The sources by which the archive gets a topic's records."""
CHANGELOG_TOPIC = "changelog"
CHANGELOG_ROUNDS = 2
CHANGELOG_SEGMENT_MS = 90 * DAY_MS
CHANGELOG_STEPS = 4
"""Number of batches in which a round's records are sent. The broker may roll between them."""

Configs = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Family:
    """A topic: the configs of each round, and the features of its histories.

    With `quiet_end` the archive evaluates the topic once more, ten years after the last round. From Kafka the archive
    reads the same topic that the cleaner cleans, each time before the cleaner does.
    """

    name: str
    about: str
    configs: tuple[Configs, ...]
    lagging: bool = False
    transactional: bool = False
    compression: str = "none"
    quiet_end: bool = False
    source: str = FROM_KAFKA


FAMILIES = (
    Family("before-horizon", "no tombstone may be deleted", ({RETENTION: DAY_MS},) * 3, quiet_end=True),
    Family("past-horizon", "the round after the first that kept a tombstone drops it", ({RETENTION: SHORT_MS},) * 3),
    Family("no-retention", "delete.retention.ms is 0", ({RETENTION: 0},) * 3, compression="lz4"),
    Family(
        "retention-cut",
        "a horizon that is set does not become earlier",
        ({RETENTION: DAY_MS}, {RETENTION: SHORT_MS}, {RETENTION: SHORT_MS}),
        compression="zstd",
    ),
    Family(
        "retention-raised",
        "a horizon that is set does not become later",
        ({RETENTION: SHORT_MS}, {RETENTION: DAY_MS}, {RETENTION: DAY_MS}),
        source=FROM_FILES,
    ),
    Family(
        "lagging",
        "young segments wait for min.compaction.lag.ms",
        (
            {RETENTION: SHORT_MS, LAG: DAY_MS},
            {RETENTION: SHORT_MS, LAG: DAY_MS},
            {RETENTION: SHORT_MS, LAG: 0},
        ),
        lagging=True,
    ),
    Family(
        "transactions",
        "aborted data and markers are gaps",
        ({RETENTION: SHORT_MS},) * 3,
        transactional=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A topic to run on both sides: one history for each partition."""

    family: Family
    histories: tuple[History, ...]
    segment_ms: int = SEGMENT_MS

    @property
    def topic(self) -> str:
        return self.family.name


def random_plans(count: int, seed: int, families: Sequence[Family] = FAMILIES) -> list[Plan]:
    """Return at least `count` histories, evenly over the families. Each depends only on seed, family and partition."""
    each = -(-count // len(families))
    return [Plan(family, tuple(_history(family, seed, p) for p in range(each))) for family in families]


def _history(family: Family, seed: int, partition: int) -> History:
    rng = random.Random(f"{seed}/{family.name}/{partition}")
    # another first shape in each family, so that a short run has several shapes
    turn = sum(family.name.encode()) + partition
    shape = SHAPES[turn % len(SHAPES)]
    return make_history(rng, shape, len(family.configs), lagging=family.lagging, transactional=family.transactional)


def changelog_plan(file: Path) -> Plan:
    """Return the plan of the unchanged changelog, with its own partitions and timestamps, in two rounds.

    The archive reads it from files, because the bounds of its segments are known only after the broker has rolled them.
    """
    logs: dict[int, list[Record]] = {}
    for record in read_records(file):
        logs.setdefault(record.partition, []).append(record)
    configs = ({RETENTION: SHORT_MS},) * CHANGELOG_ROUNDS
    about = "the changelog of a public repository"
    family = Family(CHANGELOG_TOPIC, about, configs, quiet_end=True, source=FROM_FILES)
    return Plan(family, tuple(_as_sent(logs[p]) for p in range(len(logs))), CHANGELOG_SEGMENT_MS)


def _as_sent(records: list[Record]) -> History:
    drafts = [Draft(r.key or b"", r.value, r.timestamp_ms or 0, r.headers) for r in records]
    rounds = [_in_steps(part) for part in _parts(drafts, CHANGELOG_ROUNDS)]
    return History("files of a repository", tuple(rounds))


def _in_steps(drafts: list[Draft]) -> Round:
    return tuple(Segment(tuple(part)) for part in _parts(drafts, CHANGELOG_STEPS))


def _parts(drafts: list[Draft], count: int) -> list[list[Draft]]:
    size = -(-len(drafts) // count)
    return [drafts[i : i + size] for i in range(0, len(drafts), size)]

"""Acts on a topic, and random histories of them, drawn from a seed. Pure."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pydantic import TypeAdapter

from soak.gateway import ANSWERS, DISK, FILE_FAULTS, PAUSED, PROCESS, Fault

HOUR = 3_600_000
DAY = 24 * HOUR
KEYS = ("a", "b", "c", "d", "e")
CONFIGS: dict[str, object] = {
    "segment.ms": 1,
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": 1000,
    "cleantail.reclaim.deleted.ratio": 0.01,
    "cleantail.reclaim.min.merge.files": 2,
    "cleantail.snapshot.retention.ms": 0,
}

FILES, KAFKA, ADOPTED = "files", "kafka", "adopted"
EVERY_KAFKA = 3  # so many histories have one from Kafka, if there is a broker

FIRST = ("ingest: create table", "ingest: view", "ingest: properties", "ingest: ingest")  # of a first ingestion
POINTS: dict[str, Mapping[str, int]] = {
    "ingest": {"load": 20, "ingest": 1},
    "compact": {"load": 20, "evidence": 1, "publish": 1},
    "reclaim": {"load": 20, "reclaim": 1, "expire snapshots": 1, "properties": 1, "evidence": 1},
    "rollback": {"load": 5, "rollback": 1, "evidence": 1},
    "reader": {"note reader": 1},
    "erase": {"load": 20, "publish": 1, "erasures": 2},
}
"""Command -> kind of request -> its approximate number in one command."""
FAULTS = (*ANSWERS, *PROCESS, *DISK, *FILE_FAULTS[:2])


class Record(NamedTuple):
    """A record. `at` is its timestamp in ms after the beginning of the history; a `value` of None is a tombstone."""

    partition: int
    offset: int
    at: int
    key: str
    value: str | None


@dataclass(frozen=True)
class Act:
    do: str
    machine: int = 0
    fault: Fault | None = None
    at: int = 0  # the clock of a command in ms after the beginning of the history
    file: int = 0  # the number of an ingested file
    records: tuple[Record, ...] = ()  # of an erasure only the keys count
    aborted: tuple[Record, ...] = ()  # of transactions that are aborted
    meanwhile: tuple[Act, ...] = ()  # happens while the machine is paused, else at the same time
    configs: Mapping[str, object] = field(default_factory=dict)  # changes of the topic's configs
    codes: tuple[int, ...] = (0,)  # exit codes that are allowed without a fault


@dataclass(frozen=True)
class History:
    """All acts of one topic, and its configs. `source`: FILES, KAFKA or ADOPTED. `partitions`: of a topic in Kafka."""

    seed: int
    number: int
    configs: Mapping[str, object]
    acts: tuple[Act, ...]
    source: str = FILES
    partitions: int = 1

    def as_json(self) -> str:
        return _JSON.dump_json(self, indent=1).decode()


_JSON = TypeAdapter(History)
parse_history = _JSON.validate_json


def is_file(kind: str) -> bool:
    return kind.startswith(("read ", "write "))


def faults_of(kind: str) -> set[str]:
    """Return the possible faults of a request's kind, or of a file's. A load is never answered by 409."""
    if is_file(kind):
        return {*FILE_FAULTS}
    return {how for how in (*ANSWERS, *PROCESS, *DISK) if kind != "load" or how[:3] != "409"}


Dealt = tuple[str, str, str]  # command, kind of request, fault


@dataclass(frozen=True)
class Deck:
    """The choices of drawn histories: requests of a first ingestion, requests of later commands, and faults."""

    first: Sequence[str] = FIRST
    points: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: POINTS)
    faults: Sequence[str] = FAULTS
    seen: Counter[str] = field(default_factory=Counter)  # point -> its requests. Points that occur are dealt too
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)  # (point, fault) -> how often it occurred
    tries: Counter[str] = field(default_factory=Counter)  # point -> how often dealt. Rare points leave turns to others

    @property
    def later(self) -> set[str]:
        """Return the points of commands after the first ingestion."""
        occurred = {point for point in self.seen if point.split(": ")[0] in self.points} - {*self.first}
        return {f"{c}: {k}" for c in self.points for k in self.points[c]} | occurred

    @property
    def names(self) -> set[str]:
        return self.later | {*self.first}

    def deal(self, rng: random.Random, points: Iterable[str], count: int) -> list[Dealt]:
        dealt = list[Dealt]()
        turns = {point: self.tries[point] + sum(self.hits[point, how] for how in self.faults) for point in points}
        for point in sorted(sorted(turns), key=lambda point: (turns[point], rng.random()))[:count]:
            self.tries[point] += 1
            command, kind = point.split(": ")
            able = sorted(faults_of(kind) & {*self.faults})
            how = min(able, key=lambda how: (self.hits[point, how], rng.random()))
            dealt.append((command, kind, how))
        return dealt


def histories(seed: int, machines: int, kafka: bool = True, deck: Deck | None = None) -> Iterator[History]:
    """Yield histories without end. A seed and the hits of the deck determine them."""
    deck = deck or Deck()
    for number in itertools.count():
        rng = random.Random(f"{seed} {number}")
        source = KAFKA if kafka and number % EVERY_KAFKA == EVERY_KAFKA - 1 else FILES
        files = {point for point in deck.later if is_file(point.partition(": ")[2])}
        later = deck.deal(rng, deck.later - files, 4) + deck.deal(rng, files, 2)
        rng.shuffle(later)
        yield _Drawing(rng, machines, source, deck.points).history(seed, number, deck.deal(rng, deck.first, 1) + later)


class _Drawing:
    """Draws one history. Remembers the clock, the files, and which offsets were used."""

    def __init__(self, rng: random.Random, machines: int, source: str, points: Mapping[str, Mapping[str, int]]) -> None:
        self.rng, self.machines, self.source, self.points = rng, machines, source, points
        self.clock = HOUR
        self.logs: dict[int, list[Record]] = {p: [] for p in range(rng.choice([1, 2, 3]))}
        self.files = 0

    def history(self, seed: int, number: int, faults: list[Dealt]) -> History:
        (first, *later), pick, partitions = faults, self.rng.choice, len(self.logs)
        acts = self.ingest(Fault(*first[1:]))
        for dealt in later:
            acts += self.before(dealt[0])
            acts += self.act(dealt)
            if pick([0, 0, 1]):
                acts.append(self.outside())
        return History(seed, number, self.configs(), tuple(acts), self.source, partitions)

    def configs(self) -> dict[str, object]:
        pick = self.rng.choice
        return CONFIGS | {
            "delete.retention.ms": pick([0, 1000, HOUR]),
            "cleantail.snapshot.retention.ms": pick([0, 0, 5 * DAY]),
            "cleantail.orphan.retention.ms": pick([0, 3 * DAY]),
        }

    def before(self, command: str) -> list[Act]:
        if command == "ingest":
            return []
        acts = [act for _ in range(self.rng.choice([1, 1, 2])) for act in self.ingest()]
        return acts if command == "compact" else [*acts, self.command("compact")]

    def act(self, dealt: Dealt) -> list[Act]:
        command, kind, how = dealt
        fault = Fault(kind, how, self.rng.randint(1, self.points[command].get(kind, 3 if is_file(kind) else 1)))
        *acts, act = self.ingest(fault) if command == "ingest" else [self.command(command, fault)]
        if how.startswith(PAUSED) or self.rng.random() < 0.3:
            act = replace(act, meanwhile=tuple(self.meanwhile(act)))
        return [*acts, act]

    def meanwhile(self, act: Act) -> list[Act]:
        """Return an act of another machine at the same time: the same act, or another one."""
        again = replace(act, fault=None)
        more = [*self.ingest(), self.command("compact"), self.command("reclaim")]
        if self.source == KAFKA and act.fault and not act.fault.how.startswith(PAUSED):
            more.append(Act("broker restarts"))
        other = (act.machine + 1) % self.machines
        return [replace(each, machine=other) for each in self.rng.sample([again, again, *more], 2)]

    def command(self, command: str, fault: Fault | None = None) -> Act:
        if command == "compact":
            steps = [0, 1, 999, 1000, 1001, HOUR, HOUR, 2 * HOUR, -HOUR, -1, 26 * HOUR, -26 * HOUR]
            self.clock = max(self.clock + self.rng.choice(steps), HOUR)
        codes = {"rollback": (0, 2), "erase": (0, 1)}.get(command, (0,))
        erased = (Record(0, 0, 0, KEYS[-1], None),) if command == "erase" else ()
        return Act(command, self.rng.randrange(self.machines), fault, self.clock, records=erased, codes=codes)

    def outside(self) -> Act:
        kinds = ["rewrite", "expiry", "manifests", "file registered twice", "rollback by others", "upgrade"]
        if self.source == KAFKA:
            kinds += ["broker restarts", "partition added", "topic made again"]
        else:
            kinds.append("append by others")
        kind, appended = self.rng.choice(kinds), tuple[Record, ...]()
        if kind == "append by others":  # of keys that are not erased
            appended = tuple(r for p in self.logs for r in self.batch(p) if r.key != KEYS[-1])
            self.files += 1
            kind = kind if appended else "rewrite"
        elif kind == "partition added":
            self.logs[len(self.logs)] = []
        elif kind == "topic made again":
            self.logs = {p: [] for p in self.logs}
        return Act(kind, self.rng.randrange(self.machines), at=self.clock, file=self.files, records=appended)

    def ingest(self, fault: Fault | None = None) -> list[Act]:
        records = tuple(r for p in self.logs for r in self.batch(p))
        machine = self.rng.randrange(self.machines)
        self.files += 1
        if self.source == FILES:
            return [Act("ingest", machine, fault, self.clock, self.files, records)]
        aborted = tuple(r._replace(value="aborted") for r in records if self.rng.random() < 0.3)
        return [Act("produce", records=records, aborted=aborted), Act("read", machine, fault, self.clock)]

    def batch(self, partition: int) -> list[Record]:
        """Return new records of a log, some that are late, and copies of earlier ones. Kafka has only new ones.
        A late record and a copy have a key without a later tombstone, which could expire before they come."""
        log, made = self.logs[partition], list[Record]()
        for _ in range(self.rng.choice([1, 2, 4, 8])):
            kind = self.rng.choice(["new", "new", "new", "new", "late", "copy"]) if self.source == FILES else "new"
            deleted = {r.key: r.offset for r in log if r.value is None}
            copies = [r for r in log if deleted.get(r.key, -1) < r.offset]
            used = {r.offset for r in log}
            free = sorted(set(range(max(used, default=0))) - used)
            if kind == "copy" and copies:
                made.append(self.rng.choice(copies))
                continue
            late = kind == "late" and free
            offset = self.rng.choice(free) if late else max(used, default=-1) + self.rng.choice([1, 1, 1, 2, 3])
            keys = [k for k in KEYS if not late or deleted.get(k, -1) < offset]
            key = self.rng.choice(keys) if keys else f"late-{offset}"
            value = None if self.rng.random() < 0.3 and not late else f"value {offset} of file {self.files}"
            record = Record(partition, offset, -20 * HOUR + self.rng.randrange(HOUR), key, value)
            log.append(record)
            made.append(record)
        return sorted(set(made), key=lambda r: r.offset)

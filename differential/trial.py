"""Run a plan on both sides, broker and engine, and compare every log after every round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from cleantail.sources.kcat import Record
from differential.archive import Archive
from differential.broker import Broker
from differential.broker_rounds import BrokerRound, Logs, broker_rounds
from differential.comparison import Declared, Difference, Kept, Log, compare
from differential.families import FROM_FILES, FROM_KAFKA, RETENTION, Configs, Plan
from differential.kafka_client import KafkaClient

HOUR_MS = 3_600_000
FIRST_NOW_MS = 1_800_000_000_000
"""The archive's clock at the first round: before every young record, after every old one."""
QUIET_MS = 10 * 365 * 24 * HOUR_MS
"""Time after the last record at which the archive evaluates a quiet topic again."""
Progress = Callable[[str], None]


@dataclass(slots=True)
class Trial:
    """The result of one plan: the broker's rounds; records in, and left at the broker and in the archive; comparisons
    and differences.

    Counts are from after the last round with records. A quiet round only adds comparisons and differences.
    """

    plan: Plan
    broker_rounds: list[BrokerRound] = field(default_factory=list)
    records_in: int = 0
    broker_records: int = 0
    archive_records: int = 0
    comparisons: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Difference]:
        return [d for d in self.differences if d.declared is None]

    def count(self, declared: Declared) -> tuple[int, int]:
        """Return the numbers of records, and of logs after a round, that a declared difference explains."""
        explained = [d for d in self.differences if d.declared is declared]
        return sum(d.is_record for d in explained), len({(d.partition, d.round) for d in explained})


def run_trial(archive: Archive, plan: Plan, broker: Broker, say: Progress) -> Trial:
    """Return the trial of every round of a plan. Some families have one more round, without new records, that only the
    archive does."""
    trial, engine = Trial(plan), Engine(archive, plan, broker.address)
    rounds = broker_rounds(broker, KafkaClient(broker.address), plan, engine.read_part)
    for number, broker_round in enumerate(rounds):
        say(f"{plan.topic}: round {number + 1} is cleaned at the broker")
        engine.append(broker_round)
        _compare(trial, engine.compacted(number, broker_round, _now_ms(plan, number, broker_round)))
        trial.broker_rounds.append(broker_round)
        trial.records_in = sum(map(len, engine.ingested.values()))
        trial.broker_records = sum(map(len, broker_round.left.values()))
        trial.archive_records = engine.live_records
    if plan.family.quiet_end:
        say(f"{plan.topic}: quiet round")
        last_ms = max(r.timestamp_ms or 0 for records in engine.ingested.values() for r in records)
        quiet = _quiet(trial.broker_rounds[-1])
        _compare(trial, engine.compacted(len(trial.broker_rounds), quiet, last_ms + QUIET_MS))
    return trial


def _compare(trial: Trial, logs: Iterator[Log]) -> None:
    for log in logs:
        trial.comparisons += 1
        trial.differences += compare(log)


def _now_ms(plan: Plan, number: int, broker_round: BrokerRound) -> int:
    """Return the archive's clock for a round: one hour later for each. If the records are in the past, it is the time
    when the last segment of all had just begun.

    Either way every newest segment is younger than segment.ms, as at the broker, where the newest one is active.
    """
    newest = [
        r.timestamp_ms or 0
        for p, records in broker_round.appended.items()
        for r in records
        if r.offset >= broker_round.bounds[p][-1]
    ]
    return min([FIRST_NOW_MS + number * HOUR_MS, *(ms + plan.segment_ms // 2 for ms in newest)])


def _quiet(last: BrokerRound) -> BrokerRound:
    """Return the broker's state if no record arrived since the last round."""
    return BrokerRound(last.configs, {}, last.bounds, last.left, last.checkpoints, frozenset())


class Engine:
    """The archive's side of a trial, with the facts about the input that a comparison needs."""

    def __init__(self, archive: Archive, plan: Plan, address: str) -> None:
        self._archive, self._plan = archive, plan
        self._source: Mapping[str, object] = (
            {"kafka": {"bootstrap.servers": address}} if plan.family.source == FROM_KAFKA else {}
        )
        self.ingested: Logs = {p: [] for p in range(len(plan.histories))}
        self.live_records = 0
        self._kept: dict[int, list[Kept]] = {p: [] for p in self.ingested}

    def read_part(self, configs: Configs) -> None:
        """Ingest the records of the round that the broker has now."""
        self._configure(configs)
        self._archive.read_kafka(self._plan.topic)

    def append(self, broker_round: BrokerRound) -> None:
        """Set the configs of the round, and note its records. From files they are ingested now, as files that end
        where the broker's cleaner may have to stop."""
        self._configure(broker_round.configs)
        if self._plan.family.source == FROM_FILES:
            self._ingest_files(broker_round)
        for partition, records in broker_round.appended.items():
            self.ingested[partition] += records

    def _configure(self, configs: Configs) -> None:
        fixed = {"segment.ms": self._plan.segment_ms, "min.cleanable.dirty.ratio": 0}
        self._archive.configure(self._plan.topic, fixed | dict(configs), self._source)

    def _ingest_files(self, broker_round: BrokerRound) -> None:
        for part in range(1 + max(map(len, broker_round.bounds.values()))):
            records = [
                r for p, each in broker_round.appended.items() for r in each if _part(r, broker_round.bounds[p]) == part
            ]
            if records:
                self._archive.ingest(self._plan.topic, records)

    def compacted(self, number: int, broker_round: BrokerRound, now_ms: int) -> Iterator[Log]:
        """Compact, and yield both sides of every log."""
        # 1. the engine's round, and the records that it leaves
        topic = self._plan.topic
        self._archive.compact(topic, now_ms)
        live = self._archive.read(topic)
        checkpoints = self._archive.checkpoints(topic, now_ms)
        self.live_records = len(live)
        # 2. both sides of each log, with the facts that may explain a declared difference
        for partition in self.ingested:
            aged = now_ms >= self._active_ms(partition, broker_round) + self._plan.segment_ms
            checkpoint = checkpoints[partition]
            bound = self.ingested[partition][-1].offset + 1 if aged else broker_round.checkpoints[partition]
            self._keep(partition, Kept(number, bound, now_ms + broker_round.configs[RETENTION]))
            below = [r for r in self.ingested[partition] if r.offset < checkpoint]
            yield Log(
                partition=partition,
                round=number,
                now_ms=now_ms,
                broker=broker_round.left[partition],
                archive=[r for r in live if r.partition == partition],
                broker_checkpoint=broker_round.checkpoints[partition],
                archive_checkpoint=checkpoint,
                latest={r.key: r.offset for r in below},
                seen=[r.offset for r in self.ingested[partition]],
                kept=self._kept[partition],
                cleaned=partition in broker_round.cleaned,
                aged=aged,
            )

    def _active_ms(self, partition: int, broker_round: BrokerRound) -> int:
        """Return the first timestamp of the broker's active segment."""
        base = broker_round.bounds[partition][-1]
        return min(r.timestamp_ms or 0 for r in self.ingested[partition] if r.offset >= base)

    def _keep(self, partition: int, kept: Kept) -> None:
        rounds = self._kept[partition]
        if not rounds or kept.end_offset > rounds[-1].end_offset:
            rounds.append(kept)


def _part(record: Record, bounds: tuple[int, ...]) -> int:
    """Return the part of a record: 0 below the first bound, 1 below the second, and so on."""
    return sum(record.offset >= bound for bound in bounds)

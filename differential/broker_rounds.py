"""The broker's half: a plan's rounds under Kafka's cleaner, and the records that each of them left.

A read from Kafka goes to the end of the topic, and writes one data file per partition. So if the archive reads the
topic itself, a round is sent in parts: up to the first young segment, up to the active one, and the active one. Each
part is read before the next one is sent, so that files end where the cleaner may have to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cleantail.sources.kcat import Record
from differential.broker import BACKOFF_MS, Broker, BrokerError
from differential.families import FROM_KAFKA, LAG, RETENTION, SHORT_MS, Configs, Plan
from differential.histories import Draft, Segment
from differential.kafka_client import HELD_BACK, LET_GO, KafkaClient

CLEANED_WITHIN_S = 120
SETTLED_S = 3 * BACKOFF_MS / 1000
"""Seconds in which the cleaner checks every log at least twice."""

Logs = dict[int, list[Record]]
Segments = Mapping[int, tuple[Segment, ...]]
ReadPart = Callable[[Configs], None]
"""Called when consumers see a part of a round, with the configs of the round."""


@dataclass(frozen=True, slots=True)
class BrokerRound:
    """A round of one topic at the broker. All fields are by partition.

    `bounds` are the bases of the segments at which the cleaner may have to stop: the first young one, the active one.
    `checkpoints` are the first dirty offsets after the cleaning, 0 for a log that was never cleaned.
    """

    configs: Configs
    appended: Logs
    bounds: dict[int, tuple[int, ...]]
    left: Logs
    checkpoints: dict[int, int]
    cleaned: frozenset[int]


def broker_rounds(broker: Broker, client: KafkaClient, plan: Plan, read_part: ReadPart) -> Iterator[BrokerRound]:
    """Yield all rounds of a plan on a new topic, each after its cleaning. Raises BrokerError if the broker did not
    clean as expected."""
    fixed = {
        "cleanup.policy": "compact",
        "segment.ms": plan.segment_ms,
        "message.timestamp.after.max.ms": (1 << 63) - 1,
    }
    client.create(plan.topic, len(plan.histories), fixed | HELD_BACK)
    broker_topic = BrokerTopic(broker, client, plan, read_part)
    for number in range(len(plan.family.configs)):
        yield broker_topic.round(number)


def parts(segments: Segments) -> list[Segments]:
    """Return the parts of a round that the archive reads from the topic: of each partition the segments that are not
    young, the young ones that are not active, and the active one."""
    cut = {
        p: (tuple(s for s in each[:-1] if not s.young), tuple(s for s in each[:-1] if s.young), each[-1:])
        for p, each in segments.items()
    }
    all_parts = [{p: each[n] for p, each in cut.items()} for n in range(3)]
    return [part for part in all_parts if any(part.values())]


class BrokerTopic:
    """The state of a topic between its rounds."""

    def __init__(self, broker: Broker, client: KafkaClient, plan: Plan, read_part: ReadPart) -> None:
        self._broker, self._client, self._plan, self._read_part = broker, client, plan, read_part
        self._ends = dict.fromkeys(range(len(plan.histories)), 0)
        self._checkpoints = dict.fromkeys(self._ends, 0)
        self._young: dict[int, int] = {}
        self._cleanings = 0

    def round(self, number: int) -> BrokerRound:
        """Do one round: produce the new records while the cleaner is stopped, and let the archive read them. Then let
        the cleaner run, and read what is left."""
        topic, family = self._plan.topic, self._plan.family
        configs = family.configs[number]
        self._client.alter(topic, HELD_BACK | dict(configs))
        time.sleep(SETTLED_S)
        appended = self._append({p: h.rounds[number] for p, h in enumerate(self._plan.histories)}, configs)
        expected = {p: self._first_uncleanable(p, configs) for p in self._ends}
        self._client.alter(topic, LET_GO)
        self._wait_for(expected)
        cleaned = self._cleaned_once(expected)
        self._checkpoints = expected
        if configs[RETENTION] <= SHORT_MS:
            time.sleep(configs[RETENTION] / 1000)  # so that the next round comes after the horizon
        left = self._client.read(topic, self._ends, committed=family.transactional)
        bounds = {p: tuple(sorted({self._young.get(p, 0), self._active(p)})) for p in self._ends}
        return BrokerRound(configs, appended, bounds, left, expected, cleaned)

    def _append(self, segments: Segments, configs: Configs) -> Logs:
        from_kafka = self._plan.family.source == FROM_KAFKA
        appended: Logs = {}
        for part in parts(segments) if from_kafka else [segments]:
            for partition, records in self._append_part(part).items():
                appended.setdefault(partition, []).extend(records)
            if from_kafka:
                self._read_part(configs)
                self._require_active_in(part, appended)
        return appended

    def _append_part(self, segments: Segments) -> Logs:
        topic, family = self._plan.topic, self._plan.family
        if family.transactional:
            self._client.send_in_transactions(topic, segments)
        else:
            self._client.send(topic, segments, family.compression)
        counts = {p: sum(len(s.records) for s in each) for p, each in segments.items()}
        appended = self._client.read_new(topic, self._ends, counts, committed=family.transactional)
        for partition, records in appended.items():
            drafts = [draft for segment in segments[partition] for draft in segment.records]
            self._require_as_sent(partition, drafts, records)
            self._ends[partition] = records[-1].offset + 1
            self._note_young(partition, segments[partition], records)
        return appended

    def _require_active_in(self, part: Segments, appended: Logs) -> None:
        """Raise BrokerError if the broker's active segment does not begin with the last segment of a part: the
        archive's files are cut there."""
        for partition, segments in part.items():
            if not segments:
                continue
            offsets = [-1, *(record.offset for record in appended[partition])]
            start = len(offsets) - len(segments[-1].records)
            before, first = offsets[start - 1], offsets[start]
            if not before < (base := self._active(partition)) <= first:
                log = f"{self._plan.topic}-{partition}"
                raise BrokerError(f"{log}: the active segment begins at {base}, expected from {before + 1} to {first}")

    def _require_as_sent(self, partition: int, drafts: list[Draft], records: list[Record]) -> None:
        """Raise BrokerError unless the records that were read are those that were sent: no cleaning may precede the
        round."""
        if [(d.key, d.value, d.timestamp_ms, d.headers) for d in drafts] != [
            (r.key, r.value, r.timestamp_ms, r.headers) for r in records
        ]:
            raise BrokerError(f"{self._plan.topic}-{partition}: the read records are not those that were sent")

    def _note_young(self, partition: int, segments: tuple[Segment, ...], records: list[Record]) -> None:
        """Store the offset of the first record in a young segment."""
        before = 0
        for segment in segments:
            if segment.young and partition not in self._young:
                self._young[partition] = records[before].offset
            before += len(segment.records)

    def _active(self, partition: int) -> int:
        return self._broker.segment_bases(self._plan.topic, partition)[-1]

    def _first_uncleanable(self, partition: int, configs: Configs) -> int:
        """Return the offset at which the cleaner has to stop: that of the active segment, or of the first young one. It
        never decreases."""
        active = self._active(partition)
        young = self._young.get(partition, active) if configs.get(LAG) else active
        return max(self._checkpoints[partition], min(active, young))

    def _wait_for(self, expected: Mapping[int, int]) -> None:
        """Wait until the checkpoints cover the dirty parts, and the cleaner has nothing more to do after that."""
        topic, until = self._plan.topic, time.monotonic() + CLEANED_WITHIN_S
        while (checkpoints := self._current_checkpoints()) != expected:
            beyond = any(checkpoints[p] > expected[p] for p in expected)
            if beyond or time.monotonic() > until:
                differing = {p: (checkpoints[p], expected[p]) for p in expected if checkpoints[p] != expected[p]}
                raise BrokerError(f"{topic}: checkpoints (found, expected) by partition: {differing}")
            time.sleep(0.1)
        time.sleep(SETTLED_S)
        if self._current_checkpoints() != expected:
            raise BrokerError(f"{topic}: the cleaner cleaned beyond the bounds: {self._current_checkpoints()}")

    def _current_checkpoints(self) -> dict[int, int]:
        return dict.fromkeys(self._ends, 0) | self._broker.checkpoints(self._plan.topic)

    def _cleaned_once(self, expected: Mapping[int, int]) -> frozenset[int]:
        """Return the logs that were cleaned in this round, each by one cleaning from its old checkpoint to the new one.

        Raises BrokerError if a log was cleaned twice: its tombstones would be removed one round too early.
        """
        every = self._broker.cleanings(self._plan.topic)
        cleanings, self._cleanings = every[self._cleanings :], len(every)
        spans = sorted((c.partition, c.first_dirty_offset, c.end_offset) for c in cleanings)
        expected_spans = [(p, start, expected[p]) for p, start in self._checkpoints.items() if expected[p] > start]
        if spans != expected_spans:
            raise BrokerError(f"{self._plan.topic}: cleaned (partition, from, to) {spans}, expected {expected_spans}")
        return frozenset(p for p, _, _ in expected_spans)

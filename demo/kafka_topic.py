"""The topic in Kafka. Its records are sent in transactions, and a third of the transactions are aborted.

Aborted records have the keys of committed records, with the highest versions. So they would win if they were ingested.
The expected records are the records that a plain consumer with isolation.level=read_committed reads at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cleantail.sources.kcat import Record
from demo.inputs import Expected, version_of, winners
from demo.records import TopicInput
from differential.histories import Draft, Segment
from differential.kafka_client import KafkaClient

STEP_RECORDS = 300
"""Records of a partition in two committed transactions. Between the two, one transaction is aborted."""
ABORTED_RECORDS = 20
ABORTED_VERSION = 1 << 40


@dataclass(slots=True)
class KafkaTopic:
    """One topic of a running broker, with the records sent to it. `expected` is computed without the broker."""

    expected: Expected
    client: KafkaClient
    _ends: list[dict[int, int]] = field(default_factory=list)
    """For each batch, the end of every partition after it: one past its last committed record."""
    _aborted: int = 0

    @property
    def topic(self) -> str:
        return self.expected.input.topic

    @property
    def _partitions(self) -> range:
        return range(1 + max(record.partition for record in self.expected.input.records))

    def create(self) -> None:
        self.client.create(self.topic, len(self._partitions), {"cleanup.policy": "delete", "retention.ms": -1})

    def send(self, batch: int) -> None:
        """Send a batch, unless it was sent before. Returns when a consumer sees the whole batch, because the broker
        writes markers of transactions a moment later."""
        if batch < len(self._ends):
            return
        records = self.expected.input.batches[batch]
        logs = {p: [r for r in records if r.partition == p] for p in self._partitions}
        segments = {p: steps(log) for p, log in logs.items()}
        self.client.send_in_transactions(self.topic, segments)
        before = self._ends[-1] if self._ends else dict.fromkeys(logs, 0)
        counts = {p: len(log) for p, log in logs.items()}
        seen = self.client.read_new(self.topic, before, counts, committed=True)
        self._ends.append(before | {p: log[-1].offset + 1 for p, log in seen.items()})
        self._aborted += max(map(len, segments.values()))

    def as_consumed(self) -> Expected:
        """Return the records that the table must have, as a consumer of the whole topic sees them, and whether they
        equal the committed records."""
        logs = self.client.read(self.topic, self._partitions, committed=True)
        seen = [record for log in logs.values() for record in log]
        first_ends = self._ends[0]
        batches = (
            [record for record in seen if record.offset < first_ends[record.partition]],
            [record for record in seen if record.offset >= first_ends[record.partition]],
        )
        values = winners(seen, version_of)
        claim = f"a read_committed consumer sees what was committed, and not the {self._aborted} aborted transactions"
        as_committed = contents(seen) == contents(self.expected.input.records) and values == self.expected.values
        return replace(
            self.expected,
            input=TopicInput(self.topic, self.expected.input.origin, batches),
            values=values,
            proof=f"{self.expected.proof} that a read_committed consumer sees",
            claims={claim: as_committed},
        )


def steps(log: Sequence[Record]) -> tuple[Segment, ...]:
    """Divide the records of one partition into transactions, committed and aborted ones in turn."""
    parts = [log[start : start + STEP_RECORDS] for start in range(0, len(log), STEP_RECORDS)]
    return tuple(
        Segment(
            records=tuple(Draft(r.key or b"", r.value, r.timestamp_ms or 0, r.headers) for r in part),
            aborted=tuple(rolled_back(r) for r in part[:ABORTED_RECORDS]),
            committed_first=len(part) // 2,
        )
        for part in parts
    )


def rolled_back(record: Record) -> Draft:
    """Return a change of the same customer that the source database rolled back. Its version is above all committed
    versions."""
    version = ABORTED_VERSION + record.offset
    headers = (("version", version.to_bytes(8, "big")),)
    return Draft(record.key or b"", b'{"rolled_back": true}', record.timestamp_ms or 0, headers)


def contents(records: Sequence[Record]) -> dict[int, list[tuple[object, ...]]]:
    """Return partition -> the content of its records, in their order, without their offsets."""
    logs: dict[int, list[tuple[object, ...]]] = {}
    for r in records:
        logs.setdefault(r.partition, []).append((r.timestamp_ms, r.key, r.value, r.headers))
    return logs

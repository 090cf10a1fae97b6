"""Compare one log of the broker with the same log of the archive. Return the differences, and whether each is declared.
Pure.

The declared differences are those of docs/limits.md and of semantics.md part 3. Each explanation is narrow:

1. It is computed from the input and from the broker's cleanings, not from the archive's own state.
2. It exists only for records that the archive has removed and the broker still has.
3. It never exists for a record that differs, that only the archive has, or that occurs twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from cleantail.sources.kcat import Record


class Declared(Enum):
    """The declared differences: the number in semantics.md part 3, and the reason in words."""

    ROLLED = (
        "3.1",
        "no new record came: the archive closes a segment at the age segment.ms, Kafka only at an append",
    )
    SWEPT = ("3.4", "a tombstone left at its horizon; Kafka keeps it until new records let it clean that log again")
    UNSEEN = (
        "3.10",
        "markers and aborted data have offsets that no consumer sees: the first dirty offset differs among them",
    )

    @property
    def section(self) -> str:
        return self.value[0]

    @property
    def reason(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Kept:
    """A round that first kept the tombstones below `end_offset`. They may be removed if now >= `horizon_ms`."""

    round: int
    end_offset: int
    horizon_ms: int


@dataclass(frozen=True, slots=True)
class Log:
    """Both sides of one log after one round.

    `latest` maps a key to its highest offset among the input below the archive's checkpoint. `cleaned`: the broker
    cleaned this log in this round. `aged`: the archive's clock is past the active segment's segment.ms. `seen`: the
    offsets of the input.
    """

    partition: int
    round: int
    now_ms: int
    broker: Sequence[Record]
    archive: Sequence[Record]
    broker_checkpoint: int
    archive_checkpoint: int
    latest: Mapping[bytes | None, int]
    seen: Sequence[int]
    kept: Sequence[Kept]
    cleaned: bool
    aged: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at one offset (of a record, or the checkpoint), with the declared reason if there is one."""

    partition: int
    round: int
    what: str
    declared: Declared | None
    is_record: bool = True


def compare(log: Log) -> list[Difference]:
    """Return the differences of a log. Empty if both sides are equal."""
    return [*_checkpoints(log), *_records(log)]


def _checkpoints(log: Log) -> list[Difference]:
    ours, theirs = log.archive_checkpoint, log.broker_checkpoint
    if ours == theirs:
        return []
    between = [offset for offset in log.seen if min(ours, theirs) <= offset < max(ours, theirs)]
    rolled = log.aged and ours > theirs and ours == log.seen[-1] + 1
    declared = Declared.UNSEEN if not between else Declared.ROLLED if rolled else None
    what = f"the checkpoint is {theirs} at the broker, {ours} in the archive"
    return [Difference(log.partition, log.round, what, declared, is_record=False)]


def _records(log: Log) -> list[Difference]:
    theirs, ours = {r.offset: r for r in log.broker}, {r.offset: r for r in log.archive}
    differences = [_difference(log, f"offset {offset} occurs twice") for offset in _twice(log.archive)]
    for offset in sorted(theirs.keys() | ours.keys()):
        if offset not in theirs:
            differences.append(_difference(log, f"only the archive has {_shown(ours[offset])}"))
        elif offset not in ours:
            record = theirs[offset]
            differences.append(_difference(log, f"only the broker has {_shown(record)}", explained(record, log)))
        elif theirs[offset] != ours[offset]:
            texts = _shown(theirs[offset]), _shown(ours[offset])
            differences.append(_difference(log, f"the broker has {texts[0]}, the archive has {texts[1]}"))
    return differences


def _difference(log: Log, what: str, declared: Declared | None = None) -> Difference:
    return Difference(log.partition, log.round, what, declared)


def _twice(records: Iterable[Record]) -> list[int]:
    copies = Counter(record.offset for record in records)
    return [offset for offset, count in copies.items() for _ in range(count - 1)]


def _shown(record: Record) -> str:
    value = "tombstone" if record.value is None else f"{len(record.value)} bytes"
    return f"offset {record.offset} (key {record.key!r}, {value}, ts {record.timestamp_ms}, headers {record.headers})"


def explained(record: Record, log: Log) -> Declared | None:
    """Return the declared reason for which the archive may have removed a record that the broker still has, or
    None."""
    if record.offset >= log.archive_checkpoint:
        return None
    latest = log.latest.get(record.key, -1)
    if log.aged and latest > record.offset and latest >= log.broker_checkpoint:
        return Declared.ROLLED
    return _swept(record.offset, log) if record.value is None else None


def _swept(offset: int, log: Log) -> Declared | None:
    """Return SWEPT if the tombstone's horizon has passed and the broker has not cleaned the log since. A first
    cleaning never drops a tombstone."""
    first_kept_by = next((k for k in log.kept if offset < k.end_offset), None)
    if first_kept_by is None or log.now_ms < first_kept_by.horizon_ms or first_kept_by.round == log.round:
        return None
    return None if log.cleaned else Declared.SWEPT

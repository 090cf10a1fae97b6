"""Says what a topic table remembers of each of its logs, and how that is written into a table property.

1. The state changes only in the commit that changes the data (semantics.md 3.2). So a reader of the table sees both or
   neither, and Airflow's database holds no truth about data.
2. The ledger of horizons has one entry for each round: (end offset, horizon). A tombstone has the horizon of the first
   round whose end offset is above it (semantics.md 3.3).
3. A horizon is set once: entries are added, and none is moved, whatever becomes of delete.retention.ms (semantics.md
   1.5).
4. A tombstone that arrives below the clean point gets an entry of its own, since the round at hand is the first that
   keeps it (semantics.md 1.5, 3.5).
5. Entries without a live tombstone are dropped, all but the last, so that the ledger stays short.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from pydantic import ConfigDict

from cleantail.codec import Codec
from cleantail.config.unholdable import POLICY, TEXTS, Reason
from cleantail.errors import TableError
from cleantail.human import counted, one_line, whole_number

PROPERTY_LEFT_OUT = "cleantail.unholdable"
"""Table property: what was left out, as JSON, oldest first."""
LEFT_OUT_KEPT = 200
"""The number of the newest entries that the property keeps; the evidence has all of them."""
DELETED_REASON = "unholdable"
"""The reason under which the evidence and the metrics count them."""
PROPERTY_PARTITION = "cleantail.partition."
"""Table property, with the partition number at its end: the PartitionState of that log as JSON."""
PROPERTY_INGESTED = "cleantail.ingested."
"""Table property, with the SHA-256 of a source file's content at its end: that file is in the table (exactly once)."""
STATE_VERSION: Literal[1] = 1
_NO_MORE = ConfigDict(extra="forbid")
CHECK_FAILED = "check failed"
"""The beginning of a quarantine's reason where a check failed, and no person said no."""
REWRITTEN_TOLD_MS = 86_400_000
UNKNOWN_SNAPSHOT = 0
"""The snapshot of a round that an earlier version published, without a mark."""


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    """Describes records of a partition, between two offsets, that a table cannot hold for one reason.

    `policy` is what became of them, `at_ms` when they were read (Unix ms).
    """

    partition: int
    first_offset: int
    last_offset: int
    records: int
    reason: Reason
    policy: Literal["quarantine", "drop"]
    at_ms: int

    @property
    def text(self) -> str:
        """Returns what was left out, for a sentence."""
        became = "moved to the side table" if self.policy == "quarantine" else "dropped"
        offsets = f"offset {self.first_offset}"
        if self.last_offset > self.first_offset:
            offsets = f"offsets {self.first_offset} to {self.last_offset}"
        return (
            f"partition {self.partition}: {counted(self.records, 'record')} that the table cannot hold ({offsets}: "
            f"{TEXTS[self.reason]}), {became}"
        )

    @property
    def subject(self) -> str:
        """Returns what an alert says that it is about."""
        return f"partition {self.partition}"

    @property
    def occurrence(self) -> str:
        """Returns what tells these from the next of their partition."""
        return f"{self.reason} to {self.last_offset}"

    @property
    def config(self) -> str:
        """Returns what let the ingestion go on."""
        return f"{POLICY}: {self.policy}"


_LEFT_OUT_JSON: Codec[tuple[LeftOut, ...]] = Codec(tuple[LeftOut, ...])


def left_out_of(properties: Mapping[str, str], table: str) -> tuple[LeftOut, ...]:
    """Returns what a table's properties say was left out, oldest first. Raises TableError."""
    text = properties.get(PROPERTY_LEFT_OUT)
    return _LEFT_OUT_JSON.value(text, f"{table}: property {PROPERTY_LEFT_OUT}") if text else ()


def with_left_out(properties: Mapping[str, str], table: str, new: Iterable[LeftOut]) -> dict[str, str]:
    """Returns the property as it is after an ingestion, which may leave out again what a rollback has undone; nothing
    if it has left out nothing."""
    new = tuple(new)
    if not new:
        return {}
    again = {(e.partition, e.first_offset, e.last_offset, e.reason) for e in new}
    before = left_out_of(properties, table)
    kept = [e for e in before if (e.partition, e.first_offset, e.last_offset, e.reason) not in again]
    return {PROPERTY_LEFT_OUT: _LEFT_OUT_JSON.text((*kept, *new)[-LEFT_OUT_KEPT:])}


@dataclass(frozen=True, slots=True)
class Horizon:
    """Describes one entry of the ledger: tombstones from the entry before it up to `end_offset` (exclusive) may go when
    now >= `horizon_ms`.

    `tombstones` says how many of them were alive when the last round published. Those below `swept_to` have been
    removed, as far as the slowest reader had read.
    """

    __pydantic_config__ = _NO_MORE

    end_offset: int
    horizon_ms: int
    tombstones: int = 0
    swept_to: int = 0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Says of a log's last published reconciliation up to which offset (exclusive) its keys were compared with the
    brokers', and when (Unix ms)."""

    __pydantic_config__ = _NO_MORE

    end_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Says why a log is not published, since when, and when the scheduler may try again (all Unix ms).

    `kind` is that of the round whose check failed or that a person rejected: compact, expire, reconcile or retain.
    `branch` keeps what a failed round would have published, for inspection (failed_branches); it is empty where nothing
    is kept.
    """

    __pydantic_config__ = _NO_MORE

    since_ms: int
    kind: str
    reason: str
    attempts: int
    retry_at_ms: int
    branch: str = ""

    @property
    def check_failed(self) -> bool:
        """Returns whether a check failed; False where a person has said no, or nobody said yes in time."""
        return self.reason.startswith(CHECK_FAILED)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Says that others took a snapshot of ours out of the history of `main` (cleantail.rounds.rewritten_history), and
    when that was noted (Unix ms, by the clock of the run); None as long as no commit took note of it."""

    __pydantic_config__ = _NO_MORE

    snapshot_id: int
    at_ms: int | None = None

    def counts_at(self, now_ms: int) -> bool:
        """Return whether status and alerts report it: for a day."""
        return self.at_ms is None or now_ms - self.at_ms < REWRITTEN_TOLD_MS

    @property
    def text(self) -> str:
        """Return what happened, for a sentence."""
        what = f"snapshot {self.snapshot_id}" if self.snapshot_id != UNKNOWN_SNAPSHOT else "the last round"
        return (
            f"history was rewritten: another program took {what} out of main (a rollback, or "
            "CREATE OR REPLACE TABLE). The log is cleaned from its start, horizons begin again, and what was rolled "
            "away of the source is read again"
        )


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Describes what the table remembers of one log.

    `checkpoint` is the first dirty offset as of the last round; None before the first round. `known_sequence_number` is
    the Iceberg data sequence number of the snapshot that the last round read: a file above it came later.
    `earlier_rounds` holds (end offset, sequence number) of rounds that had ended above the checkpoint, before late
    records moved it back; the ends ascend. `guards` counts due tombstones that stay until the records which they beat
    are cleaned. `head_tombstones` counts live tombstones at or above the checkpoint in the files known then.
    `proven_ms` says when the uniqueness of all keys was last proven from nothing. `retained_from` is the log start that
    retention has set; None where it never has, and a backfill may still lower the log start. `reconciled` is None
    before the first reconciliation with a source. `rewritten` is None unless others rewrote the table's history.
    `left_out` comes from a property of its own, which only ingestions write.
    """

    __pydantic_config__ = _NO_MORE

    checkpoint: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    horizons: tuple[Horizon, ...] = ()
    known_sequence_number: int = 0
    head_tombstones: int = 0
    last_round_ms: int | None = None
    proven_ms: int | None = None
    retained_from: int | None = None
    quarantine: Quarantine | None = None
    earlier_rounds: tuple[tuple[int, int], ...] = ()
    guards: int = 0
    reconciled: Reconciled | None = None
    rewritten: Rewritten | None = None
    left_out: tuple[LeftOut, ...] = ()

    def is_reconciled(self, end_offset: int, at_ms: int) -> bool:
        """Returns whether a reconciliation of that time (Unix ms) or a later one has compared everything below an
        offset."""
        done = self.reconciled
        return done is not None and done.end_offset >= end_offset and done.at_ms >= at_ms

    @property
    def ledger_end_offset(self) -> int:
        """Returns the offset below which every tombstone has a horizon, but for those that came late; 0 without a
        ledger."""
        return self.horizons[-1].end_offset if self.horizons else 0

    def as_json(self) -> str:
        """Returns the state as one line of JSON with sorted keys, so that equal states are equal texts. `reconciled`
        and `rewritten` are there only if they are known."""
        plain = _STATE_JSON.plain(_Written(**_fields(self), version=STATE_VERSION))
        known = {"reconciled": self.reconciled, "rewritten": self.rewritten, "left_out": None}
        kept = {name: value for name, value in plain.items() if known.get(name, True)}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(PartitionState):
    """Describes a state as its text has it. What every version has written is required here."""

    horizons: tuple[Horizon, ...]
    quarantine: Quarantine | None
    version: Literal[1]


_STATE_JSON: Codec[_Written] = Codec(_Written)


def parse_partition_state(text: str, where: str) -> PartitionState:
    """Parses what `as_json` wrote. Raises TableError, naming `where`, when this version cannot read the property: one
    with an unknown field it cannot, since what is read is written again, and would lose it."""
    try:
        return PartitionState(**_fields(_STATE_JSON.value(text, "it")))
    except TableError as e:
        raise TableError(f"{where} is not a partition state of version {STATE_VERSION}: {e}") from None


def _fields(state: PartitionState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(PartitionState)}


def states_of_properties(properties: Mapping[str, str], table: str) -> dict[int, PartitionState]:
    """Returns the states that a table's properties hold, by partition number."""
    states = {
        _partition_of(name, table): parse_partition_state(text, f"{table}: property {name}")
        for name, text in properties.items()
        if name.startswith(PROPERTY_PARTITION)
    }
    for entry in left_out_of(properties, table):
        state = states.get(entry.partition, PartitionState())
        states[entry.partition] = replace(state, left_out=(*state.left_out, entry))
    return states


def ingested_files(properties: Mapping[str, str]) -> frozenset[str]:
    """Returns the digests of the files whose records a table has, of its properties."""
    return frozenset(name[len(PROPERTY_INGESTED) :] for name in properties if name.startswith(PROPERTY_INGESTED))


def _partition_of(name: str, table: str) -> int:
    number = whole_number(name.removeprefix(PROPERTY_PARTITION), 10)
    if number is None:
        raise TableError(f"{table}: property {one_line(name)} does not end in a partition number")
    return number


def with_starts(horizons: Sequence[Horizon]) -> list[tuple[int, Horizon]]:
    """Return each entry of the ledger with the offset at which its span begins."""
    starts = [0, *(h.end_offset for h in horizons)]
    return list(zip(starts, horizons, strict=False))


def spans_with_tombstones(horizons: tuple[Horizon, ...], below_offset: int) -> list[tuple[int, int]]:
    """Returns the offset spans (end exclusive) of the entries with live tombstones, as far as they lie below
    `below_offset`."""
    spans = [(start, min(h.end_offset, below_offset)) for start, h in with_starts(horizons) if h.tombstones]
    return [(start, end) for start, end in spans if start < end]


def with_round(horizons: tuple[Horizon, ...], end_offset: int, horizon_ms: int) -> tuple[Horizon, ...]:
    """Returns the ledger after a round that ended at `end_offset`. An entry is added where the ledger ends below it;
    none is moved (semantics.md 1.5)."""
    if horizons and horizons[-1].end_offset >= end_offset:
        return horizons
    return (*horizons, Horizon(end_offset, horizon_ms))


def with_late_tombstones(horizons: tuple[Horizon, ...], offsets: list[int], horizon_ms: int) -> tuple[Horizon, ...]:
    """Returns the ledger with a horizon of their own for tombstones that arrived below the clean point.

    Kafka starts a tombstone's clock at the first cleaning that kept it (semantics.md 1.5). For these that is the round
    at hand, not the one that once cleaned the offsets around them.
    """
    for offset in sorted(offsets):
        horizons = _split_at(horizons, offset, horizon_ms)
    return horizons


def _split_at(horizons: tuple[Horizon, ...], offset: int, horizon_ms: int) -> tuple[Horizon, ...]:
    """Returns the ledger with the entry around `offset` split in up to three, so that this offset alone has
    `horizon_ms`.

    A neighbour below that has the same horizon already is extended instead of a new entry being made.
    """
    index = next((i for i, h in enumerate(horizons) if offset < h.end_offset), None)
    if index is None:
        return horizons
    if horizons[index].horizon_ms == horizon_ms and offset >= horizons[index].swept_to:
        return horizons  # the entry says it all, and a sweep still comes to it
    before, entry, after = horizons[:index], horizons[index], horizons[index + 1 :]
    start = before[-1].end_offset if before else 0
    head = (replace(entry, end_offset=offset),) if offset > start else ()
    tail = (entry,) if offset + 1 < entry.end_offset else ()
    if before and not head and before[-1].horizon_ms == horizon_ms:
        return (*before[:-1], replace(before[-1], end_offset=offset + 1), *tail, *after)
    return (*before, *head, Horizon(offset + 1, horizon_ms), *tail, *after)


def without_swept(horizons: tuple[Horizon, ...]) -> tuple[Horizon, ...]:
    """Returns the ledger without the entries that have no live tombstone, all but the last, so that it stays short.

    The offsets of a dropped entry fall to the next one. That affects no tombstone: none is alive there, and one that
    comes late gets a horizon of its own.
    """
    return (*(h for h in horizons[:-1] if h.tombstones), *horizons[-1:])

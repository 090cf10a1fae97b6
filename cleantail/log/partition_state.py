"""What a topic table remembers of each of its logs, and how a table property stores it. Pure.

1. The state changes only in the commit that changes the data (semantics.md 3.2). A reader of the table sees both or
   neither. Airflow's database decides nothing about data.
2. The ledger of horizons has one entry for each round: (end offset, horizon). A tombstone has the horizon of the first
   round whose end offset is above it (semantics.md 3.3).
3. A horizon is set once. Entries are added, and none is moved if delete.retention.ms changes (semantics.md 1.5).
4. A tombstone that arrives below the first dirty offset gets an entry of its own. The current round is the first that
   keeps it (semantics.md 1.5, 3.5).
5. Entries without a live tombstone are dropped, except the last one, so that the ledger stays short.

An ingestion that leaves out records, because the table cannot hold them (cleantail.config.unholdable), lists them in a
separate property. Status, alerts and evidence read that property.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from pydantic import ConfigDict

from cleantail.codec import FORMAT, Codec, FormatNumber
from cleantail.config.unholdable import ERASED, POLICY, TEXTS, Reason
from cleantail.errors import TableError
from cleantail.human import counted, instant, one_line, whole_number

PROPERTY_LEFT_OUT = "cleantail.unholdable"
"""Table property: the records that were left out, as JSON, oldest first."""
LEFT_OUT_KEPT = 200
"""Number of entries that the property keeps, the newest ones. The evidence has all of them."""
PROPERTY_DENYLIST = "cleantail.denylist"
"""Table property: a digest of the requests of erasure that keep keys out. The commit of an ingestion that began with
another digest is refused."""
PROPERTY_PARTITION = "cleantail.partition."
"""Prefix of a table property with the PartitionState of a log as JSON. The partition number follows."""
PROPERTY_INGESTED = "cleantail.ingested."
"""Prefix of a table property that marks an ingested source file. The SHA-256 of the file follows. The value is the time
of ingestion (Unix ms), or UNTIMED."""
UNTIMED = "1"
"""The value of a mark without a time. The next ingestion replaces it by its own time."""
PROPERTY_FORGOTTEN = "cleantail.files-forgotten"
"""Table property: the latest time of ingestion (Unix ms) among the marks that were removed."""
_NO_MORE = ConfigDict(extra="forbid")
CHECK_FAILED = "check failed"
"""The beginning of a quarantine's reason if a check failed. A rejection has another reason."""
NOT_APPROVED = "not approved in time"
"""The reason of a quarantine if no user answered."""
REWRITTEN_REPORTED_MS = 86_400_000
UNKNOWN_SNAPSHOT = 0
"""Stands for the snapshot of a round that left no mark."""


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    """Records of a partition, between two offsets, that a table cannot hold for one reason.

    `policy` is what happened to them, `at_ms` when they were read (Unix ms).
    """

    partition: int
    first_offset: int
    last_offset: int
    records: int
    reason: Reason
    policy: Literal["quarantine", "drop"]
    at_ms: int

    @property
    def counted_as(self) -> str:
        """Return the reason under which the evidence and the metrics count the records."""
        return ERASED if self.reason == ERASED else "unholdable"

    @property
    def text(self) -> str:
        became = "moved to the side table" if self.policy == "quarantine" else "dropped"
        offsets = f"offset {self.first_offset}"
        if self.last_offset > self.first_offset:
            offsets = f"offsets {self.first_offset} to {self.last_offset}"
        if self.reason == ERASED:
            return f"partition {self.partition}: {counted(self.records, 'record')} of erased keys left out ({offsets})"
        return (
            f"partition {self.partition}: {counted(self.records, 'record')} that the table cannot hold ({offsets}: "
            f"{TEXTS[self.reason]}), {became}"
        )

    @property
    def subject(self) -> str:
        return f"partition {self.partition}"

    @property
    def occurrence(self) -> str:
        """Return the key that separates these records from the next ones of their partition."""
        return f"{self.reason} to {self.last_offset}"

    @property
    def config(self) -> str:
        """Return the config that let the ingestion continue."""
        return f"{POLICY}: {self.policy}"


_LEFT_OUT_JSON: Codec[tuple[LeftOut, ...]] = Codec(tuple[LeftOut, ...])


def left_out_of(properties: Mapping[str, str], table: str) -> tuple[LeftOut, ...]:
    """Parse a table's property, oldest first. Raises TableError."""
    text = properties.get(PROPERTY_LEFT_OUT)
    return _LEFT_OUT_JSON.value(text, f"{table}: property {PROPERTY_LEFT_OUT}") if text else ()


def with_left_out(properties: Mapping[str, str], table: str, new: Iterable[LeftOut]) -> dict[str, str]:
    """Return the property after an ingestion. Empty if the ingestion left out nothing.

    An ingestion after a rollback may leave out the same records again: they are listed once.
    """
    new = tuple(new)
    if not new:
        return {}
    again = {(e.partition, e.first_offset, e.last_offset, e.reason) for e in new}
    before = left_out_of(properties, table)
    kept = [e for e in before if (e.partition, e.first_offset, e.last_offset, e.reason) not in again]
    return {PROPERTY_LEFT_OUT: _LEFT_OUT_JSON.text((*kept, *new)[-LEFT_OUT_KEPT:])}


@dataclass(frozen=True, slots=True)
class Horizon:
    """An entry of the ledger: tombstones up to `end_offset` (exclusive) may be removed when now >= `horizon_ms`.

    Its span begins at the end of the entry before. `tombstones` were alive when the last round published. Tombstones
    below `swept_to` were removed, up to where the slowest reader had read.
    """

    __pydantic_config__ = _NO_MORE

    end_offset: int
    horizon_ms: int
    tombstones: int = 0
    swept_to: int = 0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The last published reconciliation of a log.

    Keys below `end_offset` (exclusive) were compared with the brokers' at `at_ms` (Unix ms).
    """

    __pydantic_config__ = _NO_MORE

    end_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a log is blocked, since when, and when the scheduler may try again (times in Unix ms).

    `kind` is that of the round whose check failed or that a user rejected: compact, expire, reconcile, erase or retain.
    `branch` keeps what a failed round would have published (cleantail.log.quarantine); empty if nothing is kept.
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
        """Return whether a check failed; False if a user rejected the round, or no user approved it in time."""
        return self.reason.startswith(CHECK_FAILED)

    @property
    def unanswered(self) -> bool:
        """Return whether no user answered whether the round may be published."""
        return self.reason == NOT_APPROVED


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Another program took a snapshot of Cleantail out of the history of `main` (cleantail.rounds.rewritten_history).

    `at_ms` is when a run noted this (Unix ms, by the run's clock), or None while no commit has noted it.
    """

    __pydantic_config__ = _NO_MORE

    snapshot_id: int
    at_ms: int | None = None

    def counts_at(self, now_ms: int) -> bool:
        """Return whether status and alerts still report the loss: for a day."""
        return self.at_ms is None or now_ms - self.at_ms < REWRITTEN_REPORTED_MS

    @property
    def text(self) -> str:
        what = f"snapshot {self.snapshot_id}" if self.snapshot_id != UNKNOWN_SNAPSHOT else "the last round"
        return (
            f"history was rewritten: another program took {what} out of main (a rollback, or "
            "CREATE OR REPLACE TABLE). The log is cleaned from its start, horizons begin again, and records that the "
            "rollback removed are read from the source again"
        )


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the table remembers of one log.

    `checkpoint` is the first dirty offset after the last round, None before the first. `known_sequence_number` is the
    data sequence number of the snapshot that the last round read: a file above it came later. `earlier_rounds` holds
    (end offset, sequence number) of rounds that had ended above the checkpoint, before late records moved it back; ends
    ascend. `guards` counts due tombstones that stay until the records which they beat are cleaned. `head_tombstones`
    counts live tombstones at or above the checkpoint in the files known then. `proven_ms` is when a full proof last
    showed that all keys are unique. `retained_from` is the log start that retention has set, None if it never has: then
    a backfill may lower the log start. `left_out` comes from a property of its own, which only ingestions write.
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
        """Return whether a reconciliation at `at_ms` (Unix ms) or later has compared everything below an offset."""
        done = self.reconciled
        return done is not None and done.end_offset >= end_offset and done.at_ms >= at_ms

    @property
    def ledger_end_offset(self) -> int:
        """Return the offset below which every tombstone has a horizon, except late ones; 0 without a ledger."""
        return self.horizons[-1].end_offset if self.horizons else 0

    def as_json(self) -> str:
        """Return the state as one line of JSON with sorted keys, so that equal states are equal texts.

        Optional fields without a value are left out.
        """
        plain = _STATE_JSON.plain(_Written(**_fields(self), version=FORMAT))
        known = {"reconciled": self.reconciled, "rewritten": self.rewritten, "left_out": None}
        kept = {name: value for name, value in plain.items() if known.get(name, True)}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(PartitionState):
    """The stored form of a state. Fields that every state has are required."""

    horizons: tuple[Horizon, ...]
    quarantine: Quarantine | None
    version: FormatNumber


_STATE_JSON: Codec[_Written] = Codec(_Written)


def parse_partition_state(text: str, where: str) -> PartitionState:
    """Parse what `as_json` wrote. Raises TableError, naming `where`, for an unknown version or field.

    The state is written back, and would lose an unknown field.
    """
    try:
        return PartitionState(**_fields(_STATE_JSON.value(text, "it")))
    except TableError as e:
        raise TableError(f"{where} is not a partition state of version {FORMAT}: {e}") from None


def _fields(state: PartitionState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(PartitionState)}


def states_of_properties(properties: Mapping[str, str], table: str) -> dict[int, PartitionState]:
    """Return partition -> state, from a table's properties. Raises TableError."""
    states: dict[int, PartitionState] = {}
    for name, text in properties.items():
        if name.startswith(PROPERTY_PARTITION):
            partition = whole_number(name.removeprefix(PROPERTY_PARTITION), 10)
            if partition is None:
                raise TableError(f"{table}: property {one_line(name)} does not end in a partition number")
            states[partition] = parse_partition_state(text, f"{table}: property {name}")
    for entry in left_out_of(properties, table):
        state = states.get(entry.partition, PartitionState())
        states[entry.partition] = replace(state, left_out=(*state.left_out, entry))
    return states


def ingested_files(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the digests of the source files whose records the table has."""
    return frozenset(name[len(PROPERTY_INGESTED) :] for name in properties if name.startswith(PROPERTY_INGESTED))


def aged_marks(
    properties: Mapping[str, str], present: Collection[str], now_ms: int, retention_ms: int
) -> tuple[dict[str, str], list[str]]:
    """Return the properties to set and to remove, so that marks of source files end with their retention.

    A file that is still `present` (its digest) keeps its mark: otherwise the next run would ingest it again. A mark
    without a time gets `now_ms`.
    """
    marks = {name: text for name, text in properties.items() if name.startswith(PROPERTY_INGESTED)}
    times = {
        name: at_ms for name, text in marks.items() if text != UNTIMED and (at_ms := whole_number(text)) is not None
    }
    old = {name: at_ms for name, at_ms in times.items() if at_ms < now_ms - retention_ms}
    gone = sorted(name for name in old if name.removeprefix(PROPERTY_INGESTED) not in present)
    changed = {name: str(now_ms) for name in marks.keys() - times.keys()}
    if gone:
        latest_ms = max(old[name] for name in gone)
        before_ms = whole_number(properties.get(PROPERTY_FORGOTTEN, ""))
        changed[PROPERTY_FORGOTTEN] = str(max(latest_ms, before_ms or latest_ms))
    return changed, gone


def replay_warnings(properties: Mapping[str, str], shared: Mapping[int, tuple[int, int]]) -> tuple[str, ...]:
    """Return an ingestion's warning for each log in which it may repeat a file whose mark was removed.

    `shared`: partition -> offsets [from, to) between which both the table and the new files have records.
    """
    forgotten_ms = whole_number(properties.get(PROPERTY_FORGOTTEN, ""))
    if forgotten_ms is None:
        return ()
    return tuple(
        f"partition {p}: the table already has records between offsets {low} and {end - 1}. A file that was ingested "
        f"up to {instant(forgotten_ms)} is not recognized (cleantail.ingested.retention.ms), so this may be one. "
        "Records at one offset are equal, and the next round keeps one"
        for p, (low, end) in sorted(shared.items())
    )


def with_starts(horizons: Sequence[Horizon]) -> list[tuple[int, Horizon]]:
    """Return each entry of the ledger with the offset at which its span begins."""
    starts = [0, *(h.end_offset for h in horizons)]
    return list(zip(starts, horizons, strict=False))


def spans_with_tombstones(horizons: tuple[Horizon, ...], below_offset: int) -> list[tuple[int, int]]:
    """Return the spans (end exclusive) of entries with live tombstones, cut at `below_offset`."""
    spans = [(start, min(h.end_offset, below_offset)) for start, h in with_starts(horizons) if h.tombstones]
    return [(start, end) for start, end in spans if start < end]


def with_round(horizons: tuple[Horizon, ...], end_offset: int, horizon_ms: int) -> tuple[Horizon, ...]:
    """Return the ledger after a round that ended at `end_offset`.

    An entry is added if the ledger ends below that offset.
    """
    if horizons and horizons[-1].end_offset >= end_offset:
        return horizons
    return (*horizons, Horizon(end_offset, horizon_ms))


def with_late_tombstones(horizons: tuple[Horizon, ...], offsets: list[int], horizon_ms: int) -> tuple[Horizon, ...]:
    """Return the ledger with a horizon of their own for tombstones that arrived below the first dirty offset.

    Kafka starts a tombstone's clock at the first cleaning that kept it (semantics.md 1.5). For late tombstones this is
    the current round, not the round that once cleaned the offsets around them.
    """
    for offset in sorted(offsets):
        horizons = _split_at(horizons, offset, horizon_ms)
    return horizons


def _split_at(horizons: tuple[Horizon, ...], offset: int, horizon_ms: int) -> tuple[Horizon, ...]:
    """Split the entry around `offset` in up to three, so that this offset alone has `horizon_ms`.

    If the neighbour below has that horizon already, it is extended instead.
    """
    index = next((i for i, h in enumerate(horizons) if offset < h.end_offset), None)
    if index is None:
        return horizons
    if horizons[index].horizon_ms == horizon_ms and offset >= horizons[index].swept_to:
        return horizons  # the entry has this horizon already, and a sweep still reaches the offset
    before, entry, after = horizons[:index], horizons[index], horizons[index + 1 :]
    start = before[-1].end_offset if before else 0
    head = (replace(entry, end_offset=offset),) if offset > start else ()
    tail = (entry,) if offset + 1 < entry.end_offset else ()
    if before and not head and before[-1].horizon_ms == horizon_ms:
        return (*before[:-1], replace(before[-1], end_offset=offset + 1), *tail, *after)
    return (*before, *head, Horizon(offset + 1, horizon_ms), *tail, *after)


def without_swept(horizons: tuple[Horizon, ...]) -> tuple[Horizon, ...]:
    """Drop the entries that have no live tombstone, except the last one.

    The offsets of a dropped entry fall to the next entry. They have no live tombstone, and a late one gets its own
    horizon.
    """
    return (*(h for h in horizons[:-1] if h.tombstones), *horizons[-1:])

"""The rules of semantics.md a second time, as simply as possible, over lists. Shares no code with the kernel.

Input is the history, and the layout of the data files: the offsets and timestamps in each file, its size, and the
number of its live records. If a rule leaves a choice, a comment names the chosen one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

FOREVER = 9223372036854775807
DEFAULTS: dict[str, Any] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": FOREVER,
    "delete.retention.ms": 86_400_000,
    "segment.bytes": 1 << 30,
    "segment.ms": 604_800_000,
    "retention.ms": 604_800_000,
    "retention.bytes": -1,
    "message.timestamp.after.max.ms": FOREVER,
    "compaction.strategy": "offset",
    "compaction.strategy.header": "",
    "cleantail.header.occurrence": "last",
    "cleantail.keyless.policy": "fail",
    "cleantail.tombstone.lateness.ms": 0,
    "cleantail.readers.hold.cap.ms": 604_800_000,
    "cleantail.over.budget": "spill",
    "log.cleaner.dedupe.buffer.size": 134_217_728,
    "log.cleaner.threads": 1,
    "log.cleaner.io.buffer.load.factor": 0.9,
}
"""Configs of the topic and of the cleaner."""
Rank = tuple[int, int, int]


@dataclass(frozen=True)
class Record:
    """A record of one log. If `value` is None, it is a tombstone."""

    offset: int
    ts: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class File:
    """A data file of one log as its metadata describes it, including deleted records. `live`: its live records."""

    offsets: tuple[int, ...]
    timestamps: tuple[int, ...]
    size: int
    live: int

    @property
    def bytes(self) -> float:
        return self.size * self.live / len(self.offsets)  # 3.1


@dataclass
class Copy:
    """A record in the table. `covered`: a round ended above it. `known`: a round of its log was published while the
    record was in the table, regardless of where the round ended."""

    record: Record
    covered: bool = False
    known: bool = False
    horizon: int | None = None
    horizon_round: int = 0


@dataclass
class Segment:
    """Files in offset order. As in Kafka a segment ends where the next one begins, even if files overlap."""

    files: list[File]
    next_base: int = FOREVER

    @property
    def base(self) -> int:
        return min(min(f.offsets) for f in self.files)

    @property
    def end(self) -> int:
        return min(max(max(f.offsets) for f in self.files) + 1, self.next_base)

    @property
    def bytes(self) -> float:
        return sum(f.bytes for f in self.files)

    @property
    def first_ts(self) -> int:
        return min(self.files[0].timestamps)  # the lowest of the first file (docs/limits.md)

    @property
    def largest_ts(self) -> int:
        return max(max(f.timestamps) for f in self.files)


@dataclass
class Log:
    """One partition."""

    copies: list[Copy] = field(default_factory=list)
    checkpoint: int | None = None
    start: int | None = None
    start_moved: bool = False
    end: int = 0
    rounds: int = 0
    remembered: list[tuple[bytes, Rank, int]] = field(default_factory=list)
    readers: dict[str, int] = field(default_factory=dict)
    quarantined: list[Record] = field(default_factory=list)
    held_back: bool = False
    """Whether the last run changed nothing in the log because of a record without a key."""

    @property
    def records(self) -> list[Record]:
        return sorted((c.record for c in self.copies), key=lambda r: r.offset)

    def append(self, records: Iterable[Record]) -> None:
        for record in records:
            self.copies.append(Copy(record))
            self.start = record.offset if self.start is None else min(self.start, record.offset)
            self.end = max(self.end, record.offset + 1)

    @property
    def late(self) -> int | None:
        """3.5: the lowest offset below the checkpoint whose record no round has covered. None if there is none."""
        if self.checkpoint is None:
            return None
        below = [c.record.offset for c in self.copies if not c.covered and c.record.offset < self.checkpoint]
        return min(below, default=None)

    @property
    def needs_repair(self) -> bool:
        """1.2: whether the checkpoint is below the log start or above the log end."""
        return self.checkpoint is not None and not (self.start or 0) <= self.checkpoint <= self.end

    @property
    def first_dirty(self) -> int:
        if self.checkpoint is None or self.needs_repair:
            return self.start or 0
        return self.checkpoint if self.late is None else self.late

    def repair(self) -> None:
        if self.needs_repair:
            self.checkpoint = self.start


def segments_of(files: Iterable[File], config: dict[str, Any]) -> list[Segment]:
    """3.1: data files in offset order. A file that would exceed segment.bytes or the segment's span starts a new segment.
    A file without live records is in no segment."""
    segments: list[Segment] = []
    for file in sorted((f for f in files if f.live), key=lambda f: (min(f.offsets), max(f.offsets))):
        last = segments[-1] if segments else None
        too_big = last and last.bytes + file.bytes > config["segment.bytes"]
        too_old = last and max(file.timestamps) - last.first_ts > segment_ms(config)
        same_base = last and min(file.offsets) == last.base  # Kafka names a segment by its base, so a base is unique
        if last is None or ((too_big or too_old) and not same_base):
            segments.append(Segment([file]))
        else:
            last.files.append(file)
    for segment, following in pairwise(segments):
        segment.next_base = following.base
    return segments


def segment_ms(config: dict[str, Any]) -> int:
    return min(config["segment.ms"], config["max.compaction.lag.ms"])


def active_of(segments: list[Segment], config: dict[str, Any], now: int) -> Segment | None:
    """3.1: the newest segment, unless it is as old as segment.ms. Then None."""
    if not segments or now - segments[-1].first_ts >= segment_ms(config):
        return None
    return segments[-1]


@dataclass
class Sections:
    """1.2 and the trigger of 1.3, at one moment."""

    first_dirty: int
    first_uncleanable: int
    ratio: float
    cleanable_bytes: float
    overdue: int

    def due(self, config: dict[str, Any], force: bool) -> bool:
        if "compact" not in config["cleanup.policy"] or self.first_uncleanable <= self.first_dirty:
            return False
        if self.cleanable_bytes <= 0:
            return False
        return force or self.ratio > config["min.cleanable.dirty.ratio"] or self.overdue > 0


def sections_of(log: Log, files: Iterable[File], config: dict[str, Any], now: int) -> Sections:
    segments = segments_of(files, config)
    active = active_of(segments, config, now)
    settled = [s for s in segments if s is not active]
    # chosen: a log without live records from first dirty on has no dirty part
    first_dirty = log.first_dirty if any(f.live and f.offsets[-1] >= log.first_dirty for f in files) else log.end
    dirty = [s for s in settled if s.end > first_dirty]
    limits = [log.end]
    if active:
        limits.append(active.base)
    if config["min.compaction.lag.ms"] > 0:
        young = [s.base for s in dirty if s.largest_ts > now - config["min.compaction.lag.ms"]]
        limits += young[:1]
    first_uncleanable = max(first_dirty, min(limits))
    clean = sum(s.bytes for s in segments if s.base < first_dirty)
    # Kafka counts the segment with firstDirty as clean and as cleanable (logSegments takes the floor)
    cleanable = sum(s.bytes for s in dirty if s.base < first_uncleanable) if first_dirty < first_uncleanable else 0
    ratio = cleanable / (clean + cleanable) if clean + cleanable else 0.0
    earliest = min((s.first_ts for s in dirty if s.first_ts > 0), default=None)
    overdue = 0 if earliest is None else max(0, now - config["max.compaction.lag.ms"] - earliest)
    return Sections(first_dirty, first_uncleanable, ratio, cleanable, overdue)


def retained_from(log: Log, files: Iterable[File], config: dict[str, Any], now: int) -> int:
    """1.1: the log start after retention.ms and retention.bytes, which delete whole segments, oldest first.

    As in Kafka (UnifiedLog.deleteOldSegments) retention.ms also applies to the segments that retention.bytes left.
    """
    start = log.start or 0
    if "delete" not in config["cleanup.policy"]:
        return start
    segments = [s for s in segments_of(files, config) if s.end > start]
    active = active_of(segments, config, now)
    size = sum(s.bytes for s in segments)
    limit_ms, limit_bytes = config["retention.ms"], config["retention.bytes"]
    for i, segment in enumerate(segments):
        too_old = limit_ms >= 0 and now - segment.largest_ts > limit_ms
        too_much = limit_bytes >= 0 and size - segment.bytes >= limit_bytes
        if segment is active or not (too_old or too_much):
            break
        size -= segment.bytes
        start = segments[i + 1].base if i + 1 < len(segments) else log.end
    return start


def rank(record: Record, config: dict[str, Any], now: int) -> Rank:
    """Part 2: (has a version, version, offset); the highest wins."""
    strategy = config["compaction.strategy"] or "offset"
    if strategy == "timestamp":
        if record.ts > now + config["message.timestamp.after.max.ms"]:
            return (0, 0, record.offset)
        return (1, record.ts, record.offset)
    if strategy == "header":
        found = [value for name, value in record.headers if name == config["compaction.strategy.header"]]
        chosen = None
        if found:
            chosen = found[-1] if config["cleantail.header.occurrence"] == "last" else found[0]
        if chosen is None or len(chosen) != 8:
            return (0, 0, record.offset)
        return (1, int.from_bytes(chosen, "big", signed=True), record.offset)
    return (1, 0, record.offset)


def retain(log: Log, start: int) -> None:
    if start > (log.start or 0):
        log.copies = [c for c in log.copies if c.record.offset >= start]
        log.start, log.start_moved = start, True
        log.repair()


def slots(config: dict[str, Any]) -> float:
    """3.8: maximum number of keys in the offset map of a log. No limit if the join spills over the budget."""
    if config["cleantail.over.budget"] == "spill":
        return float("inf")
    entry = 24 if config["compaction.strategy"] == "offset" else 32
    share = config["log.cleaner.dedupe.buffer.size"] // config["log.cleaner.threads"] // entry
    return max(1, int(share * config["log.cleaner.io.buffer.load.factor"]))


def round_end(log: Log, bound: int, config: dict[str, Any]) -> int:
    """1.4.1: if the map is full before a put, the round ends after the last offset that it has read."""
    keys: set[bytes] = set()
    seen = log.first_dirty
    for record in log.records:
        if record.key is None or not log.first_dirty <= record.offset < bound:
            continue
        if len(keys) >= slots(config) and record.offset >= seen:  # a second copy of an offset does not end the round
            return seen
        keys.add(record.key)
        seen = record.offset + 1
    return bound


def clean(log: Log, sections: Sections, config: dict[str, Any], now: int) -> None:
    """1.4 with hazard 1 of part 2: all records below the end compete, not only the dirty ones."""
    first, end = sections.first_dirty, sections.first_uncleanable
    log.rounds += 1
    below = [c for c in log.copies if c.record.offset < end]
    above = [c for c in log.copies if c.record.offset >= end]
    log.quarantined += [c.record for c in below if c.record.key is None]
    below = [c for c in below if c.record.key is not None]
    touched = {c.record.key for c in below if c.record.offset >= first}
    best: dict[bytes, Rank] = {}
    for c in below:
        r = rank(c.record, config, now)
        best[c.record.key] = max(best.get(c.record.key, r), r)
    for key, deleted, until in log.remembered:  # hazard 2
        if key in best and now < until:
            best[key] = max(best[key], deleted)
    kept: list[Copy] = []
    for c in below:
        if c.record.key in touched:
            if rank(c.record, config, now) != best[c.record.key]:
                continue
            if any(k.record.offset == c.record.offset for k in kept):  # 3.5: the copy that arrived first survives
                continue
        kept.append(c)
    for c in kept:
        c.covered = True
        if c.record.value is None and c.horizon is None:  # 1.5, 3.3: set once
            c.horizon, c.horizon_round = now + config["delete.retention.ms"], log.rounds
    log.copies = kept + above
    for c in log.copies:
        c.known = True
    log.checkpoint = end


def is_swept(log: Log, copy: Copy, config: dict[str, Any], now: int, rounds_before: int) -> bool:
    """1.5, 3.4: whether the tombstone is due, in the clean part, and was first kept by an earlier run (3.8)."""
    if copy.horizon is None or now < copy.horizon or copy.record.offset >= log.first_dirty:
        return False
    if copy.horizon_round > rounds_before:
        return False
    mine = rank(copy.record, config, now)
    waiting = [c.record for c in log.copies if c.record.offset >= log.first_dirty and c.record.key == copy.record.key]
    if any(rank(r, config, now) < mine for r in waiting):  # 2: a record that it beats is in the log, and would return
        return False
    held = log.readers and copy.record.offset >= min(log.readers.values())  # 3.9
    return not held or now >= copy.horizon + config["cleantail.readers.hold.cap.ms"]


def sweep(log: Log, config: dict[str, Any], now: int, rounds_before: int) -> None:
    if "compact" not in config["cleanup.policy"]:
        return
    gone = [c for c in log.copies if is_swept(log, c, config, now, rounds_before)]
    for c in gone:
        if config["cleantail.tombstone.lateness.ms"] > 0 and c.record.key is not None:
            until = now + config["cleantail.tombstone.lateness.ms"]
            log.remembered.append((c.record.key, rank(c.record, config, now), until))
    log.copies = [c for c in log.copies if not any(c is g for g in gone)]


def latest(log: Log, config: dict[str, Any], now: int) -> list[Record]:
    """Hazard 3: the winner of every key over tail and head, without deleted keys."""
    best: dict[bytes, tuple[Rank, Record | None]] = {}
    for key, deleted, until in log.remembered:
        if now < until and (key not in best or deleted > best[key][0]):
            best[key] = (deleted, None)
    for record in log.records:
        if record.key is None:
            continue
        r = rank(record, config, now)
        if record.key not in best or r >= best[record.key][0]:
            best[record.key] = (r, record)
    winners = [record for _, record in best.values() if record is not None and record.value is not None]
    return sorted(winners, key=lambda r: r.offset)


def stages(
    logs: dict[int, Log],
    layout: dict[int, list[File]],
    config: dict[str, Any],
    now: int,
    force: bool = False,
    partition: int | None = None,
) -> Iterator[str]:
    """Run a topic, in place. Yields after each commit that may change the table, where a crash may stop the run."""
    chosen = [p for p in sorted(logs) if partition is None or p == partition]
    for log in logs.values():
        log.held_back = False
    misplaced = {p: logs[p].checkpoint for p in chosen}
    for p in chosen:
        logs[p].repair()
    starts = {p: retained_from(logs[p], layout[p], config, now) for p in chosen}
    due: dict[int, Sections] = {}
    for p in chosen:
        trial = Log(logs[p].copies, logs[p].checkpoint, logs[p].start, end=logs[p].end)
        retain(trial, starts[p])
        left = [f for f in layout[p] if max(f.offsets) >= starts[p]]
        sections = sections_of(trial, left, config, now)
        if sections.due(config, force):
            due[p] = sections
            keyless = [c for c in trial.copies if c.record.key is None and c.record.offset < sections.first_uncleanable]
            logs[p].held_back = bool(keyless) and config["cleantail.keyless.policy"] == "fail"
    held = [p for p in chosen if logs[p].held_back]
    for p in held:  # only retention changes a blocked log
        logs[p].checkpoint = misplaced[p]
        del due[p]
    yield "repair"
    for p in chosen:
        if p not in held:
            retain(logs[p], starts[p])
    left, rounds_before = dict(due), {p: logs[p].rounds for p in chosen}
    while left:
        for p, planned in left.items():
            end = round_end(logs[p], planned.first_uncleanable, config)
            clean(logs[p], replace(planned, first_dirty=logs[p].first_dirty, first_uncleanable=end), config, now)
        left = {p: planned for p, planned in left.items() if logs[p].checkpoint != planned.first_uncleanable}
        yield "round"
    for p in held:
        retain(logs[p], starts[p])
    yield "retention of what is held back"
    for p in chosen:
        if p not in held:
            sweep(logs[p], config, now, rounds_before[p])
    yield "sweep"

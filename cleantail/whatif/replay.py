"""Replay the real appends of a topic through the real triggers, under another policy. Pure.

1. Every tick of the schedule is a run. The functions that decide real runs resolve the log at that time, and decide.
2. If real rounds covered the same offsets, the number of dropped records is known: it does not depend on the number of
   rounds between two first dirty offsets.
3. Otherwise the number is estimated from the share of records that real rounds dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.due_work import resolve_retention
from cleantail.log.horizons import new_horizon_ms
from cleantail.log.log_state import LogState, resolve_log_state
from cleantail.log.partition_state import PartitionState
from cleantail.log.segments import DataFile
from cleantail.log.triggers import decide

DAY_MS = 86_400_000


class Basis(StrEnum):
    """The certainty of a number, from best to worst."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A data file and its commit time (Unix ms). A file older than the history arrived at its start."""

    at_ms: int
    file: DataFile


@dataclass(frozen=True, slots=True)
class ObservedRound:
    """A published round of one log: its dirty offsets, and the number of dropped records."""

    partition: int
    at_ms: int
    first_dirty_offset: int
    end_offset: int
    dropped: int


@dataclass(frozen=True, slots=True)
class ReplayHistory:
    """The history of a topic from `start_ms` to `end_ms`. `rounds` may be older."""

    start_ms: int
    end_ms: int
    arrivals: tuple[Arrival, ...]
    rounds: tuple[ObservedRound, ...]

    @property
    def days(self) -> float:
        return (self.end_ms - self.start_ms) / DAY_MS

    @property
    def whole_days(self) -> int:
        """Return the number of whole days, for rates per day. A part of a day would distort the schedule's share."""
        return (self.end_ms - self.start_ms) // DAY_MS

    @property
    def partitions(self) -> list[int]:
        return sorted({a.file.partition for a in self.arrivals})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of one policy over a history.

    A round compacts one log, and a run is a tick with work. Rounds and runs of the last whole days are counted
    separately, for rates per day. `superseded` and `bytes_freed` are None if no round was ever observed. `read_bytes`
    sums the live bytes of the logs that rounds read.
    """

    runs: int
    rounds: int
    superseded: int | None
    expired: int | None
    past_retention: int
    bytes_freed: int | None
    read_bytes: int
    basis: Basis
    whole_days_runs: int = 0
    whole_days_rounds: int = 0

    @property
    def dropped(self) -> int | None:
        if self.superseded is None or self.expired is None:
            return None
        return self.superseded + self.expired + self.past_retention


@dataclass(frozen=True, slots=True)
class DropCurve:
    """The records of a log that real rounds dropped, by offset. `share`: for offsets that no round covered."""

    rounds: tuple[ObservedRound, ...]
    share: float | None

    def dropped(self, start_offset: int, end_offset: int) -> tuple[float, Basis]:
        """Return the number of records that a cleaning of [start, end) drops, in that span and before it, with its
        certainty."""
        covered, records, whole = 0, 0.0, True
        for round_ in self.rounds:
            low, high = max(round_.first_dirty_offset, start_offset), min(round_.end_offset, end_offset)
            if low < high:
                length = round_.end_offset - round_.first_dirty_offset
                covered += high - low
                records += round_.dropped * (high - low) / length
                whole = whole and high - low == length
        missing = end_offset - start_offset - covered
        if missing > 0 and self.share is None:
            return records, Basis.UNKNOWN
        return records + max(missing, 0) * (
            self.share or 0.0
        ), Basis.MEASURED if whole and not missing else Basis.ESTIMATED


def drop_curves(history: ReplayHistory) -> dict[int, DropCurve]:
    """Return one curve for each log. A log without rounds has the share of the topic's other logs."""
    overall = _share(history.rounds)
    curves = {}
    for p in history.partitions:
        rounds = tuple(r for r in history.rounds if r.partition == p and r.end_offset > r.first_dirty_offset)
        share = _share(rounds)
        curves[p] = DropCurve(rounds, overall if share is None else share)
    return curves


def _share(rounds: Sequence[ObservedRound]) -> float | None:
    """Return dropped records per dirty offset, None without dirty offsets. At most 1, because a record supersedes
    one."""
    offsets = sum(r.end_offset - r.first_dirty_offset for r in rounds)
    return min(sum(r.dropped for r in rounds) / offsets, 1.0) if offsets > 0 else None


def simulate(history: ReplayHistory, configs: KafkaConfigs, ticks: Iterable[int]) -> Outcome:
    """Return the effect of `configs` with a run at each of the ticks (Unix ms, ascending)."""
    # 1. the logs at the start of the history
    curves = drop_curves(history)
    logs = [_Replay(p, history, configs, curves[p]) for p in history.partitions]
    whole_days_ms = history.end_ms - history.whole_days * DAY_MS
    # 2. every tick is a run; runs of the whole days at the end are counted separately
    runs = early_runs = early_rounds = 0
    for at_ms in ticks:
        worked = [log.tick(at_ms) for log in logs]
        runs += any(worked)
        if at_ms <= whole_days_ms:
            early_runs, early_rounds = runs, sum(log.rounds for log in logs)
    # 3. the sums, as certain as the least certain log
    bases = {log.basis for log in logs if log.rounds}
    unknown = Basis.UNKNOWN in bases
    measured = bases <= {Basis.MEASURED}
    return Outcome(
        runs=runs,
        rounds=(rounds := sum(log.rounds for log in logs)),
        whole_days_runs=runs - early_runs,
        whole_days_rounds=rounds - early_rounds,
        superseded=None if unknown else round(sum(log.superseded for log in logs)),
        expired=None if unknown else round(sum(log.expired for log in logs)),
        past_retention=round(sum(log.past_retention for log in logs)),
        bytes_freed=None if unknown else round(sum(log.bytes_freed for log in logs)),
        read_bytes=sum(log.read_bytes for log in logs),
        basis=Basis.UNKNOWN if unknown else Basis.MEASURED if measured else Basis.ESTIMATED,
    )


class _Replay:
    """The state of one log during the replay."""

    def __init__(self, partition: int, history: ReplayHistory, configs: KafkaConfigs, curve: DropCurve) -> None:
        self._configs, self._curve = configs, curve
        self._arrivals = sorted((a for a in history.arrivals if a.file.partition == partition), key=lambda a: a.at_ms)
        self._next = 0
        self._files: list[DataFile] = []
        self._new: list[DataFile] = []
        self._pending: list[tuple[int, float]] = []
        self._partition = partition
        before = [r for r in curve.rounds if r.at_ms <= history.start_ms]
        self._state = PartitionState(checkpoint=max(before, key=lambda r: r.at_ms).end_offset if before else None)
        self._removed_records = float(sum(a.file.deleted_records for a in self._arrivals))
        self.basis = Basis.MEASURED
        self.rounds = self.read_bytes = 0
        self.superseded = self.expired = self.past_retention = self.bytes_freed = 0.0

    def tick(self, now_ms: int) -> bool:
        """Run at `now_ms`. Return whether the run had work."""
        while self._next < len(self._arrivals) and self._arrivals[self._next].at_ms <= now_ms:
            file = self._arrivals[self._next].file
            self._files.append(file)
            self._new.append(file)
            self._next += 1
        if not self._files:
            return False
        swept = self._sweep(now_ms)
        log = resolve_log_state(
            self._partition, self._live_files(), self._state, self._new if self.rounds else (), self._configs, now_ms
        )
        retained = self._retain(log, now_ms)
        if not decide(log, self._configs, now_ms).compact:
            return swept or retained
        self._clean(log, now_ms)
        return True

    def _live_files(self) -> list[DataFile]:
        """Return the files, with removed records spread evenly over the clean files. The real distribution is
        unknown."""
        clean = sum(f.records for f in self._files if self._is_clean(f))
        share = min(self._removed_records / clean, 1.0) if clean else 0.0
        return [replace(f, deleted_records=round(f.records * share) if self._is_clean(f) else 0) for f in self._files]

    def _is_clean(self, file: DataFile) -> bool:
        return file.upper_offset < (self._state.checkpoint or 0)

    def _sweep(self, now_ms: int) -> bool:
        due = [count for horizon_ms, count in self._pending if now_ms >= horizon_ms]
        self._pending = [entry for entry in self._pending if now_ms < entry[0]]
        self.expired += sum(due)
        self._drop(sum(due), self._files)
        return sum(due) >= 1

    def _retain(self, log: LogState, now_ms: int) -> bool:
        """Drop whole segments past retention. Return whether any was dropped."""
        retention = resolve_retention(log, self._configs, now_ms)
        if not retention.due:
            return False
        live = self._live_files()
        removed = [f for f in live if f.upper_offset < retention.log_start_offset]
        self.past_retention += sum(f.live_records for f in removed)
        self.bytes_freed += sum(f.live_bytes for f in removed)
        self._removed_records -= sum(f.deleted_records for f in removed)
        paths = {f.path for f in removed}
        self._files = [f for f in self._files if f.path not in paths]
        self._state = replace(self._state, log_start_offset=retention.log_start_offset)
        return True

    def _clean(self, log: LogState, now_ms: int) -> None:
        # 1. dropped records: for new offsets by the curve, for late records by its share
        start, end = log.first_dirty_offset, log.first_uncleanable_offset
        fresh = max(start, min(self._state.checkpoint or 0, end))
        dropped, basis = self._curve.dropped(fresh, end)
        late = sum(f.records for f in self._new if f.upper_offset < fresh)
        if late:  # no real round is recorded for records below the first dirty offset
            dropped, basis = (
                dropped + late * (self._curve.share or 0.0),
                max(basis, Basis.ESTIMATED, key=list(Basis).index),
            )
        # 2. the counts
        cleaned = [f for f in self._files if f.lower_offset < end]
        self.rounds += 1
        self.read_bytes += log.total_bytes
        self.superseded += dropped
        self.basis = max(self.basis, basis, key=list(Basis).index)
        # 3. the log after the round
        self._keep_tombstones(fresh, end, dropped, now_ms)
        self._drop(dropped, cleaned)
        self._new = []
        self._state = replace(self._state, checkpoint=end)

    def _keep_tombstones(self, start: int, end: int, dropped: float, now_ms: int) -> None:
        """Give this round's horizon to the tombstones of the dirty part that survive, estimated by the drop share."""
        files = [f for f in self._files if start <= f.lower_offset < end]
        records = sum(f.records for f in files)
        share = max(1.0 - dropped / records, 0.0) if records else 0.0
        self._pending.append((new_horizon_ms(self._configs, now_ms), sum(f.null_values for f in files) * share))

    def _drop(self, records: float, among: Sequence[DataFile]) -> None:
        self._removed_records += records
        total = sum(f.records for f in among)
        self.bytes_freed += records * sum(f.size_bytes for f in among) / total if total else 0.0


def next_expiry(logs: Sequence[LogState], configs: KafkaConfigs, now_ms: int) -> tuple[int, Basis] | None:
    """Return the time (Unix ms) at which the next tombstone expires, with its certainty. None without tombstones.

    If a horizon is set, no change of config moves it (semantics.md 1.5). Otherwise returns the horizon that a round
    would set now, or None if no round would set one.
    """
    if not configs.compacts:
        return None
    set_horizons = [log.next_horizon_ms for log in logs if log.next_horizon_ms is not None]
    if set_horizons:
        return min(set_horizons), Basis.MEASURED
    due = any(decide(log, configs, now_ms).compact and log.tombstones_without_horizon for log in logs)
    return (new_horizon_ms(configs, now_ms), Basis.ESTIMATED) if due else None


def changed_values(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Return the keys whose values differ: key -> (before, after), None for a missing value."""
    keys = [*before, *(k for k in after if k not in before)]
    return {k: (before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)}

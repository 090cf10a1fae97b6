"""A round from its branches to its result: staged, checked, and published or dropped.

1. Compact, or expire, writes a StagedUnit into the head of a work unit's branch. check_quality reads it there. Task
   results in Airflow's database are no safe place, because users who may edit the DAG may change them.
2. check_quality makes a CheckedRound, and the evidence stores it (cleantail.rounds.recorded_checks). Perhaps a user
   approves it. Then publish commits its green logs.
3. A RoundResult describes the outcome. The task returns it, and the command line prints it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from cleantail.codec import Codec
from cleantail.errors import HeldError
from cleantail.log.round_state import COMPACT, RETAIN
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.check_results import CheckResult, RemovedRecord, checks_text

UNIT = "cleantail.unit"
"""Summary entry of the head of a round's branch: the staged unit, packed."""
EXPIRED = "expired"
"""The reason for which an expiry removes records: tombstones past their horizon."""
CLEAR = "Clear compact and all tasks after it"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The input of a check. `branches`: where compact has staged the round's units."""

    round: str
    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """What an expiry removes: due tombstones of `partitions`. `now_ms` is Unix ms.

    `fresh_from`: partition -> first offset whose horizon this run sets. Used only if delete.retention.ms is 0, because
    such a tombstone is due at once.
    """

    now_ms: int
    partitions: tuple[int, ...]
    fresh_from: Mapping[int, int] = field(default_factory=dict)


CHECK_REQUEST_JSON: Codec[CheckRequest] = Codec(CheckRequest)
EXPIRY_REQUEST_JSON: Codec[ExpiryRequest] = Codec(ExpiryRequest)


@dataclass(frozen=True, slots=True)
class KeylessLog:
    """Records without a key in a log. With `cleantail.keyless.policy: fail` the round removes nothing from that log."""

    records: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A reader that has not read tombstones which an expiry removes, because the cap of its hold was reached.

    `at_ms` is the time of the reader's last reported position (Unix ms), `gone_to` the highest removed offset.
    """

    topic: str
    name: str
    partition: int
    offset: int
    at_ms: int
    gone_to: int | None = None

    @property
    def text(self) -> str:
        where = f"{self.topic} partition {self.partition}: reader {self.name} is at offset {self.offset}"
        return f"{where}; tombstones that it has not read were deleted: cleantail.readers.hold.cap.ms has passed"


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Counts by partition. `deleted` is reason -> partition -> records.

    `hidden_bytes`: bytes of the records that a compaction hides, by their files' mean. `saved_bytes` also counts
    records past retention. `plan` describes how keys were matched. `keyless`: log blocked by records without a key ->
    their number, and the offset of the first. `misread`: log in which Spark's Iceberg reader and Cleantail's read
    different records -> reason.
    """

    deleted: Mapping[str, Mapping[int, int]]
    hidden_bytes: Mapping[int, int] = field(default_factory=dict)
    saved_bytes: Mapping[int, int] = field(default_factory=dict)
    plan: str = ""
    keyless: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    misread: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedUnit(WorkUnit):
    """A work unit with the result on its branch.

    `began_ms` is Unix ms of the wall clock, `clean_ms` the duration, `map_slots` the capacity of the offset map in keys
    (semantics.md 1.4.1). Each is None if it has no meaning for the kind of round. `head_snapshot_id` is the branch's
    snapshot that was checked, 0 before the check.
    """

    counts: UnitCounts
    began_ms: int | None = None
    clean_ms: int | None = None
    map_slots: int | None = None
    left_behind: tuple[LeftBehind, ...] = ()
    head_snapshot_id: int = 0

    @classmethod
    def of(cls, unit: WorkUnit, counts: UnitCounts, **done: Any) -> StagedUnit:
        """Return the unit with its result. `done`: fields of this class by name."""
        return cls(**{f.name: getattr(unit, f.name) for f in fields(WorkUnit)}, counts=counts, **done)

    @property
    def ok(self) -> bool:
        """Return True: a staged unit ended without an error. The check decides whether its logs are right."""
        return True


STAGED_UNIT_JSON: Codec[StagedUnit] = Codec(StagedUnit)


def staged_unit(text: str | None, branch: str) -> StagedUnit:
    """Parse the unit in a branch's head.

    Raises HeldError if the head has no unit, or a unit of another branch. Raises TableError if the unit is damaged.
    """
    if not text:
        raise HeldError(
            f"branch {branch} does not name its work unit: no round of Cleantail made it. Nothing was checked. {CLEAR}"
        )
    unit = STAGED_UNIT_JSON.unpacked(text, f"{UNIT} of branch {branch}")
    if unit.branch != branch:
        raise HeldError(f"branch {branch} has the work unit of branch {unit.branch}. Nothing was checked. {CLEAR}")
    return unit


def require_one_round(units: Sequence[WorkUnit], round_id: str) -> None:
    """Raise HeldError unless all units belong to this round, and no log is in two of them."""
    rounds = sorted({unit.round for unit in units})
    if rounds != [round_id]:
        raise HeldError(
            f"the units to check belong to round {', '.join(rounds) or 'none'}, but the run's is {round_id}: an XCom "
            f"was changed. Nothing was checked. {CLEAR}"
        )
    logs = Counter(work.partition for unit in units for work in unit.partitions)
    if twice := sorted(p for p, count in logs.items() if count > 1):
        raise HeldError(
            f"partitions {twice} are in more than one unit of round {round_id}. Nothing was checked. {CLEAR}"
        )


def keyless_logs(units: Iterable[StagedUnit]) -> dict[int, KeylessLog]:
    """Return partition -> the keyless records that block it, over all units of a round."""
    return {p: KeylessLog(*log) for unit in units for p, log in unit.counts.keyless.items()}


def misread_logs(units: Iterable[StagedUnit]) -> dict[int, str]:
    """Return partition blocked by a difference of two readers -> reason, over all units of a round."""
    return {p: reason for unit in units for p, reason in unit.counts.misread.items()}


@dataclass(frozen=True, slots=True)
class Hold:
    """A log that makes its round wait for approval, and the reason."""

    partition: int
    reason: str


MOST_DELAY_MS = 86_400_000
"""Longest wait for Spark (ms). A round that begins later than this after its clock was given another clock."""


def judged_at_ms(unit: StagedUnit, wall_ms: int) -> int:
    """Return `wall_ms`, or the round's clock if a user set it (`--now`, param now_ms): such a clock stands still."""
    began_ms = unit.now_ms if unit.began_ms is None else unit.began_ms
    return wall_ms if 0 <= began_ms - unit.now_ms < MOST_DELAY_MS else unit.now_ms


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the round of one log may be published.

    `failures` block the log, `warnings` do not. `waits_for`: failed logs that share files with this log, which itself
    has not failed (a file of an adopted table may have several logs). `judged_ms`: the end of the check by the round's
    clock (judged_at_ms), 0 if unknown.
    """

    partition: int
    passed: bool
    failures: tuple[CheckResult, ...] = ()
    warnings: tuple[CheckResult, ...] = ()
    waits_for: tuple[int, ...] = ()
    judged_ms: int = 0

    @property
    def failed(self) -> bool:
        """Return whether a check of this log failed. False if the log only waits for others."""
        return not self.passed and not self.waits_for


@dataclass(frozen=True, slots=True)
class CheckedRound:
    """A round whose branches were checked.

    `kind`: compact, expire, reconcile or erase. `measures` and `verdicts`: one for each log. `holds`: the reasons to
    wait for approval; empty if the round may be published at once. `sample`: some of the removed records, if the round
    waits. `data_docs`: the page of check results, None if the round was read from the evidence.
    """

    topic: str
    round: str
    kind: str
    units: tuple[StagedUnit, ...]
    measures: tuple[LogMeasure, ...]
    verdicts: tuple[Verdict, ...]
    checks_passed: int = 0
    checks_total: int = 0
    data_docs: str | None = None
    holds: tuple[Hold, ...] = ()
    sample: tuple[RemovedRecord, ...] = ()

    @property
    def ok(self) -> bool:
        return all(v.passed for v in self.verdicts)

    @property
    def now_ms(self) -> int:
        """Return the round's clock (Unix ms)."""
        return self.units[0].now_ms

    @property
    def green(self) -> list[int]:
        """Return the logs that passed, in their order."""
        return sorted(v.partition for v in self.verdicts if v.passed)

    @property
    def red(self) -> list[int]:
        """Return the blocked logs, in their order: failed logs, and logs that wait for them."""
        return sorted(v.partition for v in self.verdicts if not v.passed)

    @property
    def heads(self) -> list[int]:
        """Return the snapshots that were checked. An approval applies to these only."""
        return [unit.head_snapshot_id for unit in self.units]

    def works(self) -> Iterator[tuple[StagedUnit, PartitionWork]]:
        return ((unit, work) for unit in self.units for work in unit.partitions)

    def measure_of(self, partition: int) -> LogMeasure:
        return next(m for m in self.measures if m.partition == partition)

    def kind_of(self, work: PartitionWork) -> str:
        """Return what the round does to a log: compact, expire, reconcile, erase or retain."""
        return RETAIN if work.only_retention and self.kind == COMPACT else self.kind


CHECKED_ROUND_JSON: Codec[CheckedRound] = Codec(CheckedRound)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round, or of several one after the other. Without arguments: there was no work.

    `published`, `held_back`, `rejected` and `retained` are partitions. `retained`: blocked logs with a log start that
    retention moved. `checkpoints`: partition -> first dirty offset, for every log of the topic. `ends`: partition ->
    end offset of the round. `expired` counts removed tombstones. `checked` is the round if it waits for approval, else
    None. `red_before`: the logs that the check had blocked before publish made the round again. `heads`: blocked log ->
    the snapshot that was checked.
    """

    ok: bool = True
    round: str | None = None
    kind: str | None = None
    published: tuple[int, ...] = ()
    held_back: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()
    retained: tuple[int, ...] = ()
    reason: str = ""
    snapshot_id: int | None = None
    checkpoints: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    left_behind: tuple[LeftBehind, ...] = ()
    expired: int = 0
    verdicts: tuple[Verdict, ...] = ()
    measures: tuple[LogMeasure, ...] = ()
    checks_passed: int = 0
    checks_total: int = 0
    data_docs: str | None = None
    holds: tuple[Hold, ...] = ()
    sample: tuple[RemovedRecord, ...] = ()
    checked: CheckedRound | None = None
    red_before: tuple[int, ...] = ()
    heads: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of_check(cls, checked: CheckedRound, /, **outcome: Any) -> Self:
        """Return the result of a checked round, with its outcome."""
        return cls(
            round=checked.round,
            kind=checked.kind,
            held_back=tuple(checked.red),
            verdicts=checked.verdicts,
            measures=checked.measures,
            checks_passed=checked.checks_passed,
            checks_total=checked.checks_total,
            data_docs=checked.data_docs,
            holds=checked.holds,
            sample=checked.sample,
            heads={w.partition: u.head_snapshot_id for u, w in checked.works() if w.partition in checked.red},
            **{"ok": checked.ok, **outcome},
        )

    @property
    def checks_text(self) -> str:
        logs = {m.partition for m in self.measures} or {*self.published, *self.held_back, *self.rejected}
        return checks_text(self.checks_passed, self.checks_total, len(logs))

    def then(self, second: RoundResult) -> RoundResult:
        """Merge this result with the result of the next round."""
        before, after = ({m.partition: m for m in result.measures} for result in (self, second))
        both = {p: _added(before[p], after[p]) for p in before.keys() & after.keys()}
        verdicts = {v.partition: v for v in (*self.verdicts, *second.verdicts)}
        held_back = {*self.held_back, *second.held_back}
        return replace(
            second,
            ok=self.ok and second.ok,
            round=second.round or self.round,
            kind=second.kind or self.kind,
            published=tuple(sorted({*self.published, *second.published} - held_back)),
            held_back=tuple(sorted(held_back)),
            verdicts=tuple(verdicts[p] for p in sorted(verdicts)),
            measures=tuple(m for _, m in sorted((before | after | both).items())),
            left_behind=self.left_behind + second.left_behind,
            heads={**self.heads, **second.heads},
            snapshot_id=second.snapshot_id or self.snapshot_id,
            checks_passed=self.checks_passed + second.checks_passed,
            checks_total=self.checks_total + second.checks_total,
        )


ROUND_RESULT_JSON: Codec[RoundResult] = Codec(RoundResult)


def _added(first: LogMeasure, second: LogMeasure) -> LogMeasure:
    """Merge a log's measures over two rounds: records in of the first, records out of the second, the sum of drops."""
    reasons = first.deleted.keys() | second.deleted.keys()
    deleted = {r: first.deleted.get(r, 0) + second.deleted.get(r, 0) for r in reasons}
    return replace(second, records_in=first.records_in, tombstones_in=first.tombstones_in, deleted=deleted)

"""Says what a DAG's tasks hand to the jobs of a round: which branches to check, which round to expire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cleantail.codec import Codec
from cleantail.errors import HeldError
from cleantail.log.round_state import COMPACT, RETAIN
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.check_results import CheckResult, RemovedRecord

UNIT = "cleantail.unit"
"""Summary entry of the head of a round's branch: the staged unit, packed."""
EXPIRED = "expired"
"""The reason for which an expiry removes records: tombstones past their horizon."""
CLEAR = "Clear compact and what follows it"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Says what a check is asked for. `branches`: those that compact has staged the round's units on."""

    round: str
    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """Says what an expiry is asked for. `partitions`: the logs that evaluate found due tombstones in; `fresh_from`: as
    in RunPlan; `now_ms`: Unix ms."""

    now_ms: int
    partitions: tuple[int, ...]
    fresh_from: Mapping[int, int] = field(default_factory=dict)


CHECK_REQUEST_JSON: Codec[CheckRequest] = Codec(CheckRequest)
EXPIRY_REQUEST_JSON: Codec[ExpiryRequest] = Codec(ExpiryRequest)


@dataclass(frozen=True, slots=True)
class KeylessLog:
    """Describes a log from which nothing was removed, since it holds records without a key (`cleantail.keyless.policy:
    fail`)."""

    records: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Describes a reader that has not read tombstones which an expiry removes, since the cap of its hold was reached.

    `at_ms`: when it last told its position, Unix ms; `gone_to`: the highest offset that went, None where an earlier
    version did not write it down.
    """

    topic: str
    name: str
    partition: int
    offset: int
    at_ms: int
    gone_to: int | None = None


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Counts by partition. `deleted`: reason -> partition -> records. `hidden_bytes`: of the records that a compaction
    hides, by their files' mean; `saved_bytes`: with those past retention. `plan`: how the records were matched.
    `keyless`: records without a key, and the offset of the first, of each log that is held back for them.
    `misread`: why a log is blocked of which Spark's Iceberg reader and Cleantail's see different records."""

    deleted: Mapping[str, Mapping[int, int]]
    hidden_bytes: Mapping[int, int] = field(default_factory=dict)
    saved_bytes: Mapping[int, int] = field(default_factory=dict)
    plan: str = ""
    keyless: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    misread: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedUnit(WorkUnit):
    """Describes a work unit with what was done on its branch.

    `began_ms`: Unix ms of the wall clock; `clean_ms`: how long it took; `map_slots`: keys for which the offset map has
    room (semantics.md 1.4.1). These are None where an earlier version did not write them down, or where they have no
    meaning for the kind of round. `head_snapshot_id`: the branch's snapshot that was checked; 0 until it was.
    """

    counts: UnitCounts
    began_ms: int | None = None
    clean_ms: int | None = None
    map_slots: int | None = None
    left_behind: tuple[LeftBehind, ...] = ()
    head_snapshot_id: int = 0

    @classmethod
    def of(cls, unit: WorkUnit, counts: UnitCounts, **done: Any) -> StagedUnit:
        """Returns the unit with what was done; `done`: fields of this class by name."""
        return cls(**{f.name: getattr(unit, f.name) for f in fields(WorkUnit)}, counts=counts, **done)

    @property
    def ok(self) -> bool:
        """Returns True, since a unit that was staged ended well: whether its logs are right is the check's to say."""
        return True

    @property
    def keyless_logs(self) -> dict[int, KeylessLog]:
        """Returns partition -> why nothing was removed from it. An expiry has none."""
        return {p: KeylessLog(*log) for p, log in self.counts.keyless.items()}


STAGED_UNIT_JSON: Codec[StagedUnit] = Codec(StagedUnit)


def staged_unit(text: str | None, branch: str) -> StagedUnit:
    """Parses the unit that a branch's head says it is of. Raises HeldError where it says none, or one of another
    branch, and TableError for a text that is no packed unit."""
    if not text:
        raise HeldError(
            f"branch {branch} does not say which work unit it is of: an earlier version made it, or no round did. "
            f"Nothing was checked. {CLEAR}"
        )
    unit = STAGED_UNIT_JSON.unpacked(text, f"{UNIT} of branch {branch}")
    if unit.branch != branch:
        raise HeldError(f"branch {branch} has the work unit of branch {unit.branch}. Nothing was checked. {CLEAR}")
    return unit


def require_one_round(units: Sequence[WorkUnit], round_id: str) -> None:
    """Raises HeldError unless the units are all of this round, and no log is in two of them."""
    rounds = sorted({unit.round for unit in units})
    if rounds != [round_id]:
        raise HeldError(
            f"the units to check are of round {', '.join(rounds) or 'none'}, and the run's is {round_id}: somebody has "
            f"changed an XCom. Nothing was checked. {CLEAR}"
        )
    logs = Counter(work.partition for unit in units for work in unit.partitions)
    if twice := sorted(p for p, count in logs.items() if count > 1):
        raise HeldError(
            f"partitions {twice} are in more than one unit of round {round_id}. Nothing was checked. {CLEAR}"
        )


def keyless_logs(units: Iterable[StagedUnit]) -> dict[int, KeylessLog]:
    """Returns partition -> why nothing was removed from it, of all units of a round."""
    return {p: log for unit in units for p, log in unit.keyless_logs.items()}


def misread_logs(units: Iterable[StagedUnit]) -> dict[int, str]:
    """Return partition -> why a log is blocked that two readers see differently, of all units of a round."""
    return {p: reason for unit in units for p, reason in unit.counts.misread.items()}


@dataclass(frozen=True, slots=True)
class Hold:
    """Describes a log for which its round waits, and why."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Says whether the round of one log may be published.

    `failures`: what holds it back; `warnings`: what failed and holds nothing back. `waits_for`: the logs that failed
    and share files with this one, which itself has not failed (a file of an adopted table may hold several logs).
    """

    partition: int
    passed: bool
    failures: tuple[CheckResult, ...] = ()
    warnings: tuple[CheckResult, ...] = ()
    waits_for: tuple[int, ...] = ()

    @property
    def failed(self) -> bool:
        """Returns whether a check of this very log is red."""
        return not self.passed and not self.waits_for


@dataclass(frozen=True, slots=True)
class CheckedRound:
    """Holds all that is known of a round once its branches were checked.

    `kind`: compact, expire or reconcile. `measures`, `verdicts`: one a log. `holds`: why it waits for a person; empty
    where it may be published at once. `sample`: some of the records that it removes, where it waits. `data_docs`: the
    page with what the checks say, None where the round comes from the evidence.
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
        """Returns whether every log passed."""
        return all(v.passed for v in self.verdicts)

    @property
    def now_ms(self) -> int:
        """Returns the round's clock, Unix ms."""
        return self.units[0].now_ms

    @property
    def green(self) -> list[int]:
        """Returns the logs that passed, in their order."""
        return sorted(v.partition for v in self.verdicts if v.passed)

    @property
    def red(self) -> list[int]:
        """Returns the logs that are held back, in their order: those that failed, and those that wait for them."""
        return sorted(v.partition for v in self.verdicts if not v.passed)

    @property
    def heads(self) -> list[int]:
        """Returns the snapshots that were checked, and that an approval is for: nothing else may be published by it."""
        return [unit.head_snapshot_id for unit in self.units]

    def works(self) -> Iterator[tuple[StagedUnit, PartitionWork]]:
        """Yields each log's work with the unit that it is in."""
        return ((unit, work) for unit in self.units for work in unit.partitions)

    def measure_of(self, partition: int) -> LogMeasure:
        """Returns the measures of one log of the round."""
        return next(m for m in self.measures if m.partition == partition)

    def kind_of(self, work: PartitionWork) -> str:
        """Returns what the round was to do to a log: compact, expire, reconcile or retain."""
        return RETAIN if work.only_retention and self.kind == COMPACT else self.kind


CHECKED_ROUND_JSON: Codec[CheckedRound] = Codec(CheckedRound)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Describes the result of a round, or of several one after the other. Without arguments: there was nothing to do.

    `published`, `held_back`, `rejected`, `retained`: partitions; `retained` are those of `held_back`, and of the logs
    that rest in quarantine, of which retention has moved the log start all the same. `checkpoints`: the clean point of
    every log of the topic; `ends`: partition -> end offset of the round. `expired`: tombstones that went. `checked`:
    the round that waits for approval, None where none does. `red_before`: what the check had held back before publish
    made the round anew. `heads`: partition -> the snapshot that was checked, of the logs that were held back.
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
    def of_check(cls, checked: CheckedRound, /, **outcome: Any) -> RoundResult:
        """Returns the result of a round that was checked, with what became of it."""
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

    def then(self, second: RoundResult) -> RoundResult:
        """Returns this result and that of the round after it, as one."""
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


@dataclass(frozen=True, slots=True)
class RunResult:
    """Describes the result of a whole run: its compaction and its expiry. `compacted` and `expired` are None where
    nothing was due, so that no Spark was started."""

    ok: bool = True
    compacted: RoundResult | None = None
    expired: RoundResult | None = None

    @property
    def rounds(self) -> list[RoundResult]:
        """Returns the rounds of the run, in their order."""
        return [result for result in (self.compacted, self.expired) if result is not None]


ROUND_RESULT_JSON: Codec[RoundResult] = Codec(RoundResult)
RUN_RESULT_JSON: Codec[RunResult] = Codec(RunResult)


def _added(first: LogMeasure, second: LogMeasure) -> LogMeasure:
    """Returns measures of a log over two rounds: what came in of the first, what came out of the second, the sum of
    drops."""
    reasons = first.deleted.keys() | second.deleted.keys()
    deleted = {r: first.deleted.get(r, 0) + second.deleted.get(r, 0) for r in reasons}
    return replace(second, records_in=first.records_in, tombstones_in=first.tombstones_in, deleted=deleted)

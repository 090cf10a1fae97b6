"""A round that was checked and is not published yet: the value that goes from the check to publish.

check_quality makes it, the evidence keeps it (cleantail.rounds.checked.recorded_checks), a person approves it, and
publish_round commits its green logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cleantail.codec import Codec
from cleantail.log.round_state import COMPACT, RETAIN
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork
from cleantail.rounds.checked.check_results import CheckResult
from cleantail.rounds.checked.sample import RemovedRecord
from cleantail.rounds.checked.staged_units import StagedUnit


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

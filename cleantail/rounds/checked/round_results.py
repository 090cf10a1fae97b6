"""Says what became of a round: what its task hands on, and the command line prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cleantail.codec import Codec
from cleantail.log.rules import LogMeasure
from cleantail.rounds.checked.checked_round import CheckedRound, Hold, Verdict
from cleantail.rounds.checked.sample import RemovedRecord
from cleantail.rounds.checked.staged_units import LeftBehind


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

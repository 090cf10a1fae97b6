"""The rounds of a topic as the evidence table has them: what each dropped, what its checks observed, what became of it.

1. A check writes a row for each log. A round that was checked again counts as another round.
2. What became of a log that passed is a row of its own, written when it is known, and is of the log's last check. Rows
   are never changed, so what is counted from them only rises.
3. A rollback's row names the rounds that it has undone: of those that were checked before it, what was published.

Pure: cleantail.lake.evidence_table fetches the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from cleantail.rounds.check_results import NOT_SAMPLED, CheckResult, SampledLog, checks_of, sampled_log
from cleantail.rounds.commit_summaries import ROLLBACK
from cleantail.rounds.evidence_row import EvidenceRow, Work, deleted_of, together, work_of

CHECKED = "checked"
"""Outcome of a log that passed its check; whether it is published is not known yet."""
HELD_BACK = "held_back"
"""Outcome of a log whose check failed, or that shares files with one: final."""
PUBLISHED = "published"
REJECTED = "rejected"
"""A person said no, or nobody approved it in time."""
WITHDRAWN = "withdrawn"
"""Dropped unpublished: it waited for an approval that nobody could be asked for, or the table changed under it."""
UNDONE = "undone"
"""Published, and undone by a later rollback. No row says it of a log: the rollback's own row names its rounds."""
OUTCOMES = (HELD_BACK, CHECKED, UNDONE, PUBLISHED, REJECTED, WITHDRAWN)
"""The most pressing first: that of a log counts for its round."""
CHECKS = (CHECKED, HELD_BACK)
"""Outcomes that a check writes; the others are of a log that was checked before."""
GAP = "gap"
"""The kind of the row of offsets that had gone from Kafka before they were read. It is of no round."""
RECLAIM = "reclaim"
"""Kind of the row that a reclaim writes, which is of no log."""
UNDID = "undid "
"""Beginning of the name of a rollback; the names of its rounds follow."""


@dataclass(frozen=True, slots=True)
class LogRound:
    """Describes one log in one round: the offsets that were dirty, the records, what would be dropped by reason, the
    verdict, and what became of it (one of OUTCOMES). `note`: who decided, and why."""

    partition: int
    first_dirty_offset: int
    end_offset: int
    records_in: int
    records_out: int
    deleted: Mapping[str, int]
    passed: bool
    checks: tuple[CheckResult, ...]
    outcome: str = PUBLISHED
    note: str = ""
    work: Work = Work()
    sampled: SampledLog = NOT_SAMPLED


@dataclass(frozen=True, slots=True)
class Round:
    """Describes one checked round: its clock (`now_ms`), when it was checked, and its logs. The kind is compact,
    expire, reconcile, or rollback, which is a decision and no round."""

    name: str
    kind: str
    now_ms: int
    checked_at_ms: int
    logs: tuple[LogRound, ...]

    @property
    def passed(self) -> bool:
        """Returns whether every log passed its check."""
        return all(log.passed for log in self.logs)

    @property
    def held_back(self) -> tuple[int, ...]:
        """Returns the partitions whose check failed."""
        return tuple(log.partition for log in self.logs if not log.passed)

    @property
    def deleted(self) -> dict[str, int]:
        """Returns records dropped, by reason, over the logs that were published; those that a rollback has put back are
        not."""
        return self._deleted(PUBLISHED)

    @property
    def would_drop(self) -> dict[str, int]:
        """Returns records that go, by reason, if the logs that passed are published."""
        return self._deleted(CHECKED)

    @property
    def put_back(self) -> dict[str, int]:
        """Returns records that were dropped, by reason, and are there again since a rollback."""
        return self._deleted(UNDONE)

    def _deleted(self, outcome: str) -> dict[str, int]:
        totals: dict[str, int] = {}
        for log in self.logs:
            for reason, count in log.deleted.items():
                totals[reason] = totals.get(reason, 0) + (count if log.outcome == outcome else 0)
        return totals

    @property
    def outcome(self) -> str:
        """Returns the outcome of the whole round: held back where any log was, else what became of the logs, which is
        one for all."""
        return min((log.outcome for log in self.logs), key=_rank)

    @property
    def undone(self) -> bool:
        """Returns whether a rollback has undone any of it."""
        return self._any(UNDONE)

    @property
    def published(self) -> bool:
        """Returns whether anything of it is on `main`."""
        return self._any(PUBLISHED)

    @property
    def open(self) -> bool:
        """Returns whether what passed is neither published nor dropped, as far as is known."""
        return self._any(CHECKED)

    @property
    def published_logs(self) -> tuple[LogRound, ...]:
        """Returns the logs that were published; a rollback has none."""
        return tuple(log for log in self.logs if log.outcome == PUBLISHED and self.kind != ROLLBACK)

    def _any(self, outcome: str) -> bool:
        return any(log.outcome == outcome for log in self.logs)

    @property
    def work(self) -> Work:
        """Returns the work on all of its logs as one."""
        return together(log.work for log in self.logs)

    @property
    def duration_ms(self) -> int | None:
        """Returns the time from its begin to the end of its check, by the wall clock; None where nobody wrote the begin
        down."""
        began_ms = self.work.began_ms
        return None if began_ms is None else max(self.checked_at_ms - began_ms, 0)

    @property
    def note(self) -> str:
        """Returns who decided, and why, as the first log with a note has it."""
        return next((log.note for log in self.logs if log.note), "")

    @property
    def dropped(self) -> int:
        """Returns how many records it has dropped."""
        return sum(self.deleted.values())

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """Returns the checks of all of its logs."""
        return tuple(check for log in self.logs for check in log.checks)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Returns expectations that were not met, warnings included."""
        return tuple(check for check in self.checks if not check.passed)


def _rank(outcome: str) -> tuple[int, str]:
    """Returns the position in OUTCOMES; what a later version may have written comes last."""
    return (OUTCOMES.index(outcome) if outcome in OUTCOMES else len(OUTCOMES)), outcome


def outcome_of(row: EvidenceRow) -> str:
    """Returns the outcome that a row of the evidence has. Rows of earlier versions have none: what passed was taken for
    published."""
    return row.get("outcome") or (PUBLISHED if row["passed"] else HELD_BACK)


def rounds_of(evidence: Iterable[EvidenceRow]) -> list[Round]:
    """Joins rows of the evidence to rounds, newest first. A round that was checked again counts again; what became of a
    log belongs to its last check, and a rollback to the last round of the name before it."""
    groups: dict[tuple[str, str, int], dict[int, LogRound]] = {}
    clocks: dict[tuple[str, str, int], tuple[int, int]] = {}
    checks_before: Counter[tuple[str, str, int]] = Counter()
    # 1. in the order of time, what became of a log after the checks of the same moment
    for row in sorted(evidence, key=lambda r: (r["checked_at_ms"], outcome_of(r) not in CHECKS)):
        name, kind, partition = row["round"], row["kind"], row["partition"]
        earlier_checks = checks_before[name, kind, partition]
        if kind in (RECLAIM, GAP):
            continue
        # 2. what became of a log belongs to its last check
        if row.get("outcome") not in (None, *CHECKS) and earlier_checks:
            logs = groups[name, kind, earlier_checks - 1]
            log = logs[partition]
            logs[partition] = replace(log, outcome=outcome_of(row), note=row["note"] or "", work=log.work.ended(row))
            continue
        # 3. any other row is a check, or of a version that wrote one row a log: the next round of the name
        group = (name, kind, earlier_checks)
        groups.setdefault(group, {})[partition] = _log_round(row)
        clocks[group] = (row["now_ms"], row["checked_at_ms"])
        checks_before[name, kind, partition] += 1
    # 4. rollbacks undo rounds of before
    rounds = [
        Round(name, kind, *clocks[name, kind, check], tuple(logs[p] for p in sorted(logs)))
        for (name, kind, check), logs in groups.items()
    ]
    undone = [(r.checked_at_ms, r.name.removeprefix(UNDID).split(", ")) for r in rounds if r.kind == ROLLBACK]
    return with_undone(sorted(rounds, key=lambda r: r.checked_at_ms, reverse=True), undone)


def with_undone(rounds: Iterable[Round], undone: Iterable[tuple[int, Collection[str]]]) -> list[Round]:
    """Returns the rounds in their order, with what rollbacks have undone. `undone`: (Unix ms, names of rounds) of
    rollbacks.

    A name is a clock and a number of the table's, so a round after the rollback may have it again: only one that was
    checked before is meant. Told twice is told once.
    """
    times = [(at_ms, frozenset(names)) for at_ms, names in undone]
    return [
        _undone(r) if any(r.name in names and r.checked_at_ms <= at_ms for at_ms, names in times) else r for r in rounds
    ]


def _undone(round_: Round) -> Round:
    """Returns the round as undone. Only what was published can be undone: other rounds of the name stay what they
    are."""
    logs = (replace(log, outcome=UNDONE) if log.outcome == PUBLISHED else log for log in round_.logs)
    return replace(round_, logs=tuple(logs))


def _log_round(row: EvidenceRow) -> LogRound:
    return LogRound(
        partition=row["partition"],
        first_dirty_offset=row["first_dirty_offset"],
        end_offset=row["end_offset"],
        records_in=row["records_in"],
        records_out=row["records_out"],
        deleted=deleted_of(row),
        passed=row["passed"],
        checks=checks_of(row),
        outcome=outcome_of(row),
        note=row.get("note") or "",
        work=work_of(row),
        sampled=sampled_log(row),
    )

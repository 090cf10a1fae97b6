"""The rounds of a topic from the evidence table: dropped records, results of checks, and outcomes. Pure.

1. A check writes a row for each log. A round that is checked again counts as another round.
2. The outcome of a log that passed is a later row, and belongs to the log's last check.
3. A rollback's row names the rounds that it undid: published rounds that were checked before it.
4. Old rows become one row a day (`day_rows`). Every counter keeps its value, so counters never fall.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cleantail.human import counted
from cleantail.log.partition_state import NOT_APPROVED
from cleantail.rounds.check_results import (
    CHECK_RESULTS_JSON,
    NOT_SAMPLED,
    CheckResult,
    SampledLog,
    checks_of,
    checks_text,
    sampled_log,
)
from cleantail.rounds.commit_summaries import RECLAIM, ROLLBACK, ROUNDS
from cleantail.rounds.evidence_row import (
    CHECKED_ROUND,
    DELETED_JSON,
    EvidenceRow,
    RoundWork,
    deleted_of,
    together,
    work_of,
)

CHECKED = "checked"
"""Outcome of a log that passed its check and is neither published nor dropped yet."""
HELD_BACK = "held_back"
"""Final outcome of a log whose check failed, or that shares files with such a log."""
PUBLISHED = "published"
REJECTED = "rejected"
"""Outcome after a user rejected the round, or no user approved it in time."""
WITHDRAWN = "withdrawn"
"""Outcome of a round that was dropped because no approval could be requested, or because the table changed."""
UNDONE = "undone"
"""Published, and undone by a later rollback. No row of a log has this outcome: the row of the rollback names its
rounds."""
OUTCOMES = (HELD_BACK, CHECKED, UNDONE, PUBLISHED, REJECTED, WITHDRAWN)
"""Outcomes, the most urgent first. A round has the most urgent outcome of its logs."""
CHECKS = (CHECKED, HELD_BACK)
"""Outcomes that a check writes. All other outcomes follow a check."""
GAP = "gap"
"""Kind of a row about offsets that Kafka deleted before they were read. The row belongs to no round."""
ERASED_BESIDE = "erased_beside"
"""Kind of a row about an erasure in a side table: one commit, which no round made. The row belongs to no log."""
UNDID = "undid "
"""Beginning of the name of a rollback. The names of its rounds follow."""
DAY = "day "
"""Beginning of the name of a row for all rounds of one day. The day and their outcome follow."""
OF_DAYS = (*ROUNDS, RECLAIM)
"""The kinds of rows that are merged into one row a day. Rows of other kinds are rare, and stay."""
NOTES = 10
"""Number of different notes that a row of a day keeps."""
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LogRound:
    """One log in one round: its dirty offsets, its records, the dropped records by reason, the verdict, and the outcome
    (one of OUTCOMES). `note`: the user who decided, and the reason."""

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
    work: RoundWork = RoundWork()
    sampled: SampledLog = NOT_SAMPLED


@dataclass(frozen=True, slots=True)
class Round:
    """One checked round: its clock (`now_ms`), the time of its check, and its logs.

    The kind is compact, expire, reconcile or erase. A rollback is stored in the same form, with the kind rollback.
    """

    name: str
    kind: str
    now_ms: int
    checked_at_ms: int
    logs: tuple[LogRound, ...]

    @property
    def passed(self) -> bool:
        return all(log.passed for log in self.logs)

    @property
    def held_back(self) -> tuple[int, ...]:
        """Return the partitions whose check failed."""
        return tuple(log.partition for log in self.logs if not log.passed)

    @property
    def deleted(self) -> dict[str, int]:
        """Return the number of records dropped from published logs, by reason, without logs that a rollback has
        undone."""
        return self._deleted(PUBLISHED)

    @property
    def would_drop(self) -> dict[str, int]:
        """Return the number of records that a publish of the passed logs would drop, by reason."""
        return self._deleted(CHECKED)

    @property
    def put_back(self) -> dict[str, int]:
        """Return the number of dropped records that a rollback has restored, by reason."""
        return self._deleted(UNDONE)

    def _deleted(self, outcome: str) -> dict[str, int]:
        totals: dict[str, int] = {}
        for log in self.logs:
            for reason, count in log.deleted.items():
                totals[reason] = totals.get(reason, 0) + (count if log.outcome == outcome else 0)
        return totals

    @property
    def outcome(self) -> str:
        return min((log.outcome for log in self.logs), key=_rank)

    @property
    def undone(self) -> bool:
        return self._any(UNDONE)

    @property
    def published(self) -> bool:
        return self._any(PUBLISHED)

    @property
    def open(self) -> bool:
        """Return whether a log that passed is neither published nor dropped yet."""
        return self._any(CHECKED)

    @property
    def published_logs(self) -> tuple[LogRound, ...]:
        """Return the logs that were published. A rollback has none."""
        return tuple(log for log in self.logs if log.outcome == PUBLISHED and self.kind != ROLLBACK)

    def _any(self, outcome: str) -> bool:
        return any(log.outcome == outcome for log in self.logs)

    @property
    def work(self) -> RoundWork:
        return together(log.work for log in self.logs)

    @property
    def duration_ms(self) -> int | None:
        """Return the ms from the beginning of the round to the end of its check, by the wall clock. None if unknown."""
        began_ms = self.work.began_ms
        return None if began_ms is None else max(self.checked_at_ms - began_ms, 0)

    @property
    def note(self) -> str:
        """Return the first note of the logs: the user who decided, and the reason."""
        return next((log.note for log in self.logs if log.note), "")

    @property
    def unanswered(self) -> bool:
        """Return whether the round was dropped because no user answered in time."""
        return self.note == NOT_APPROVED

    @property
    def dropped(self) -> int:
        return sum(self.deleted.values())

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        return tuple(check for log in self.logs for check in log.checks)

    @property
    def checks_text(self) -> str:
        return checks_text(len(self.checks) - len(self.failures), len(self.checks), len(self.logs))

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Return the expectations that were not met, warnings included."""
        return tuple(check for check in self.checks if not check.passed)


def _rank(outcome: str) -> tuple[int, str]:
    """Return the position in OUTCOMES. Unknown outcomes come last."""
    return (OUTCOMES.index(outcome) if outcome in OUTCOMES else len(OUTCOMES)), outcome


def outcome_of(row: EvidenceRow) -> str:
    """Return the outcome in a row. A row without one was published if it passed."""
    return row.get("outcome") or (PUBLISHED if row["passed"] else HELD_BACK)


def rounds_of(evidence: Iterable[EvidenceRow]) -> list[Round]:
    """Join rows of the evidence to rounds, newest first, by the rules of the module docstring."""
    groups: dict[tuple[str, str, int], dict[int, LogRound]] = {}
    clocks: dict[tuple[str, str, int], tuple[int, int]] = {}
    checks_before: Counter[tuple[str, str, int]] = Counter()
    # 1. in the order of time, outcomes after the checks of the same moment
    for row in sorted(evidence, key=lambda r: (r["checked_at_ms"], outcome_of(r) not in CHECKS)):
        name, kind, partition = row["round"], row["kind"], row["partition"]
        earlier_checks = checks_before[name, kind, partition]
        if kind in (RECLAIM, GAP, ERASED_BESIDE):
            continue
        # 2. an outcome belongs to the log's last check
        if row.get("outcome") not in (None, *CHECKS) and earlier_checks and not name.startswith(DAY):
            logs = groups[name, kind, earlier_checks - 1]
            log = logs[partition]
            logs[partition] = replace(log, outcome=outcome_of(row), note=row["note"] or "", work=log.work.ended(row))
            continue
        # 3. any other row is a check: the next round of the name
        group = (name, kind, earlier_checks)
        groups.setdefault(group, {})[partition] = _log_round(row)
        clocks[group] = (row["now_ms"], row["checked_at_ms"])
        checks_before[name, kind, partition] += 1
    # 4. rollbacks undo earlier rounds
    rounds = [
        Round(name, kind, *clocks[name, kind, check], tuple(logs[p] for p in sorted(logs)))
        for (name, kind, check), logs in groups.items()
    ]
    undone = [(r.checked_at_ms, r.name.removeprefix(UNDID).split(", ")) for r in rounds if r.kind == ROLLBACK]
    return with_undone(sorted(rounds, key=lambda r: r.checked_at_ms, reverse=True), undone)


def with_undone(rounds: Iterable[Round], undone: Iterable[tuple[int, Collection[str]]]) -> list[Round]:
    """Return the rounds in their order, with undone rounds marked. `undone`: (Unix ms, names of rounds) of each
    rollback.

    A later round may have the same name as an undone round, because a name is a clock and a sequence number. So only
    rounds that were checked before the rollback count.
    """
    times = [(at_ms, frozenset(names)) for at_ms, names in undone]
    return [
        _undone(r) if any(r.name in names and r.checked_at_ms <= at_ms for at_ms, names in times) else r for r in rounds
    ]


def _undone(round_: Round) -> Round:
    """Return the round with its published logs as undone."""
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


def undone_or_open(rows: Iterable[EvidenceRow]) -> set[str]:
    """Return the names of rounds that keep their rows: rounds that a rollback names, and rounds without an outcome."""
    rows = list(rows)
    undone = {name for row in rows if row["kind"] == ROLLBACK for name in row["round"].removeprefix(UNDID).split(", ")}
    ended = {_log_of(row) for row in rows if outcome_of(row) != CHECKED}
    return undone | {row["round"] for row in rows if outcome_of(row) == CHECKED and _log_of(row) not in ended}


def day_rows(rows: Iterable[EvidenceRow]) -> list[EvidenceRow]:
    """Return one row for each day, kind, log and outcome of these rows of a topic. All rounds have an outcome.

    Each has the sums of its rounds, their failed checks, and at most NOTES of their notes.
    """
    ordered = sorted(rows, key=lambda row: row["checked_at_ms"])
    ended = {_log_of(row): outcome_of(row) for row in ordered if outcome_of(row) != CHECKED}
    groups: dict[tuple[int, str, int, str], list[EvidenceRow]] = {}
    for row in ordered:
        day = row["now_ms"] // DAY_MS
        groups.setdefault((day, row["kind"], row["partition"], ended[_log_of(row)]), []).append(row)
    return [_day_row(day, outcome, of_day) for (day, _, _, outcome), of_day in groups.items()]


def _log_of(row: EvidenceRow) -> tuple[str, str, int]:
    return row["round"], row["kind"], row["partition"]


def _day_row(day: int, outcome: str, rows: Sequence[EvidenceRow]) -> EvidenceRow:
    """Return the row of a day. If a round has an outcome, the row of its check adds only failed checks."""
    ends = [row for row in rows if outcome_of(row) != CHECKED]
    deleted: Counter[str] = sum((Counter(deleted_of(row)) for row in ends), Counter())
    saved = [saved_bytes for row in ends if (saved_bytes := row.get("saved_bytes")) is not None]
    rounds = sum(row.get("rounds") or 1 for row in ends)
    notes = dict.fromkeys(note for row in ends if (note := row.get("note")))
    last = ends[-1]
    sums: EvidenceRow = {
        "round": f"{DAY}{datetime.fromtimestamp(day * DAY_MS / 1000, UTC):%Y-%m-%d} {outcome}",
        "rounds": rounds,
        "note": "; ".join([counted(rounds, "round"), *list(notes)[:NOTES]]),
        "first_dirty_offset": min(row["first_dirty_offset"] for row in ends),
        "end_offset": max(row["end_offset"] for row in ends),
        "records_in": last["records_out"] + sum(row["records_in"] - row["records_out"] for row in ends),
        "tombstones_in": last["tombstones_out"] + sum(row["tombstones_in"] - row["tombstones_out"] for row in ends),
        "deleted": DELETED_JSON.text(deleted),
        "freed_bytes": sum(row["freed_bytes"] for row in ends),
        "checks": CHECK_RESULTS_JSON.text(tuple(check for row in rows for check in checks_of(row) if not check.passed)),
        "began_ms": None,
        "saved_bytes": sum(saved) if saved else None,
        CHECKED_ROUND: None,
        "sample": "[]",
    }
    return last | {"dag_id": None, "run_id": None, "task_id": None} | sums

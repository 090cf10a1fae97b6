"""The work on a round as the evidence tells it: when it began and ended by the wall clock, who did it, what it saved.

Rows of versions that did not write it down say nothing: None everywhere. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.task_runs import TaskRun, task_run_of

COLUMNS = ("dag_id", "run_id", "task_id", "began_ms", "saved_bytes")
CLOCKS_AGREE_MS = 600_000
"""A run asks the clock once, and its last task may come minutes later: a difference below this says nothing."""


@dataclass(frozen=True, slots=True)
class Work:
    """Says when a round was worked on, and by which tasks. `began_ms`, `ended_at_ms`: Unix ms of the wall clock; the
    end is when it was known what became of the round. `checked_by`, `ended_by`: the Airflow tasks that wrote it, None
    of the command line. `saved_bytes`: an estimate."""

    began_ms: int | None = None
    saved_bytes: int | None = None
    checked_by: TaskRun | None = None
    ended_at_ms: int | None = None
    ended_by: TaskRun | None = None

    def ended(self, row: EvidenceRow) -> Work:
        """Returns the work with what a later row says became of it."""
        return replace(self, ended_at_ms=row["checked_at_ms"], ended_by=task_run_of(row))


def work_of(row: EvidenceRow) -> Work:
    """Returns what the row of a check says of the work before it."""
    return Work(row.get("began_ms"), row.get("saved_bytes"), task_run_of(row))


def together(works: Iterable[Work]) -> Work:
    """Returns the works on a round's logs as one: from the first begin to the last end."""
    all_works = list(works)
    began = [w.began_ms for w in all_works if w.began_ms is not None]
    saved = [w.saved_bytes for w in all_works if w.saved_bytes is not None]
    ended = [w.ended_at_ms for w in all_works if w.ended_at_ms is not None]
    return Work(
        began_ms=min(began, default=None),
        saved_bytes=sum(saved) if saved else None,
        checked_by=next((w.checked_by for w in all_works if w.checked_by), None),
        ended_at_ms=max(ended, default=None),
        ended_by=next((w.ended_by for w in all_works if w.ended_by), None),
    )


def clocks_differ(round_clock_ms: int, wall_clock_ms: int) -> bool:
    """Returns whether a round's own clock (`--now`, or the param now_ms) was not that of the wall."""
    return abs(round_clock_ms - wall_clock_ms) > CLOCKS_AGREE_MS

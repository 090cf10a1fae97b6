"""A topic's history for people: the events of its table, newest first, with their undo options. Pure.

1. Each commit in `main`'s kept history is an event. Its snapshot can be read (`--as-of`) and gone back to (`--to`).
2. A round that is in the evidence but not in that history is an event without a snapshot. It was not published, it was
   undone, or its snapshot has expired.
3. An event has the options of `cleantail rollback` that undo it, by the rules of `rollback`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleantail.human import counted
from cleantail.rounds.commit_summaries import (
    APPROVED_BY,
    BY,
    OPERATION,
    ROLLBACK,
    ROUND,
    UNDONE,
    Commit,
    summary_number,
    whole_rounds,
)
from cleantail.rounds.past_ingestions import INGEST, ingestions
from cleantail.rounds.past_rounds import CHECKED, HELD_BACK, PUBLISHED, UNDID, WITHDRAWN, Round
from cleantail.rounds.rollback_plan import published_rounds

OUTCOMES = {HELD_BACK: "a check failed", CHECKED: "not published yet", WITHDRAWN: "not published"}
"""Outcome of a round that is not on `main` -> its text, if it differs from the outcome."""


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One event of a topic. `at_ms`: the time of its commit, or of its check (Unix ms).

    `kind`: compact, expire, reconcile, erase, ingest, reclaim, rollback, or another writer's operation. `undo`: the
    options of `cleantail rollback` that undo it and all rounds after it, empty if the event cannot be undone.
    """

    at_ms: int
    kind: str
    what: str
    snapshot_id: int | None = None
    outcome: str = PUBLISHED
    undo: tuple[str, ...] = ()


def events_of(history: Sequence[Commit], rounds: Iterable[Round], topic: str) -> list[HistoryEvent]:
    """Return the events, newest first. `history` is the ancestry of `main`, newest first; `rounds` are the evidence's.

    Raises TableError for a commit whose summary cannot be parsed.
    """
    ingested = {one.snapshot_id: one for one in ingestions(history, topic)}
    undo = {u.snapshot_id: ("--to", str(u.before_snapshot_id)) for u in published_rounds(history)}
    rounds = list(rounds)
    known = {_name_of(r): r for r in reversed(rounds) if r.published or r.kind == ROLLBACK}  # the newest of a name
    events, matched = list[HistoryEvent](), set[tuple[str, str]]()
    for commit in whole_rounds(history):
        kind = commit.summary.get(OPERATION) or commit.operation
        if (ingestion := ingested.get(commit.snapshot_id)) is not None:
            options = () if ingestion.refusal else ("--ingestion", str(ingestion.snapshot_id))
            what = f"{counted(ingestion.records, 'record')}: {ingestion.names}"
            events.append(HistoryEvent(commit.at_ms, INGEST, what, commit.snapshot_id, undo=options))
            continue
        name = (commit.summary.get(UNDONE if kind == ROLLBACK else ROUND, ""), kind)
        matched.add(name)
        what = _of_commit(commit, known.get(name))
        events.append(HistoryEvent(commit.at_ms, kind, what, commit.snapshot_id, undo=undo.get(commit.snapshot_id, ())))
    # a round is open in the evidence if its publisher died before it recorded the outcome
    gone = [r for r in rounds if _name_of(r) not in matched or not (r.published or r.open or r.kind == ROLLBACK)]
    events += [HistoryEvent(r.checked_at_ms, r.kind, _of_round(r), outcome=r.outcome) for r in gone]
    return sorted(events, key=lambda event: event.at_ms, reverse=True)


def _name_of(round_: Round) -> tuple[str, str]:
    """Return the round's name and kind as in the summary of its commit."""
    return round_.name.removeprefix(UNDID).replace(", ", ","), round_.kind


def _of_commit(commit: Commit, round_: Round | None) -> str:
    """Return a text about a commit, from the evidence of its round, else from its summary."""
    summary = commit.summary
    if summary.get(OPERATION) == ROLLBACK:
        return f"undid {summary.get(UNDONE, '?').replace(',', ', ')}, by {summary.get(BY) or 'an unknown user'}"
    if round_ is not None:
        return _of_round(round_)
    if commit.is_round:
        approved = f"; approved by {summary[APPROVED_BY]}" if summary.get(APPROVED_BY) else ""
        removed = counted(summary_number(summary, "added-position-deletes"), "record")
        return f"round {summary.get(ROUND, '?')}: removed {removed}{approved}"
    added = counted(summary_number(summary, "added-records"), "record")
    counts = f"{added} added, {summary_number(summary, 'deleted-records')} removed"
    return counts if OPERATION not in summary else f"{counts} with their files"


def _of_round(round_: Round) -> str:
    """Return a text with the round's name, outcome, counts of removed records, and the user who decided."""
    if round_.kind == ROLLBACK:
        return round_.name
    if round_.published:
        text = f"removed {_counts(round_.deleted)}"
        blocked = ", ".join(map(str, round_.held_back))
        text += f"; a check failed in partition {blocked}" if blocked else ""
    elif round_.undone:
        text = f"undone; it had removed {_counts(round_.put_back)}"
    else:
        text = OUTCOMES.get(round_.outcome, round_.outcome)
    return f"round {round_.name}: {text}{f'; {round_.note}' if round_.note else ''}"


def _counts(deleted: Mapping[str, int]) -> str:
    """Return `3 superseded, 1 expired`."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(deleted.items()) if count) or "no record"

"""Adapter: a topic's history as its table tells it: which files were appended when, and what published rounds dropped.

The history goes back as far as the table's snapshots do; what is older counts as there from the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cleantail.lake.runs.rollback_preview import history_of
from cleantail.lake.table_metadata import ancestry, files_added_by, live_files
from cleantail.log.round_state import COMPACT
from cleantail.rounds.past_rounds import PUBLISHED, Round, with_undone
from cleantail.rounds.rollback_plan import rollbacks
from cleantail.whatif.observed_history import Arrival, History, ObservedRound

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

DROPS_BY_ROUNDS = ("superseded", "copies", "invalid")
"""Reasons by which a round's own rules drop records; what retention takes is known from the segments."""


def read_history(table: Table, rounds: Iterable[Round], now_ms: int) -> History | None:
    """Returns the history of a table, None where the table has no records.

    `rounds` are those of the evidence table. The table itself knows of a rollback also where the process that did it
    died before it could write evidence.
    """
    chain = _main(table)
    if not chain:
        return None
    oldest = chain[0]
    arrivals = [Arrival(oldest.timestamp_ms, file) for file in live_files(table, oldest.snapshot_id)]
    for snapshot in chain[1:]:
        arrivals += [Arrival(snapshot.timestamp_ms, file) for file in files_added_by(table, snapshot)]
    end_ms = max(now_ms, chain[-1].timestamp_ms)
    real = with_undone(rounds, rollbacks(list(history_of(table))))
    return History(oldest.timestamp_ms, end_ms, tuple(arrivals), tuple(observed_rounds(real)))


def _main(table: Table) -> list[Snapshot]:
    """Returns the snapshots of main that are kept, oldest first."""
    return list(ancestry(table, table.current_snapshot()))[::-1]


def observed_rounds(rounds: Iterable[Round]) -> list[ObservedRound]:
    """Returns the compactions that were published, by log, but for those that were undone.

    The records of an undone round are there again, and a later round has dropped them once more. The time of a round is
    the real one, since snapshots are dated by it as well.
    """
    return [
        ObservedRound(
            partition=log.partition,
            at_ms=round_.checked_at_ms,
            first_dirty_offset=log.first_dirty_offset,
            end_offset=log.end_offset,
            dropped=sum(log.deleted.get(reason, 0) for reason in DROPS_BY_ROUNDS),
        )
        for round_ in rounds
        if round_.kind == COMPACT
        for log in round_.logs
        if log.outcome == PUBLISHED
    ]

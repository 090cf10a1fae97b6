"""Says which commit on `main` has published a checked round, and the result of that."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from cleantail.log.partition_state import states_of_properties
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.publications import identity_of, publication_of
from spark_jobs.iceberg.iceberg_reads import history, texts
from spark_jobs.iceberg.tables import TopicTable


def published_as(table: TopicTable, checked: CheckedRound) -> int | None:
    """Returns the snapshot that published this very round, None where none did. It searches main from its head back to
    what the round read."""
    mine = identity_of(checked).items()
    read = {unit.base_snapshot_id for unit in checked.units}
    since = takewhile(lambda c: c.snapshot_id not in read, history(table.load()))
    return next((c.snapshot_id for c in since if mine <= c.summary.items()), None)


def result_of(table: TopicTable, checked: CheckedRound, snapshot_id: int, iceberg: Any = None) -> RoundResult:
    """Returns the result of a published round, whichever try of its task has published it. `iceberg`: the table, where
    it was loaded since."""
    states = states_of_properties(texts((iceberg or table.load()).properties()), table.name)
    return publication_of(checked, snapshot_id, states)

"""Says which commit on `main` has published a checked round, and the result of that."""

from __future__ import annotations

from itertools import takewhile

from cleantail.log.partition_state import states_of_properties
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.checked.staged_units import EXPIRED
from cleantail.rounds.rollback import HEADS, ROUND
from cleantail.rounds.size_history import OPERATION
from spark_jobs.iceberg.iceberg_reads import history, texts
from spark_jobs.iceberg.tables import TopicTable


def published_as(table: TopicTable, checked: CheckedRound) -> int | None:
    """Returns the snapshot that published this very round, None where none did. It searches main from its head back to
    what the round read."""
    mine = identity_of(checked).items()
    read = {unit.base_snapshot_id for unit in checked.units}
    since = takewhile(lambda c: c.snapshot_id not in read, history(table.load()))
    return next((c.snapshot_id for c in since if mine <= c.summary.items()), None)


def identity_of(checked: CheckedRound) -> dict[str, str]:
    """Returns what the summary of a round's snapshot says about which round it is."""
    return {OPERATION: checked.kind, ROUND: checked.round, HEADS: ",".join(map(str, checked.heads))}


def result_of(table: TopicTable, checked: CheckedRound, snapshot_id: int) -> RoundResult:
    """Returns the result of a published round, whichever try of its task has published it."""
    green = set(checked.green)
    left_behind = (reader for unit in checked.units for reader in unit.left_behind)
    expired = (m.deleted.get(EXPIRED, 0) for m in checked.measures if m.partition in green)
    return RoundResult.of_check(
        checked,
        published=tuple(checked.green),
        snapshot_id=snapshot_id,
        checkpoints=_checkpoints(table),
        ends={work.partition: work.end_offset for _, work in checked.works() if work.partition in green},
        left_behind=tuple(reader for reader in left_behind if reader.partition in green),
        expired=sum(expired),
    )


def _checkpoints(table: TopicTable) -> dict[int, int]:
    """Returns the clean point of every log of the topic, also of those that this round did not touch."""
    states = states_of_properties(texts(table.load().properties()), table.name)
    return {p: state.checkpoint for p, state in sorted(states.items()) if state.checkpoint is not None}

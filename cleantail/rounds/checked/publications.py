"""Says by what the commit of a checked round is known on `main`, and what its result is. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from cleantail.log.partition_state import PartitionState
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.checked.staged_units import EXPIRED
from cleantail.rounds.commit_summaries import HEADS, OPERATION, ROUND
from cleantail.rounds.last_compaction import PROPERTY_COMPACTION, LastCompaction


def identity_of(checked: CheckedRound) -> dict[str, str]:
    """Returns what the summary of a round's snapshot says about which round it is."""
    return {OPERATION: checked.kind, ROUND: checked.round, HEADS: ",".join(map(str, checked.heads))}


def publication_of(checked: CheckedRound, snapshot_id: int, states: Mapping[int, PartitionState]) -> RoundResult:
    """Returns the result of a published round. `states`: of all logs of the topic, also of those that the round did not
    touch."""
    green = set(checked.green)
    works = [work for _, work in checked.works() if work.partition in green]
    resting = {partition for partition, state in states.items() if state.quarantine}
    left_behind = (reader for unit in checked.units for reader in unit.left_behind)
    expired = (m.deleted.get(EXPIRED, 0) for m in checked.measures if m.partition in green)
    return RoundResult.of_check(
        checked,
        published=tuple(checked.green),
        snapshot_id=snapshot_id,
        checkpoints={p: state.checkpoint for p, state in sorted(states.items()) if state.checkpoint is not None},
        retained=tuple(work.partition for work in works if work.only_retention and work.partition in resting),
        ends={work.partition: work.end_offset for work in works},
        left_behind=tuple(reader for reader in left_behind if reader.partition in green),
        expired=sum(expired),
    )


def quarantine_of(checked: CheckedRound, properties: Mapping[str, str]) -> RoundResult | None:
    """Returns the result of a compaction of which nothing passed, once its failed logs are in quarantine. None before
    that, and for any other round. `properties`: of the table, which name the measures of its last compaction: they are
    written in the commit that puts the logs there."""
    last = LastCompaction.of_round(checked.units, checked.measures)
    is_last = last is not None and properties.get(PROPERTY_COMPACTION) == last.as_json()
    return RoundResult.of_check(checked) if is_last and not checked.green else None

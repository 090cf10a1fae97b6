"""Which commit on `main` is of a checked round, and what is told of it."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from cleantail.log.partition_state import states_of_properties
from cleantail.rounds.approval import heads_of
from cleantail.rounds.history import OPERATION
from cleantail.rounds.rollback import HEADS, ROUND
from spark_jobs.iceberg.changes import history, texts
from spark_jobs.iceberg.tables import TopicTable


def published_as(table: TopicTable, checked: dict[str, Any]) -> int | None:
    """The snapshot of this very round, looked for in main's history back to what the round read."""
    mine = identity_of(checked).items()
    read = {unit["base_snapshot_id"] for unit in checked["units"]}
    since = takewhile(lambda c: c.snapshot_id not in read, history(table.load()))
    return next((c.snapshot_id for c in since if mine <= c.summary.items()), None)


def identity_of(checked: dict[str, Any]) -> dict[str, str]:
    """What the summary of a round's snapshot says of which round it is."""
    heads = ",".join(map(str, heads_of(checked)))
    return {OPERATION: checked["kind"], ROUND: checked["round"], HEADS: heads}


def result_of(table: TopicTable, checked: dict[str, Any], snapshot_id: int) -> dict[str, Any]:
    """What the task says of a published round, whichever of its tries has published it."""
    green = sorted(v["partition"] for v in checked["verdicts"] if v["passed"])
    red = sorted(v["partition"] for v in checked["verdicts"] if not v["passed"])
    ends = {w["partition"]: w["end_offset"] for u in checked["units"] for w in u["partitions"]}
    left_behind = [reader for u in checked["units"] for reader in u.get("left_behind", ())]
    return {
        "ok": not red,
        "round": checked["round"],
        "kind": checked["kind"],
        "published": green,
        "held_back": red,
        "snapshot_id": snapshot_id,
        "checkpoints": _checkpoints(table),
        "ends": {p: end for p, end in ends.items() if p in green},
        "left_behind": [reader for reader in left_behind if reader["partition"] in green],
    }


def _checkpoints(table: TopicTable) -> dict[int, int]:
    """The clean point of every log of the topic, also of those that this round did not touch."""
    states = states_of_properties(texts(table.load().properties()), table.name)
    return {p: state.checkpoint for p, state in sorted(states.items()) if state.checkpoint is not None}

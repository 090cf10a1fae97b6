"""Branches of rounds whose check failed: kept for a person to look at, and dropped after their time. Pure.

1. Such a branch holds what the round would have published. It is a copy of no data: delete files over the files of its
   base, which it keeps from being removed while it is there.
2. It may go cleantail.failed.branch.retention.ms after the round's own clock, which its name ends in.
3. The branch of a newer failed try of the same log replaces it, where no other log names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.human import whole_number
from cleantail.log.partition_state import PartitionState

FAILED_PREFIX = "failed_"
"""So begins the name of a branch that a failed round has left. The round, the unit and the round's clock in Unix
seconds follow; by the clock it is known when the branch may go."""


SECONDS_DIGITS = 11
_OWN_NAME = re.compile(FAILED_PREFIX + r"[0-9A-Za-z]{1,20}(_\d{1,19}){0,2}_[a-z]\d{1,9}_\d{1,11}", re.ASCII)
"""Finds what `failed_name` makes."""


def failed_name(round_id: str, unit: int, kind: str, now_ms: int) -> str:
    """Returns the name of the branch that a unit of a round leaves; the same try again has the same name, and replaces
    it."""
    return f"{FAILED_PREFIX}{round_id}_{kind}{unit}_{now_ms // 1000}"


def kept_until_ms(branch: str, retention_ms: int) -> int | None:
    """Returns when the branch may go (Unix ms); None where it is no failed branch."""
    created_s = whole_number(branch.rpartition("_")[2], SECONDS_DIGITS)
    return created_s * 1000 + retention_ms if branch.startswith(FAILED_PREFIX) and created_s is not None else None


def past_their_time(branches: Iterable[str], retention_ms: int, now_ms: int) -> list[str]:
    """Returns the failed branches that may go."""
    ends = ((name, kept_until_ms(name, retention_ms)) for name in branches)
    return sorted(name for name, end_ms in ends if end_ms is not None and now_ms >= end_ms)


def replaced(before: Mapping[int, PartitionState], after: Mapping[int, PartitionState]) -> set[str]:
    """Returns branches that a newer failed try of the same log has taken the place of, and that no other log names."""
    former = {_branch(before[p]) for p, state in after.items() if p in before and _branch(state)}
    return former - {_branch(state) for state in {**before, **after}.values()} - {""}


def _branch(state: PartitionState) -> str:
    return state.quarantine.branch if state.quarantine else ""


@dataclass(frozen=True, slots=True)
class KeptBranch:
    """Says what a log's last failed try left, until when (Unix ms), and how to look at it: by command, and in Spark
    SQL."""

    name: str
    until_ms: int
    command: str
    sql: str


def kept_branch(
    state: PartitionState, partition: int, topic: Topic, catalog: str, branches: Iterable[str]
) -> KeptBranch | None:
    """Returns what the log's last failed try left; None where nothing was kept, or it is gone from `branches`, those
    that the table has. The name stands in commands to copy, and another writer may have put it into the table: only one
    that `failed_name` makes is shown."""
    name = _branch(state)
    if not _OWN_NAME.fullmatch(name):
        return None
    until_ms = kept_until_ms(name, topic.config.cleantail_failed_branch_retention_ms)
    if until_ms is None or name not in branches:
        return None
    command = f"cleantail read {topic.topic} --partition {partition} --as-of {name}"
    sql = f"SELECT * FROM {catalog}.{topic.table} VERSION AS OF '{name}' WHERE `partition` = {partition}"
    return KeptBranch(name, until_ms, command, sql)

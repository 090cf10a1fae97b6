"""When a log is put into quarantine, and how long it rests before it is tried again. Pure.

1. A failed check puts the log into quarantine (`after_failure`), and so does a person's rejection
   (cleantail.rounds.approval.after_rejection).
2. The pause before the next try doubles with each failed check, up to an hour. While it lasts, the log is neither
   compacted nor swept (cleantail.log.triggers.quarantine_pause); its retention goes on.
3. A log leaves quarantine when a round of it is published (cleantail.log.round_state.after_round and after_expiry say
   which round ends which quarantine), or when a person releases it (cleantail.log.quarantine).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.config.topic import Topic
from cleantail.human import whole_number
from cleantail.log.partition_state import CHECK_FAILED, PartitionState, Quarantine
from cleantail.log.round_state import RETAIN

NO_RELEASES: Releases = {}
FAILED_PREFIX = "failed_"
"""So begins the name of a branch that a failed round has left. The round, the unit and the round's clock in Unix
seconds follow; by the clock it is known when the branch may go."""
SECONDS_DIGITS = 11
_OWN_NAME = re.compile(FAILED_PREFIX + r"[0-9A-Za-z]{1,20}(_\d{1,19}){0,2}_[a-z]\d{1,9}_\d{1,11}", re.ASCII)
"""Finds what `failed_name` makes."""
MAX_BACKOFF_MS = 3_600_000
"""The longest pause before a log in quarantine is tried again."""


@dataclass(frozen=True, slots=True)
class Release:
    """Says that `by` has taken a log out of quarantine at `at_ms` (Unix ms), for those who look it up.

    `table_uuid` is Iceberg's name of the table. The last three numbers are those of the quarantine, by which it is told
    from a later one of the log (3).
    """

    topic: str
    partition: int
    table_uuid: str
    by: str
    at_ms: int
    since_ms: int
    attempts: int
    retry_at_ms: int

    def lifts(self, quarantine: Quarantine | None, table_uuid: str) -> bool:
        """Returns whether the release is of this quarantine of this table (2)."""
        if quarantine is None or self.table_uuid != table_uuid:
            return False
        identity = (quarantine.since_ms, quarantine.attempts, quarantine.retry_at_ms)
        return identity == (self.since_ms, self.attempts, self.retry_at_ms)


Releases = Mapping[int, Release]
"""The last release of each log of a topic, by partition number."""


def lifted(states: Mapping[int, PartitionState], releases: Releases, table_uuid: str) -> dict[int, PartitionState]:
    """Returns the states as they count: without the quarantines that a person has lifted."""
    free = {p for p, word in releases.items() if p in states and word.lifts(states[p].quarantine, table_uuid)}
    return {p: replace(state, quarantine=None) if p in free else state for p, state in states.items()}


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


def after_failure(
    state: PartitionState, kind: str, expectations: Sequence[str], now_ms: int, backoff_ms: int, branch: str = ""
) -> PartitionState:
    """Returns the state of a log whose check failed: in quarantine, with the expectations that failed.

    1. `branch` keeps what the round would have published, for inspection.
    2. The pause before the next try doubles with each failure, up to an hour; `backoff_ms` is the first pause.
    3. Where only the retention of a log failed that a failed check holds already, the quarantine keeps its kind: the
       compaction or expiry that passes lifts it, and no retention.
    4. A person's rejection is no failed check: after one the doubling starts from the beginning.
    """
    held = _held_by_check(state)
    kind = held.kind if held and kind == RETAIN else kind
    attempts = held.attempts + 1 if held else 1
    since_ms = held.since_ms if held else now_ms
    reason = f"{CHECK_FAILED}: {', '.join(sorted(set(expectations)))}"
    retry_at_ms = now_ms + _pause_ms(attempts, backoff_ms)
    return replace(state, quarantine=Quarantine(since_ms, kind, reason, attempts, retry_at_ms, branch))


def _held_by_check(state: PartitionState) -> Quarantine | None:
    """Returns the log's quarantine where a failed check put it there, and no person's rejection."""
    return state.quarantine if state.quarantine and state.quarantine.check_failed else None


def _pause_ms(attempts: int, backoff_ms: int) -> int:
    """Returns how long a log rests after that many failures in a row: `backoff_ms`, doubled with each after the
    first."""
    doubled: int = backoff_ms * 2 ** min(attempts - 1, 30)
    return min(doubled, MAX_BACKOFF_MS)


def red_since_and_retry(state: PartitionState, now_ms: int, backoff_ms: int) -> tuple[int, int]:
    """Returns (since when a log is in quarantine, when it is tried again), in Unix ms, for a log whose check is red in
    the run of `now_ms`.

    The answer is the same before publish writes the quarantine (after_failure) and after it has.
    """
    held = _held_by_check(state)
    if held is None:
        return now_ms, now_ms + _pause_ms(1, backoff_ms)
    written = held.retry_at_ms == now_ms + _pause_ms(held.attempts, backoff_ms)
    return held.since_ms, now_ms + _pause_ms(held.attempts + (not written), backoff_ms)

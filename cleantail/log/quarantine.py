"""Logs in quarantine: how they enter and leave it, and the branch that keeps a failed round. Pure.

1. A failed check puts a log into quarantine (`after_failure`), and so does a rejection
   (cleantail.rounds.approval.after_rejection).
2. The pause before the next try begins when the check has failed, and doubles with each failed check, up to an hour.
   During the pause the log is neither compacted nor swept (`quarantine_pause`). Its retention continues.
3. A log leaves quarantine when a round of it is published (cleantail.log.round_state), or when a user releases it.
4. A release (semantics.md 1.3) is stored in the namespace of the table and needs no commit to the table. A release
   applies to one quarantine of one table. After another failed try it has no effect: that quarantine has another begin,
   number of attempts or next try.
5. The branch of a failed round is kept for inspection. It copies no data: it has delete files over the files of its
   base, and protects these from removal. The branch may be dropped cleantail.failed.branch.retention.ms after the
   round's own clock. The branch of a newer failed try of the same log replaces it, unless another log names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.config.topic import Topic
from cleantail.human import until
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import CHECK_FAILED, PartitionState, Quarantine
from cleantail.log.round_state import RETAIN

NO_RELEASES: Releases = {}
"""No log of a topic is released."""
FAILED_PREFIX = "failed_"
"""The beginning of the name of a failed round's branch. Round, unit and the round's clock in Unix seconds follow."""
_OWN_NAME = re.compile(FAILED_PREFIX + r"[0-9A-Za-z]{1,20}(?:_\d{1,19}){0,2}_[a-z]\d{1,9}_(\d{1,11})", re.ASCII)
"""Matches what `failed_name` returns."""
MAX_BACKOFF_MS = 3_600_000
"""The longest pause before a log in quarantine is tried again."""


def after_failure(
    state: PartitionState, kind: str, expectations: Sequence[str], failed_ms: int, backoff_ms: int, branch: str = ""
) -> PartitionState:
    """Return the state of a log whose check failed at `failed_ms`: in quarantine, with the expectations that failed.

    1. `branch` keeps what the round would have published.
    2. The pause before the next try doubles with each failure, up to an hour. `backoff_ms` is the first pause.
    3. If only retention failed in a log that a failed check blocks already, the quarantine keeps its kind. So a
       compaction or expiry that passes lifts the quarantine.
    4. A rejection is not a failed check: after a rejection the doubling starts from the beginning.
    """
    held = _held_by_check(state)
    kind = held.kind if held and kind == RETAIN else kind
    attempts = held.attempts + 1 if held else 1
    since_ms = held.since_ms if held else failed_ms
    reason = f"{CHECK_FAILED}: {', '.join(sorted(set(expectations)))}"
    retry_at_ms = failed_ms + _pause_ms(attempts, backoff_ms)
    return replace(state, quarantine=Quarantine(since_ms, kind, reason, attempts, retry_at_ms, branch))


def _held_by_check(state: PartitionState) -> Quarantine | None:
    """Return the log's quarantine if a failed check put it there."""
    return state.quarantine if state.quarantine and state.quarantine.check_failed else None


def _pause_ms(attempts: int, backoff_ms: int) -> int:
    """Return the pause after this number of failures in a row."""
    doubled: int = backoff_ms * 2 ** min(attempts - 1, MAX_BACKOFF_MS.bit_length())
    return min(doubled, MAX_BACKOFF_MS)


def quarantine_pause(log: LogState, now_ms: int) -> str | None:
    """Return why a quarantined log is neither compacted nor swept before its next try, or None.

    Kafka leaves an uncleanable partition (LogCleanerManager.isUncleanablePartition) out of retention too, and its disk
    fills. Here retention continues.
    """
    quarantine = log.state.quarantine
    if quarantine is None or now_ms >= quarantine.retry_at_ms:
        return None
    until_text = until(quarantine.retry_at_ms)
    if not quarantine.check_failed:
        return f"blocked {until_text} (cleantail.approval.pause.ms): {quarantine.reason}"
    return f"blocked {until_text} (log.cleaner.backoff.ms, doubled with every try): {quarantine.reason}"


def red_since_and_retry(state: PartitionState, failed_ms: int, backoff_ms: int) -> tuple[int, int]:
    """Return (since when, next try) of the quarantine, in Unix ms, of a log whose check failed at `failed_ms`.

    The answer is the same before and after publish writes the quarantine.
    """
    held = _held_by_check(state)
    if held is None:
        return failed_ms, failed_ms + _pause_ms(1, backoff_ms)
    written = held.retry_at_ms == failed_ms + _pause_ms(held.attempts, backoff_ms)
    return held.since_ms, failed_ms + _pause_ms(held.attempts + (not written), backoff_ms)


@dataclass(frozen=True, slots=True)
class Release:
    """User `by` took a log out of quarantine at `at_ms` (Unix ms).

    `table_uuid` is Iceberg's id of the table. The last three numbers identify the quarantine.
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
        """Return whether the release applies to this quarantine of this table."""
        if quarantine is None:
            return False
        identity = (table_uuid, quarantine.since_ms, quarantine.attempts, quarantine.retry_at_ms)
        return identity == (self.table_uuid, self.since_ms, self.attempts, self.retry_at_ms)


Releases = Mapping[int, Release]
"""The last release of each log of a topic, by partition number."""


def lifted(states: Mapping[int, PartitionState], releases: Releases, table_uuid: str) -> dict[int, PartitionState]:
    """Return the states without the quarantines that a user has lifted."""
    free = {p for p, state in states.items() if p in releases and releases[p].lifts(state.quarantine, table_uuid)}
    return {p: replace(state, quarantine=None) if p in free else state for p, state in states.items()}


def failed_name(round_id: str, unit: int, kind: str, now_ms: int) -> str:
    """Return the name of a failed unit's branch. A repeated try has the same name, and replaces the branch."""
    return f"{FAILED_PREFIX}{round_id}_{kind}{unit}_{now_ms // 1000}"


def kept_until_ms(branch: str, retention_ms: int) -> int | None:
    """Return when the branch may be dropped (Unix ms); None if its name is not one that `failed_name` returns."""
    own = _OWN_NAME.fullmatch(branch)
    return int(own[1]) * 1000 + retention_ms if own else None


def past_their_time(branches: Iterable[str], retention_ms: int, now_ms: int) -> list[str]:
    """Return the failed branches that may be dropped."""
    ends = ((name, kept_until_ms(name, retention_ms)) for name in branches)
    return sorted(name for name, end_ms in ends if end_ms is not None and now_ms >= end_ms)


def replaced(before: Mapping[int, PartitionState], after: Mapping[int, PartitionState]) -> set[str]:
    """Return the branches that a newer failed try of the same log replaces, and that no other log names."""
    former = {_branch(before[p]) for p, state in after.items() if p in before and _branch(state)}
    return former - {_branch(state) for state in {**before, **after}.values()} - {""}


def _branch(state: PartitionState) -> str:
    return state.quarantine.branch if state.quarantine else ""


@dataclass(frozen=True, slots=True)
class KeptBranch:
    """The branch of a log's last failed try, until when it is kept (Unix ms), and how to read it: by command, or in
    Spark SQL."""

    name: str
    until_ms: int
    command: str
    sql: str


def kept_branch(
    state: PartitionState, partition: int, topic: Topic, catalog: str, branches: Iterable[str]
) -> KeptBranch | None:
    """Return the branch of the log's last failed try; None if it is not among `branches`, those of the table.

    The name appears in commands to copy, and another writer may have put it into the table. So it must be one that
    `failed_name` returns.
    """
    name = _branch(state)
    until_ms = kept_until_ms(name, topic.config.cleantail_failed_branch_retention_ms)
    if until_ms is None or name not in branches:
        return None
    command = f"cleantail read {topic.topic} --partition {partition} --as-of {name}"
    sql = f"SELECT * FROM {catalog}.{topic.table} VERSION AS OF '{name}' WHERE `partition` = {partition}"
    return KeptBranch(name, until_ms, command, sql)

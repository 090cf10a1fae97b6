"""Releases: a person's word that a log is out of quarantine, so that it can be compacted (semantics.md 1.3). Pure.

1. The word is kept beside the table, as readers' positions are (module cleantail.lake.runs.release_properties). It
   needs no commit to the table, whose state keeps the quarantine until a round ends it (cleantail.log.round_state).
2. It is for one quarantine of one table. The log counts as released for as long as its state has that very quarantine,
   whatever else changes.
3. Another failed try makes another quarantine: it begins later, or counts one attempt more, or is tried again at
   another time. The word says nothing about that one, nor about another table of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cleantail.log.partition_state import PartitionState, Quarantine


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
NO_RELEASES: Releases = {}


def lifted(states: Mapping[int, PartitionState], releases: Releases, table_uuid: str) -> dict[int, PartitionState]:
    """Returns the states as they count: without the quarantines that a person has lifted."""
    free = {p for p, word in releases.items() if p in states and word.lifts(states[p].quarantine, table_uuid)}
    return {p: replace(state, quarantine=None) if p in free else state for p, state in states.items()}

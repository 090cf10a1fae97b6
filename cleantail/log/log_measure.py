"""Says what a check counts in one log of a round: violations of the rules, records, and numbers of the log's next
state. Pure.

1. `records_in` and `records_out` are all records of the log, also those above the round's end. `deleted` is reason ->
   records that the round removes. `tombstones_in` and `tombstones_out` are those of the records with a null value, as
   far as the round had to look.
2. `records_read` and `records_kept` are the records in [log start, end) before and after, `map_records` those in
   [first dirty, end), and `map_keys` their distinct keys: what Kafka counts of a round (semantics.md 1.7). None where a
   version before 0.1 did not count them.
3. `duplicate_keys` to `imbalance` count violations of the rule of that name (cleantail.log.rules). A rule is broken by
   too few records as by too many, so `violations` has no sign.
4. `malformed_versions` and `future_timestamps` count dirty records whose version does not count (semantics.md 2).
   `first_contradiction` says in words which is the lowest offset with two different records (semantics.md 3.5).
5. `horizons`, `head_tombstones`, `guards` and `proven_ms` go into the state of the log when the round is published, in
   the commit that changes the data (semantics.md 3.2, 3.3; cleantail.log.partition_state.PartitionState).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cleantail.log.partition_state import Horizon


@dataclass(frozen=True, slots=True)
class LogMeasure:
    """Holds the measures of one log: `_in` counts what the round read, `_out` what is on the branch that it wrote. The
    numbers are those of the module docstring."""

    partition: int
    # 1. all records, and those that go
    records_in: int = 0
    records_out: int = 0
    tombstones_in: int = 0
    tombstones_out: int = 0
    deleted: Mapping[str, int] = field(default_factory=dict)
    # 2. the records that the round looked at, as Kafka counts them
    records_read: int | None = None
    records_kept: int | None = None
    map_records: int | None = None
    map_keys: int | None = None
    # 3. violations of the rules
    duplicate_keys: int = 0
    missing_winners: int = 0
    foreign_records: int = 0
    data_files_changed: int = 0
    head_changed: int = 0
    early_tombstones: int = 0
    overdue_tombstones: int = 0
    invalid_left: int = 0
    resurrected: int = 0
    contradicting_offsets: int = 0
    gone_at_source_left: int = 0
    imbalance: int = 0
    # 4. what is wrong with records that came in
    malformed_versions: int = 0
    future_timestamps: int = 0
    first_contradiction: str = ""
    # 5. the log's next state
    horizons: tuple[Horizon, ...] = ()
    head_tombstones: int = 0
    guards: int = 0
    proven_ms: int | None = None

    @property
    def removed(self) -> int:
        """Returns how many records the round removes from the log, whatever the reason."""
        return sum(self.deleted.values())

    def violations(self, rules: Iterable[str]) -> dict[str, int]:
        """Returns rule -> how often the log breaks it; none of these numbers is below 0."""
        return {rule: abs(getattr(self, rule)) for rule in rules}

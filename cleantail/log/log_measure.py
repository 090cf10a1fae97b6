"""What a check has counted in one log of a round: violations of the rules, records, and the next state's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cleantail.log.partition_state import Horizon


@dataclass(frozen=True, slots=True)
class LogMeasure:
    """The measures of one log, by what the round has read (in) and by its branch (out).

    1. A field named as a rule of cleantail.log.rules counts the violations of that rule; the meaning is told there.
    2. `records_in`, `records_out`: all records of the log, its head too. `tombstones_in`, `tombstones_out`: of them
       those with a null value, as far as the round had to look at them. `deleted`: reason -> records that it removes.
    3. `records_read`, `records_kept`: records in [log start, end) before and after; `map_records`: those in [first
       dirty, end); `map_keys`: their distinct keys. None where a version before 0.1 did not count them.
    4. `horizons`, `head_tombstones`, `guards`, `proven_ms` go into the state of the log when the round is published
       (cleantail.log.partition_state.PartitionState).
    5. `first_contradiction`: the lowest offset that has two different records, in words; empty where there is none.
    """

    partition: int
    records_in: int = 0
    records_out: int = 0
    tombstones_in: int = 0
    tombstones_out: int = 0
    deleted: Mapping[str, int] = field(default_factory=dict)
    records_read: int | None = None
    records_kept: int | None = None
    map_records: int | None = None
    map_keys: int | None = None

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
    imbalance: int = 0
    malformed_versions: int = 0
    future_timestamps: int = 0
    first_contradiction: str = ""

    horizons: tuple[Horizon, ...] = ()
    head_tombstones: int = 0
    guards: int = 0
    proven_ms: int | None = None

    @property
    def removed(self) -> int:
        """Records that the round removes from the log, whatever the reason."""
        return sum(self.deleted.values())

    def violations(self, rules: Iterable[str]) -> dict[str, int]:
        """Rule -> how often the log breaks it."""
        return {rule: getattr(self, rule) for rule in rules}

"""Says what is known of a topic's past, and what a policy makes of it: values alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cleantail.log.segments import DataFile

DAY_MS = 86_400_000


class Basis(StrEnum):
    """Says how a number is known."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Arrival:
    """Describes a data file and when it was committed (Unix ms); what is older than the history arrived at its
    start."""

    at_ms: int
    file: DataFile


@dataclass(frozen=True, slots=True)
class ObservedRound:
    """Describes a round of one log that was published: the offsets that were dirty, and how many records it dropped."""

    partition: int
    at_ms: int
    first_dirty_offset: int
    end_offset: int
    dropped: int


@dataclass(frozen=True, slots=True)
class History:
    """Describes what is known of a topic from `start_ms` to `end_ms`; `rounds` may be older."""

    start_ms: int
    end_ms: int
    arrivals: tuple[Arrival, ...]
    rounds: tuple[ObservedRound, ...]

    @property
    def days(self) -> float:
        return (self.end_ms - self.start_ms) / DAY_MS

    @property
    def whole_days(self) -> int:
        """Returns how many whole days the history has. Rates a day are taken from these: a part of a day would not have
        the schedule's share of runs."""
        return (self.end_ms - self.start_ms) // DAY_MS

    @property
    def partitions(self) -> list[int]:
        return sorted({a.file.partition for a in self.arrivals})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Says what one policy does over a history.

    Rounds are compactions of one log, runs are ticks with any work; those of its last whole days are counted apart, for
    rates a day. `superseded` and `bytes_freed` are None where no round was ever observed. `read_bytes` sums the live
    bytes of the logs that rounds look at.
    """

    runs: int
    rounds: int
    superseded: int | None
    expired: int | None
    past_retention: int
    bytes_freed: int | None
    read_bytes: int
    basis: Basis
    whole_days_runs: int = 0
    whole_days_rounds: int = 0

    @property
    def dropped(self) -> int | None:
        if self.superseded is None or self.expired is None:
            return None
        return self.superseded + self.expired + self.past_retention

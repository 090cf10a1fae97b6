"""Says what compact, or expire, has done with a work unit: the result that it writes into the head of the unit's
branch.

check_quality reads it there. What the task hands on through Airflow's database everybody may have changed who may edit
the DAG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from cleantail.codec import Codec
from cleantail.errors import HeldError
from cleantail.log.work_units import WorkUnit

UNIT = "cleantail.unit"
"""Summary entry of the head of a round's branch: the staged unit, packed."""
EXPIRED = "expired"
"""The reason for which an expiry removes records: tombstones past their horizon."""
CLEAR = "Clear compact and what follows it"


@dataclass(frozen=True, slots=True)
class KeylessLog:
    """Describes a log from which nothing was removed, since it holds records without a key (`cleantail.keyless.policy:
    fail`)."""

    records: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Describes a reader that has not read tombstones which an expiry removes, since the cap of its hold was reached.

    `at_ms`: when it last told its position, Unix ms; `gone_to`: the highest offset that went, None where an earlier
    version did not write it down.
    """

    topic: str
    name: str
    partition: int
    offset: int
    at_ms: int
    gone_to: int | None = None


@dataclass(frozen=True, slots=True)
class UnitCounts:
    """Counts by partition. `deleted`: reason -> partition -> records. `hidden_bytes`: of the records that a compaction
    hides, by their files' mean; `saved_bytes`: with those past retention. `plan`: how the records were matched.
    `keyless`: records without a key, and the offset of the first, of each log that is held back for them.
    `misread`: why a log is blocked of which Spark's Iceberg reader and Cleantail's see different records."""

    deleted: Mapping[str, Mapping[int, int]]
    hidden_bytes: Mapping[int, int] = field(default_factory=dict)
    saved_bytes: Mapping[int, int] = field(default_factory=dict)
    plan: str = ""
    keyless: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    misread: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedUnit(WorkUnit):
    """Describes a work unit with what was done on its branch.

    `began_ms`: Unix ms of the wall clock; `clean_ms`: how long it took; `map_slots`: keys for which the offset map has
    room (semantics.md 1.4.1). These are None where an earlier version did not write them down, or where they have no
    meaning for the kind of round. `head_snapshot_id`: the branch's snapshot that was checked; 0 until it was.
    """

    counts: UnitCounts
    began_ms: int | None = None
    clean_ms: int | None = None
    map_slots: int | None = None
    left_behind: tuple[LeftBehind, ...] = ()
    head_snapshot_id: int = 0

    @classmethod
    def of(cls, unit: WorkUnit, counts: UnitCounts, **done: Any) -> StagedUnit:
        """Returns the unit with what was done; `done`: fields of this class by name."""
        return cls(**{f.name: getattr(unit, f.name) for f in fields(WorkUnit)}, counts=counts, **done)

    @property
    def ok(self) -> bool:
        """Returns True, since a unit that was staged ended well: whether its logs are right is the check's to say."""
        return True

    @property
    def keyless_logs(self) -> dict[int, KeylessLog]:
        """Returns partition -> why nothing was removed from it. An expiry has none."""
        return {p: KeylessLog(*log) for p, log in self.counts.keyless.items()}


STAGED_UNIT_JSON: Codec[StagedUnit] = Codec(StagedUnit)


def staged_unit(text: str | None, branch: str) -> StagedUnit:
    """Parses the unit that a branch's head says it is of. Raises HeldError where it says none, or one of another
    branch, and TableError for a text that is no packed unit."""
    if not text:
        raise HeldError(
            f"branch {branch} does not say which work unit it is of: an earlier version made it, or no round did. "
            f"Nothing was checked. {CLEAR}"
        )
    unit = STAGED_UNIT_JSON.unpacked(text, f"{UNIT} of branch {branch}")
    if unit.branch != branch:
        raise HeldError(f"branch {branch} has the work unit of branch {unit.branch}. Nothing was checked. {CLEAR}")
    return unit


def require_one_round(units: Sequence[WorkUnit], round_id: str) -> None:
    """Raises HeldError unless the units are all of this round, and no log is in two of them."""
    rounds = sorted({unit.round for unit in units})
    if rounds != [round_id]:
        raise HeldError(
            f"the units to check are of round {', '.join(rounds) or 'none'}, and the run's is {round_id}: somebody has "
            f"changed an XCom. Nothing was checked. {CLEAR}"
        )
    logs = Counter(work.partition for unit in units for work in unit.partitions)
    if twice := sorted(p for p, count in logs.items() if count > 1):
        raise HeldError(
            f"partitions {twice} are in more than one unit of round {round_id}. Nothing was checked. {CLEAR}"
        )


def keyless_logs(units: Iterable[StagedUnit]) -> dict[int, KeylessLog]:
    """Returns partition -> why nothing was removed from it, of all units of a round."""
    return {p: log for unit in units for p, log in unit.keyless_logs.items()}


def misread_logs(units: Iterable[StagedUnit]) -> dict[int, str]:
    """Return partition -> why a log is blocked that two readers see differently, of all units of a round."""
    return {p: reason for unit in units for p, reason in unit.counts.misread.items()}

"""The ledger of a log through random rounds and sweeps, against a horizon kept with every single tombstone.

What check_quality, publish and evaluate do with the kernel's functions is done here without tables: late records,
rounds that end early (budget, lag), readers' holds, another delete.retention.ms for each round.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from cleantail.log.horizons import as_due, due_spans, swept
from cleantail.log.partition_state import (
    Horizon,
    PartitionState,
    spans_with_tombstones,
    with_late_tombstones,
    with_round,
    without_swept,
)
from cleantail.log.round_state import after_round, late_spans
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork
from tests.cleantail.kernel_builders import horizon_of

BEYOND = 1 << 62


@dataclass
class Tombstone:
    """`sequence`: of the file that it came in. `horizon`: of the first round that passed over it."""

    sequence: int
    horizon: int | None = None
    round: int = 0


@dataclass
class World:
    """A log of records, some of them tombstones, with its state as the kernel keeps it."""

    draw: random.Random
    partial: bool
    state: PartitionState = field(default_factory=PartitionState)
    tombstones: dict[int, Tombstone] = field(default_factory=dict)
    unseen: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    end: int = 0
    now: int = 0
    step: int = 0

    def append(self) -> None:
        self.step += 1
        for _ in range(self.draw.choice([0, 1, 2, 4])):
            free = [o for o in range(self.end) if o not in self.used]
            late = free and self.draw.random() < 0.4
            offset = self.draw.choice(free) if late else self.end + self.draw.choice([0, 0, 2])
            self.used.add(offset)
            self.unseen.add(offset)
            self.end = max(self.end, offset + 1)
            if self.draw.random() < 0.7:
                self.tombstones[offset] = Tombstone(self.step)

    @property
    def clean_point(self) -> int:
        if self.state.checkpoint is None:
            return 0
        return min({self.state.checkpoint, *(o for o in self.unseen if o < self.state.checkpoint)})

    def round(self) -> int | None:
        """As check_quality and publish do. Returns from where on the horizons are this run's, where they are due."""
        first = self.clean_point
        if first >= self.end:
            return None
        end = self.draw.randint(first + 1, self.end) if self.partial and self.draw.random() < 0.5 else self.end
        retention = self.draw.choice([1000, 1000, 1, 200, 5000])
        work = PartitionWork(0, first, end, 0, self.end)
        spans = late_spans(work, self.state)
        late = [
            o
            for o, t in sorted(self.tombstones.items())
            if any(low <= o < high and t.sequence > known for low, high, known in spans)
        ]
        ledger = with_late_tombstones(
            with_round(self.state.horizons, end, self.now + retention), late, self.now + retention
        )
        alive = self._counted([*spans_with_tombstones(self.state.horizons, first), (first, BEYOND)], ledger)
        assert sum(alive.values()) == len(self.tombstones)
        horizons = tuple(replace(h, tombstones=alive[h.end_offset]) for h in ledger)
        measure = LogMeasure(0, horizons=horizons, head_tombstones=alive[None])
        self.state = after_round(self.state, work, measure, self.step, self.now)
        self.unseen.clear()
        for offset, tombstone in self.tombstones.items():
            if offset < end and tombstone.horizon is None:
                tombstone.horizon, tombstone.round = self.now + retention, self.step
        return None if retention else first

    def sweep(self, fresh_from: int | None) -> None:
        hold = self.draw.choice([None, None, self.draw.randint(0, self.end)])
        clean, cap = self.clean_point, self.draw.choice([0, 700])
        work = PartitionWork(0, clean, clean, 0, self.end, hold_offset=hold, hold_cap_ms=cap, fresh_from=fresh_from)
        spans = due_spans(self.state.horizons, clean, self.now, hold, cap, fresh_from)
        gone = {o for o in self.tombstones if any(low <= o < high for low, high in spans)}
        assert gone == {o for o, t in self.tombstones.items() if o < clean and self._is_due(o, t, hold, cap)}
        due = as_due(work, self.state.horizons, self.now)
        if spans:
            assert gone == {o for o in self.tombstones if o < clean and self._checked(o, due, hold, cap)}
        ledger = swept(work, self.state.horizons, self.now)
        for offset in gone:
            del self.tombstones[offset]
        alive = self._counted([(0, BEYOND)], ledger)
        self.state = replace(
            self.state, horizons=without_swept(tuple(replace(h, tombstones=alive[h.end_offset]) for h in ledger))
        )

    def _is_due(self, offset: int, tombstone: Tombstone, hold: int | None, cap: int) -> bool:
        """semantics.md 1.5 and 3.9, for one tombstone."""
        if tombstone.horizon is None or tombstone.round == self.step:
            return False
        held = hold is not None and offset >= hold
        return self.now >= tombstone.horizon + (cap if held else 0)

    def _checked(self, offset: int, due: tuple[Horizon, ...], hold: int | None, cap: int) -> bool:
        """What the check of the expiry takes for due."""
        entry = horizon_of(due, offset)
        held = hold is not None and offset >= hold
        return entry is not None and entry.horizon_ms + (cap if held else 0) <= self.now

    def _counted(self, spans: list[tuple[int, int]], ledger: tuple[Horizon, ...]) -> Counter[int | None]:
        found: Counter[int | None] = Counter()
        for offset in self.tombstones:
            if any(low <= offset < high for low, high in spans):
                entry = horizon_of(ledger, offset)
                found[entry.end_offset if entry else None] += 1
        return found


@pytest.mark.parametrize("partial", [False, True], ids=["whole rounds", "rounds that end early"])
@pytest.mark.parametrize("waits", [False, True], ids=["nothing late waits at a sweep", "late records wait"])
def test_every_tombstone_goes_at_its_own_horizon_whatever_the_rounds(partial, waits):
    for seed in range(400):
        draw = random.Random(seed)
        world = World(draw, partial)
        for _ in range(draw.randint(2, 8)):
            world.append()
            world.now += draw.choice([1, 500, 1000, 1001, 3000])
            fresh = world.round() if not waits or draw.random() < 0.6 else None
            if world.state.checkpoint is not None:
                world.sweep(fresh)

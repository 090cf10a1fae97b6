"""What a run of the benchmarks was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.dataset import Shape, forget
from benchmarks.fresh_process import in_fresh_process
from benchmarks.lake import Lake


@dataclass(frozen=True, slots=True)
class Options:
    """`keep`: data sets stay in the lake's directory for the next run. `topics` is for many_topics only."""

    lake: Lake
    records: int
    repetitions: int
    topics: int
    keep: bool

    def forget(self, shape: Shape) -> None:
        """Gives the space back, where nobody asked to keep it."""
        if not self.keep:
            in_fresh_process(forget, self.lake, shape)

    @property
    def text(self) -> str:
        return f"Medians of {self.repetitions} repetitions after a first one."

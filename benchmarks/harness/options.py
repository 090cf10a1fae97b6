"""The options of a run of the benchmarks, from the command line."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness.dataset import forget
from benchmarks.harness.fresh_process import in_fresh_process
from benchmarks.harness.lake import Lake
from benchmarks.harness.shape import Shape


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. `keep`: the data sets stay in the lake's directory for the next run. `topics`: for many_topics
    and page. `runs`, the `minutes` between them, and the `policies`: for age."""

    lake: Lake
    records: int
    repetitions: int
    topics: int
    runs: int
    minutes: int
    policies: tuple[str, ...]
    keep: bool

    def forget(self, shape: Shape) -> None:
        """Delete the data set, unless `keep` is set."""
        if not self.keep:
            in_fresh_process(forget, self.lake, shape)

    @property
    def text(self) -> str:
        return f"Medians of {self.repetitions} repetitions after a first one."

"""The systems of `compare` on a log that was never cleaned: all records are dirty, and half of them are updates."""

from __future__ import annotations

from benchmarks.harness.options import Options
from benchmarks.harness.report import Table
from benchmarks.harness.shape import Shape
from benchmarks.rounds.compare import compared


def run(options: Options) -> Table:
    return compared("first_clean", Shape(options.records, 0.5, first_clean=True), options)

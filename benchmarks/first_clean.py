"""The systems of `compare` on a log that was never cleaned: everything is dirty, half of the records are updates."""

from __future__ import annotations

from benchmarks.compare import compared
from benchmarks.options import Options
from benchmarks.report import Table
from benchmarks.shape import Shape


def run(options: Options) -> Table:
    return compared("first_clean", Shape(options.records, 0.5, first_clean=True), options)

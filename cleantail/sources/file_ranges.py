"""Says which lines a task reads: ranges of bytes of a large file, or several small files. Pure.

A .gz file can only be read from its start, so it is one range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cleantail.sources.kcat import BLANK_LINES

RANGE_BYTES_MIN = 64 << 20
"""The size of the smallest range of a file that is cut: a smaller range is not worth data files of its own."""
TASKS_PER_CORE = 1
"""Each task writes files of its own: more tasks would make more and smaller ones."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Names the lines of a file that begin in bytes [start, end); where `end` is None, all lines from `start` on.

    Up to `blank_lines` blank lines are accepted without counting those of the whole file.
    """

    file: Path
    start: int = 0
    end: int | None = None
    blank_lines: int = BLANK_LINES


def file_tasks(sizes: Mapping[Path, int], cores: int) -> tuple[tuple[FileRange, ...], ...]:
    """Returns the ranges of each task, in the order of the files. `sizes`: bytes on the disk."""
    share = max(RANGE_BYTES_MIN, -(-sum(sizes.values()) // (cores * TASKS_PER_CORE)))
    tasks: list[list[FileRange]] = []
    filled = 0
    for file, size in sizes.items():
        pieces = 1 if file.name.endswith(".gz") else max(1, round(size / share))
        for piece in _pieces(file, size, pieces):
            if not tasks or filled + size // pieces > share:
                tasks.append([])
                filled = 0
            tasks[-1].append(piece)
            filled += size // pieces
    return tuple(map(tuple, tasks))


def _pieces(file: Path, size: int, pieces: int) -> list[FileRange]:
    cuts = [size * number // pieces for number in range(pieces)]
    ends = [*cuts[1:], None]
    return [FileRange(file, start, end, BLANK_LINES // pieces) for start, end in zip(cuts, ends, strict=True)]

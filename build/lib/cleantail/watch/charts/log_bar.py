"""A log as a bar: coordinates only, the markup is elsewhere. Charts over time are in history_charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleantail.log.log_state import LogState

SECTIONS = ("clean", "cleanable", "uncleanable", "active")
SLIVER = 3.0
"""The least width of a section with records: nobody could point at a thinner one."""
MOST_MARKS = 200


@dataclass(frozen=True, slots=True)
class Section:
    """Describes a part `[start, end)` of a log, by offset, with its live bytes and its coordinates on the bar."""

    kind: str
    start: int
    end: int
    bytes: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Describes a log drawn from left to right; `marks` are the x of segment boundaries."""

    sections: tuple[Section, ...]
    marks: tuple[float, ...]


def log_bar(log: LogState, width: float) -> Bar:
    """Returns the log's sections over `width`; one too thin to be seen is widened at the cost of the widest."""
    spans = _spans(log)
    widths = _widths([end - start for _, start, end, _ in spans], width)
    starts = [sum(widths[:i]) for i in range(len(widths))]
    sections = tuple(Section(*span, x, w) for span, x, w in zip(spans, starts, widths, strict=True))
    bases = [s.base_offset for s in log.segments[1:]]
    return Bar(sections, tuple(_x_of(b, sections) for b in bases) if len(bases) <= MOST_MARKS else ())


def _spans(log: LogState) -> list[tuple[str, int, int, int]]:
    """Returns (kind, start, end, bytes) of the sections that have offsets. The active segment is cut off the
    uncleanable section."""
    end = log.log_end_offset
    active = (
        end if log.active_base_offset is None else min(max(log.active_base_offset, log.first_uncleanable_offset), end)
    )
    active_bytes = log.segments[-1].bytes if log.segments and active < end else 0
    bounds = (log.log_start_offset, log.first_dirty_offset, log.first_uncleanable_offset, active, end)
    sizes = (log.clean_bytes, log.cleanable_bytes, max(log.uncleanable_bytes - active_bytes, 0), active_bytes)
    spans = zip(SECTIONS, bounds[:-1], bounds[1:], sizes, strict=True)
    return [(kind, start, stop, count) for kind, start, stop, count in spans if start < stop]


def _widths(lengths: Sequence[int], width: float) -> list[float]:
    if not lengths:
        return []
    widths = [max(length / sum(lengths) * width, SLIVER) for length in lengths]
    widths[widths.index(max(widths))] -= sum(widths) - width
    return widths


def _x_of(offset: int, sections: Sequence[Section]) -> float:
    """Returns the coordinate of an offset on the bar."""
    for section in sections:
        if section.start <= offset < section.end:
            return section.x + (offset - section.start) / (section.end - section.start) * section.width
    return 0.0

"""Numbers as shapes: a log as a bar, sizes as a plot, rounds as columns. Coordinates only; the markup is elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleantail.history import SizePoint
from cleantail.log_state import LogState
from cleantail.past_rounds import Round

SECTIONS = ("clean", "cleanable", "uncleanable", "active")
SLIVER = 3.0
"""A section with records is never drawn thinner than this, or nobody could point at it."""
MOST_MARKS = 200


@dataclass(frozen=True, slots=True)
class Section:
    """A part `[start, end)` of a log, by offset, with its live bytes and its place on the bar."""

    kind: str
    start: int
    end: int
    bytes: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A log drawn from left to right; `marks` are the x of segment boundaries."""

    sections: tuple[Section, ...]
    marks: tuple[float, ...]


def log_bar(log: LogState, width: float) -> Bar:
    """The log's sections over `width`; one too thin to be seen is widened at the cost of the widest."""
    spans = _spans(log)
    widths = _widths([end - start for _, start, end, _ in spans], width)
    starts = [sum(widths[:i]) for i in range(len(widths))]
    sections = tuple(Section(*span, x, w) for span, x, w in zip(spans, starts, widths, strict=True))
    bases = [s.base_offset for s in log.segments[1:]]
    return Bar(sections, tuple(_x_of(b, sections) for b in bases) if len(bases) <= MOST_MARKS else ())


def _spans(log: LogState) -> list[tuple[str, int, int, int]]:
    """(kind, start, end, bytes) of the sections that have offsets. The active segment is cut off the uncleanable."""
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
    for section in sections:
        if section.start <= offset < section.end:
            return section.x + (offset - section.start) / (section.end - section.start) * section.width
    return 0.0


@dataclass(frozen=True, slots=True)
class Plot:
    """Two step lines as SVG points, oldest left; y grows downwards from 0 (the top) to `height` (no bytes)."""

    width: int
    height: int
    files: str
    live: str
    dots: tuple[tuple[float, float, SizePoint], ...]
    most_bytes: int
    first_ms: int
    last_ms: int


def size_plot(points: Sequence[SizePoint], width: int, height: int) -> Plot | None:
    """The table's size over time; None for a table without a history."""
    if not points:
        return None
    ordered = sorted(points, key=lambda p: p.at_ms)
    first, last = ordered[0].at_ms, ordered[-1].at_ms
    most = max(max(p.file_bytes, p.live_bytes) for p in ordered) or 1
    xs = [(p.at_ms - first) / (last - first) * width if last > first else float(width) for p in ordered]
    files = [height - p.file_bytes / most * height for p in ordered]
    live = [height - p.live_bytes / most * height for p in ordered]
    dots = tuple(zip(xs, files, ordered, strict=True))
    return Plot(width, height, _steps(xs, files), _steps(xs, live), dots, most, first, last)


def _steps(xs: Sequence[float], ys: Sequence[float]) -> str:
    """A size holds until the next commit: each point is reached horizontally."""
    places = [(xs[0], ys[0])]
    for x, y in zip(xs[1:], ys[1:], strict=True):
        places += [(x, places[-1][1]), (x, y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


@dataclass(frozen=True, slots=True)
class Column:
    """A round as a column: (reason, y, height) of what it dropped, stacked from the bottom."""

    round: Round
    x: float
    width: float
    parts: tuple[tuple[str, float, float], ...]


def round_columns(rounds: Sequence[Round], width: float, height: float) -> tuple[Column, ...]:
    """The rounds from left (oldest) to right; the highest column is the round that dropped most."""
    if not rounds:
        return ()
    pitch = min(width / len(rounds), 40.0)
    most = max(r.dropped for r in rounds) or 1
    return tuple(
        Column(r, i * pitch, pitch * 0.8, _stack(r, height / most, height))
        for i, r in enumerate(sorted(rounds, key=lambda r: r.checked_at_ms))
    )


def _stack(round_: Round, scale: float, height: float) -> tuple[tuple[str, float, float], ...]:
    parts: list[tuple[str, float, float]] = []
    top = height
    for reason, count in round_.deleted.items():
        if count:
            top -= count * scale
            parts.append((reason, top, count * scale))
    return tuple(parts)

"""Charts of a topic as coordinates: its size over time, dropped records and durations of rounds, and each log as a bar.

Pure. The markup is in the page's templates. Ticks of an axis are round numbers of the displayed unit, few enough that
their labels do not touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cleantail.human import duration, size
from cleantail.log.log_state import LogState
from cleantail.rounds.commit_summaries import SizePoint
from cleantail.rounds.past_rounds import Round

MOST_VALUES, MOST_MOMENTS = 4, 7
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_TIME_STEPS_MS = (
    *(n * _SECOND for n in (1, 2, 5, 10, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 30)),
    *(n * _HOUR for n in (1, 2, 4, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 30, 90, 365)),
)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis at the coordinate `at`."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from 0 to `most` on a height that begins at `top` of the drawing; y grows downwards."""

    most: float
    top: float
    height: float
    ticks: tuple[Tick, ...]

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - value / self.most)


def scale(most: float, top: float, height: float, label: Callable[[int], str]) -> Scale:
    """Return an axis from 0 to a round number at or above `most`. `label` is size, count or duration."""
    step = _step(most, label)
    count = max(-(-int(most) // step), 1)
    end = step * count
    ticks = tuple(Tick(top + height * (1 - i / count), label(i * step) if i else "0") for i in range(count + 1))
    return Scale(end, top, height, ticks)


def _step(most: float, label: Callable[[int], str]) -> int:
    """Return the distance of two ticks: 1, 2 or 5 times a power of ten of the unit of `label`. The first distance
    with few ticks is taken."""
    units: tuple[int, ...] = (1,)
    if label is size:
        units = (1, 1 << 10, 1 << 20, 1 << 30)
    elif label is duration:
        units = (1, _SECOND, _MINUTE, _HOUR, _DAY)
    unit = max(unit for unit in units if unit == 1 or unit <= most)
    step = 1
    while True:
        for factor in (1, 2, 5):
            if most <= step * factor * unit * MOST_VALUES:
                return step * factor * unit
        step *= 10


def moments(first_ms: int, last_ms: int, left: float, width: float) -> tuple[Tick, ...]:
    """Return ticks at round moments (UTC). `first_ms` is at `left` of the drawing, `last_ms` at `left + width`."""
    span = last_ms - first_ms
    if span <= 0:
        return ()
    step = next((s for s in _TIME_STEPS_MS if span <= s * MOST_MOMENTS), None) or -(-span // MOST_MOMENTS)
    begin = -(-first_ms // step) * step
    return tuple(
        Tick(left + (at - first_ms) / span * width, moment(at, step)) for at in range(begin, last_ms + 1, step)
    )


def moment(at_ms: int, step_ms: int = _MINUTE) -> str:
    """Return a moment in UTC, as precise as the step between two of them requires."""
    form = "%H:%M:%S" if step_ms < _MINUTE else "%b %d %H:%M" if step_ms < _DAY else "%Y-%m-%d"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):  # no calendar goes that far
        return str(at_ms)


WIDEST_COLUMN = 60.0
LABEL_WIDTH = 110.0
"""Width of a moment's label, with the distance to the next."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawing, and the margins around its chart for labels of the axes."""

    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float

    @property
    def inner_width(self) -> float:
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> float:
        return self.height - self.top - self.bottom

    @property
    def base(self) -> float:
        """The y of the time axis."""
        return self.height - self.bottom

    @property
    def end(self) -> float:
        """The x where the chart ends."""
        return self.width - self.right


WIDE = Frame(1000, 220, 80, 20, 48, 30)
SMALL = Frame(440, 150, 66, 20, 44, 26)


@dataclass(frozen=True, slots=True)
class SizeChart:
    """Two step lines, oldest left: bytes of files, and live bytes. A single point is one of `dots`."""

    frame: Frame
    files: str
    live: str
    dots: tuple[tuple[float, float, SizePoint], ...]
    values: Scale
    moments: tuple[Tick, ...]


def size_chart(points: Sequence[SizePoint], frame: Frame = WIDE) -> SizeChart | None:
    """Return the table's size over its kept snapshots, or None without points."""
    if not points:
        return None
    ordered = sorted(points, key=lambda p: p.at_ms)
    first, last = ordered[0].at_ms, ordered[-1].at_ms
    values = scale(max(max(p.file_bytes, p.live_bytes) for p in ordered), frame.top, frame.inner_height, size)
    xs = [frame.left + (p.at_ms - first) / max(last - first, 1) * frame.inner_width for p in ordered]
    files = [values.y(p.file_bytes) for p in ordered]
    live = [values.y(p.live_bytes) for p in ordered]
    dots = tuple(zip(xs, files, ordered, strict=True))
    ticks = moments(first, last, frame.left, frame.inner_width)
    return SizeChart(frame, _steps(xs, files), _steps(xs, live), dots, values, ticks)


def _steps(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Return the points of a step line. A size is valid until the next commit, so each point is reached
    horizontally."""
    corners = [(xs[0], ys[0])]
    for x, y in zip(xs[1:], ys[1:], strict=True):
        corners += [(x, corners[-1][1]), (x, y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """A piece of a column, for `number` records of one `kind`."""

    kind: str
    number: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """A round as a column, stacked from the bottom. `label` is written above it if there is room."""

    round: Round
    x: float
    width: float
    parts: tuple[ColumnPart, ...]
    label: str

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float | None:
        """The y where the column ends, or None for an empty column."""
        return min((part.y for part in self.parts), default=None)


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """Rounds as columns, oldest left, with the moments of some of them."""

    frame: Frame
    columns: tuple[Column, ...]
    values: Scale
    moments: tuple[Tick, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.kind for column in self.columns for part in column.parts))


@dataclass(frozen=True, slots=True)
class PartitionChart:
    """One partition over its published rounds: records that were kept and dropped."""

    partition: int
    records: int
    chart: ColumnChart


def count(number: int) -> str:
    """Return a count as the page writes it: 1,234,567."""
    return f"{number:,}"


def dropped_chart(rounds: Sequence[Round], frame: Frame = WIDE) -> ColumnChart | None:
    """Return the records that each round dropped, by reason, or None without rounds."""
    return _columns([(r, dict(r.deleted)) for r in rounds], frame, count)


def duration_chart(rounds: Sequence[Round], frame: Frame = WIDE) -> ColumnChart | None:
    """Return the duration of each round until the end of its check, or None if no round recorded its start."""
    timed = [(r, {"duration": r.duration_ms}) for r in rounds if r.duration_ms is not None]
    return _columns(timed, frame, duration)


def partition_charts(rounds: Sequence[Round], frame: Frame = SMALL) -> list[PartitionChart]:
    """Return a chart for each partition that has a published round."""
    stacks: dict[int, list[tuple[Round, dict[str, int]]]] = {}
    for round_ in sorted(rounds, key=lambda r: r.checked_at_ms):
        for log in round_.published_logs:
            stack = {"kept": log.records_out, "dropped": sum(log.deleted.values())}
            stacks.setdefault(log.partition, []).append((round_, stack))
    charts = ((p, stack[-1][1]["kept"], _columns(stack, frame, count)) for p, stack in sorted(stacks.items()))
    return [PartitionChart(p, records, chart) for p, records, chart in charts if chart]


def _columns(
    stacks: Sequence[tuple[Round, dict[str, int]]], frame: Frame, write: Callable[[int], str]
) -> ColumnChart | None:
    if not stacks:
        return None
    ordered = sorted(stacks, key=lambda stack: stack[0].checked_at_ms)
    values = scale(max(sum(stack.values()) for _, stack in ordered), frame.top, frame.inner_height, write)
    pitch = frame.inner_width / len(ordered)
    width = min(pitch * 0.8, WIDEST_COLUMN)
    columns = tuple(
        Column(
            r, frame.left + (i + 0.5) * pitch - width / 2, width, _stacked(stack, values), write(sum(stack.values()))
        )
        for i, (r, stack) in enumerate(ordered)
    )
    return ColumnChart(frame, columns, values, _some_moments(columns, frame))


def _stacked(stack: dict[str, int], values: Scale) -> tuple[ColumnPart, ...]:
    parts: list[ColumnPart] = []
    below = 0
    for kind, number in stack.items():
        if number:
            below += number
            top = values.y(below)
            parts.append(ColumnPart(kind, number, top, values.y(below - number) - top))
    return tuple(parts)


def _some_moments(columns: Sequence[Column], frame: Frame) -> tuple[Tick, ...]:
    """Return the times of as many rounds as fit without overlapping labels."""
    pitch = columns[1].x - columns[0].x if len(columns) > 1 else frame.inner_width
    every = -(-int(LABEL_WIDTH) // max(int(pitch), 1))
    return tuple(Tick(column.middle, moment(column.round.checked_at_ms)) for column in columns[::every])


SECTIONS = ("clean", "cleanable", "uncleanable", "active")
SLIVER = 3.0
"""Minimum width of a section with records, so that users can point at it."""
MOST_MARKS = 200


@dataclass(frozen=True, slots=True)
class Section:
    """A part `[start, end)` of a log, by offset, with its live bytes and its coordinates on the bar."""

    kind: str
    start: int
    end: int
    bytes: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A log from left to right; `marks` are the x of segment boundaries."""

    sections: tuple[Section, ...]
    marks: tuple[float, ...]


def log_bar(log: LogState, width: float) -> Bar:
    """Return the log's sections over `width`. A section that is too thin is widened at the cost of the widest."""
    spans = _spans(log)
    widths = _widths([end - start for _, start, end, _ in spans], width)
    starts = [sum(widths[:i]) for i in range(len(widths))]
    sections = tuple(Section(*span, x, w) for span, x, w in zip(spans, starts, widths, strict=True))
    bases = [s.base_offset for s in log.segments[1:]]
    return Bar(sections, tuple(_x_of(b, sections) for b in bases) if len(bases) <= MOST_MARKS else ())


def _spans(log: LogState) -> list[tuple[str, int, int, int]]:
    """Return (kind, start, end, bytes) of the sections that have offsets. The active segment is cut off the
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
    for section in sections:
        if section.start <= offset < section.end:
            return section.x + (offset - section.start) / (section.end - section.start) * section.width
    return 0.0

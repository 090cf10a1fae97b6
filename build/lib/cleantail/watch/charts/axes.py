"""Axes of charts: which values and moments are written beside them, and where. Pure.

A tick is a round number of the unit in which people read the value, and there are few enough that none touches another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cleantail.human import duration, size

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
    """Describes a mark on an axis: `at` is its coordinate, `label` what is written there."""

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
        """Returns the coordinate of a value."""
        return self.top + self.height * (1 - value / self.most)


def scale(most: float, top: float, height: float, label: Callable[[int], str]) -> Scale:
    """Returns an axis from 0 to a round number at or above `most`. `label` is size, count or duration."""
    step = _step(most, label)
    count = max(-(-int(most) // step), 1)
    end = step * count
    ticks = tuple(Tick(top + height * (1 - i / count), label(i * step)) for i in range(count + 1))
    return Scale(end, top, height, ticks)


def _step(most: float, label: Callable[[int], str]) -> int:
    """Returns the distance of two ticks: 1, 2 or 5 times a power of ten, of the unit in which `label` writes `most`;
    the first that needs few ticks."""
    unit = _unit(most, label)
    step = 1
    while True:
        for factor in (1, 2, 5):
            if most <= step * factor * unit * MOST_VALUES:
                return step * factor * unit
        step *= 10


def _unit(most: float, label: Callable[[int], str]) -> int:
    units: tuple[int, ...] = (1,)
    if label is size:
        units = (1, 1 << 10, 1 << 20, 1 << 30)
    elif label is duration:
        units = (1, _SECOND, _MINUTE, _HOUR, _DAY)
    return max(unit for unit in units if unit == 1 or unit <= most)


def moments(first_ms: int, last_ms: int, left: float, width: float) -> tuple[Tick, ...]:
    """Returns ticks at round moments (UTC) from `first_ms` to `last_ms`, which are `left` and `left + width` of the
    drawing."""
    span = last_ms - first_ms
    if span <= 0:
        return ()
    step = next((s for s in _TIME_STEPS_MS if span <= s * MOST_MOMENTS), None) or -(-span // MOST_MOMENTS)
    begin = -(-first_ms // step) * step
    return tuple(
        Tick(left + (at - first_ms) / span * width, moment(at, step)) for at in range(begin, last_ms + 1, step)
    )


def moment(at_ms: int, step_ms: int = _MINUTE) -> str:
    """Returns a moment in UTC, as finely as the steps between two of them ask for."""
    form = "%H:%M:%S" if step_ms < _MINUTE else "%b %d %H:%M" if step_ms < _DAY else "%Y-%m-%d"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):  # no calendar goes that far
        return str(at_ms)

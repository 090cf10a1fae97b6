"""When a schedule would have started runs: the moments of a cron line or preset between two times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

MOST_TICKS = 1_000
"""The longest list of moments, so that a history is replayed in seconds whatever its schedule. Of a longer list evenly
spaced moments are taken."""
_MOST_STARTS = 100_000
"""The number of moments after which a list ends, where the clock is centuries ahead."""
_PRESETS = {"@quarterly": "0 0 1 */3 *"}
"""Airflow's presets that the cron library does not know -> their cron lines."""


def run_times(schedule: str | None, start_ms: int, end_ms: int, appends_ms: Iterable[int]) -> list[int]:
    """Returns the moments of runs (Unix ms) in (start, end], ascending, at most MOST_TICKS.

    Without a schedule, or where the schedule has no moment in the interval, a run after each append stands for a
    person's.
    """
    times = _scheduled(schedule, start_ms, end_ms) if schedule and schedule != "@once" else []
    if not times:
        times = sorted({*appends_ms, end_ms})
    step = -(-len(times) // MOST_TICKS)
    return times[step - 1 :: step]


def run_before(schedule: str | None, now_ms: int) -> int | None:
    """Returns when (Unix ms) the run before the present one was to start, or None.

    The present run is that of the schedule's last moment up to `now_ms`, however long it waited to start. So the run
    before it is that of the last moment but one.
    """
    from croniter import croniter

    if not schedule or schedule == "@once":
        return None
    try:
        times = croniter(_PRESETS.get(schedule, schedule), datetime.fromtimestamp((now_ms + 1) / 1000, UTC))
        return [int(times.get_prev(float) * 1000) for _ in range(2)][1]
    except (ValueError, OverflowError, OSError):  # a clock that no calendar has, or too seldom a schedule
        return None


def _scheduled(schedule: str, start_ms: int, end_ms: int) -> list[int]:
    """Returns the moments (Unix ms) of a cron line or preset in (start, end]."""
    from croniter import croniter

    cron_times = croniter(_PRESETS.get(schedule, schedule), datetime.fromtimestamp(start_ms / 1000, UTC))
    times: list[int] = []
    while len(times) < _MOST_STARTS and (at_ms := int(cron_times.get_next(float) * 1000)) <= end_ms:
        times.append(at_ms)
    return times

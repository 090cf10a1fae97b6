"""Says whether a text is a schedule that Airflow understands: a preset or a cron line of five fields."""

from __future__ import annotations

import re
from datetime import UTC, datetime

PRESETS = ("@once", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_FIELDS = 5
_OF_CRON = re.compile(r"[0-9a-z*,/ -]+", re.IGNORECASE)
"""The characters of a cron line. Letters are for names of months and days, and for `L`, the last day; `#`, `?` and
`R(…)` are croniter's own."""


def is_schedule(text: str) -> bool:
    """Returns whether a text is a preset as `@daily`, or a cron line of lists, ranges, steps, and names of months and
    days, of which a next moment comes: there is no 31 April."""
    from croniter import CroniterError, croniter

    if text in PRESETS:
        return True
    if len(text.split(" ")) != _FIELDS or not _OF_CRON.fullmatch(text):
        return False
    try:
        croniter(text, datetime(2000, 1, 1, tzinfo=UTC)).get_next(float)
    except (CroniterError, ValueError):
        return False
    return True

"""Whether a text is a schedule that Airflow understands: a preset or a cron line of five fields."""

from __future__ import annotations

import re

PRESETS = ("@once", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DAYS_OF = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?")

# (lowest, highest, names that stand for lowest, lowest + 1, ...) of minute, hour, day, month, day of the week
_FIELDS: tuple[tuple[int, int, list[str]], ...] = (
    (0, 59, []),
    (0, 23, []),
    (1, 31, []),
    (1, 12, _MONTHS),
    (0, 7, _DAYS),
)


def is_schedule(text: str) -> bool:
    """True for `@daily` and the like, and for cron: lists, ranges, steps, and names of months and days."""
    if text in PRESETS:
        return True
    fields = text.split(" ")
    return len(fields) == len(_FIELDS) and all(map(_is_field, fields, _FIELDS)) and _has_a_day(*fields[2:])


def _has_a_day(days: str, months: str, weekdays: str) -> bool:
    """Whether such a date ever comes: there is no 31 April. A day of the week comes in every month."""
    if weekdays != "*":
        return True
    earliest = min(_first(item, 1, []) for item in days.split(","))
    return any(earliest <= _DAYS_OF[month - 1] for month in _listed(months.lower()))


def _listed(months: str) -> set[int]:
    found: set[int] = set()
    for item in months.split(","):
        first, last, step = _ITEM.fullmatch(item).groups()  # type: ignore[union-attr]  # _is_field has matched it
        low = 1 if first is None else _number(first, 1, _MONTHS)
        high = 12 if first is None or (last is None and step) else _number(last or first, 1, _MONTHS)
        found |= set(range(low, high + 1, int(step or 1)))
    return found


def _first(item: str, lowest: int, names: list[str]) -> int:
    first = _ITEM.fullmatch(item).group(1)  # type: ignore[union-attr]
    return lowest if first is None else _number(first, lowest, names)


def _is_field(text: str, field: tuple[int, int, list[str]]) -> bool:
    return all(_is_item(item, *field) for item in text.lower().split(","))


def _is_item(text: str, lowest: int, highest: int, names: list[str]) -> bool:
    match = _ITEM.fullmatch(text)
    if match is None:
        return False
    first, last, step = match.groups()
    ends = [_number(value, lowest, names) for value in (first, last) if value is not None]
    in_range = all(lowest <= end <= highest for end in ends)
    if not in_range or ends != sorted(ends):
        return False
    span = ends[1] - ends[0] if len(ends) == 2 else highest - (ends or [lowest])[0]
    return step is None or 0 < int(step) <= span  # a longer step, as */70 of minutes, never comes to a second time


def _number(value: str, lowest: int, names: list[str]) -> int:
    """The number of `value`, or -1, which no field allows."""
    if value in names:
        return names.index(value) + lowest
    return int(value) if value.isascii() and value.isdigit() and len(value) < 4 else -1

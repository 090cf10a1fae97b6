"""Texts for people: counts, bytes, durations, moments, settings, and reasons that contain them. Pure.

If a file has a setting with a unit, the setting keeps this text (`AsWritten`) and is shown with it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Self

LAST_MOMENT_MS = 253_402_300_799_000
"""End of the year 9999 in Unix ms, the last moment of Python's calendar."""
_NEVER_MS = (1 << 63) - 1  # Long.MAX_VALUE, which means "never" in Kafka
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_MOMENT = re.compile(r"\b(until|before) (\d+) ms")
_DURATION = re.compile(r"\b(\d{4,}) ms")
_CONFIG = re.compile(r"(\.ms is) (\d{4,})\b")


class AsWritten(int):
    """A number with the text that a person wrote for it: 172800000 for `2d`."""

    text: str

    def __new__(cls, number: int, text: str = "") -> Self:
        made = super().__new__(cls, number)
        made.text = text
        return made


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return `1 record` or `2 records`. `plural`: for nouns with another plural than an added s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def be(count: int) -> str:
    return "is" if count == 1 else "are"


def one_line(text: str) -> str:
    """Remove line breaks, invisible characters, and characters that change the direction of text."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def whole_number(text: str, digits: int = 19) -> int | None:
    """Parse ASCII digits. Return None for any other text.

    Use this for texts of others: isdigit() would accept ², and int() would raise for 4,301 digits."""
    return int(text) if 0 < len(text) <= digits and text.isascii() and text.isdigit() else None


def size(count: int) -> str:
    """Return a number of bytes as `1.5 MiB`."""
    if isinstance(count, AsWritten):
        return count.text
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def moment_ms(text: str) -> int | None:
    """Return a moment as `2026-11-29T14:20` (UTC unless it has a zone) in Unix ms; None for any other text."""
    try:
        at = datetime.fromisoformat(text) if not text.lstrip("+-").isdigit() else None
    except ValueError:
        return None
    return None if at is None else round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


YEAR_MS = 31_556_952_000
"""Mean length of a year of the Gregorian calendar."""


_SECONDS = range(10**9, 10**11)
"""Numbers that are Unix seconds (from 2001 on). As milliseconds they would be days of 1970 to 1973."""


def seconds_problem(number: int) -> str:
    """Return why a number that should be Unix ms is probably in seconds, or "" if it is not."""
    if number not in _SECONDS:
        return ""
    meant = datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{number} is in 1970 to 1973 as Unix ms. Did you mean seconds? Give {number}000 ({meant} UTC)"


def instant(at_ms: int) -> str:
    """Return Unix ms as a moment in UTC; beyond Python's calendar, the year and the number."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"the year {1970 + at_ms // YEAR_MS} ({at_ms} ms since 1970)"


def duration(milliseconds: int) -> str:
    """Return ms in the largest unit with a value of at least one, to one decimal: 2.5 d, 1 h, 15 min."""
    for unit, length in _UNITS_MS:
        if milliseconds >= length:
            return f"{round(milliseconds / length, 1):g} {unit}"
    return f"{milliseconds} ms"


def interval(milliseconds: int) -> str:
    """Return the time of a setting as in YAML: its written text, else 7d, 1.5h, 100s, 1500ms. Kafka's largest long is
    `unlimited`."""
    if isinstance(milliseconds, AsWritten):
        return milliseconds.text
    if milliseconds == _NEVER_MS:
        return "unlimited"
    for unit, length in _UNITS_MS:
        if milliseconds >= length and milliseconds * 10 % length == 0:
            return f"{milliseconds / length:g}{unit}"
    return f"{milliseconds}ms"


def setting(name: str, milliseconds: int) -> str:
    """Return a setting with its value, as `segment.ms 7d`."""
    return f"{name} {interval(milliseconds)}"


def until(at_ms: int) -> str:
    """Return `until 2026-11-29 14:20:00 UTC`, or `for ever` beyond Python's calendar."""
    text = instant(at_ms)
    return "for ever" if text.startswith("the year") else f"until {text} UTC"


def ago(at_ms: int, now_ms: int) -> str:
    """Return a moment relative to now: `3 h ago`, `in 2 d`."""
    away_ms = now_ms - at_ms
    if abs(away_ms) < 1000:
        return "now"
    return f"{duration(away_ms)} ago" if away_ms > 0 else f"in {duration(-away_ms)}"


def readable_reason(reason: str) -> str:
    """Return the reason of a decision with its milliseconds as moments (UTC) and durations."""
    text = _MOMENT.sub(lambda m: f"{m[1]} {instant(int(m[2]))} UTC", reason)
    text = _DURATION.sub(lambda m: duration(int(m[1])), text)
    return _CONFIG.sub(lambda m: f"{m[1]} {interval(int(m[2]))}", text)

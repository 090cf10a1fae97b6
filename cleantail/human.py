"""Numbers as people read them: counts, bytes, durations, moments, settings, and reasons that hold them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

LAST_MOMENT_MS = 253_402_300_799_000
"""The end of the year 9999 in Unix ms: no calendar here goes further."""
_NEVER_MS = (1 << 63) - 1  # Long.MAX_VALUE, which stands for "never" in Kafka
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_MOMENT = re.compile(r"\b(until|before) (\d+) ms")
_DURATION = re.compile(r"\b(\d{4,}) ms")
_CONFIG = re.compile(r"(\.ms is) (\d{4,})\b")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Returns a number with its noun in the right form, as `1 record`, `2 records`. `plural` is for nouns that do not
    take an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def be(count: int) -> str:
    """Returns the verb for so many things: `is` for one, `are` for others."""
    return "is" if count == 1 else "are"


def one_line(text: str) -> str:
    """Returns a text without line breaks, and without characters that are not seen or turn the order of letters
    round."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def whole_number(text: str, digits: int = 19) -> int | None:
    """Returns the number that ASCII digits write, None for any other text. Texts of tables are written by others:
    isdigit() takes ² as well, and int() raises for 4,301 digits."""
    return int(text) if 0 < len(text) <= digits and text.isascii() and text.isdigit() else None


def size(count: int) -> str:
    """Returns a number of bytes as people write them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


YEAR_MS = 31_556_952_000
"""A year of the Gregorian calendar, on average."""


def instant(at_ms: int) -> str:
    """Returns Unix ms as a moment in UTC; of a year that no calendar has, the year and the number."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"the year {1970 + at_ms // YEAR_MS} ({at_ms} ms since 1970)"


def duration(milliseconds: int) -> str:
    """Returns ms in the largest unit that is not below one, to one decimal: 2.5 d, 1 h, 15 min."""
    for unit, length in _UNITS_MS:
        if milliseconds >= length:
            return f"{round(milliseconds / length, 1):g} {unit}"
    return f"{milliseconds} ms"


def interval(milliseconds: int) -> str:
    """Returns a setting's time without rounding: 7 d, 1.5 h, 100 s, 1500 ms; `unlimited` for Kafka's largest long."""
    if milliseconds == _NEVER_MS:
        return "unlimited"
    for unit, length in _UNITS_MS:
        if milliseconds >= length and milliseconds * 10 % length == 0:
            return f"{milliseconds / length:g} {unit}"
    return f"{milliseconds} ms"


def setting(name: str, milliseconds: int) -> str:
    """Returns the knob that a reason is about with its value, as `segment.ms 7 d`."""
    return f"{name} {interval(milliseconds)}"


def until(at_ms: int) -> str:
    """Returns `until 2026-11-29 14:20:00 UTC`, or `for ever` where no calendar goes that far."""
    text = instant(at_ms)
    return "for ever" if text.startswith("the year") else f"until {text} UTC"


def ago(at_ms: int, now_ms: int) -> str:
    """Returns a moment as seen from now: `3 h ago`, `in 2 d`."""
    away_ms = now_ms - at_ms
    if abs(away_ms) < 1000:
        return "now"
    return f"{duration(away_ms)} ago" if away_ms > 0 else f"in {duration(-away_ms)}"


def readable_reason(reason: str) -> str:
    """Returns a decision's reason with its milliseconds written as moments (UTC) and durations."""
    text = _MOMENT.sub(lambda m: f"{m[1]} {instant(int(m[2]))} UTC", reason)
    text = _DURATION.sub(lambda m: duration(int(m[1])), text)
    return _CONFIG.sub(lambda m: f"{m[1]} {duration(int(m[2]))}", text)

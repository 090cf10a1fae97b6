"""Times and sizes with a unit, as people write them in YAML: `7d` for 604800000, `1GiB` for 1073741824. Pure.

Kafka's own configs are plain numbers, which are as right here.
"""

from __future__ import annotations

import re
from fractions import Fraction

TIMES = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")


def units_of(name: str) -> dict[str, int]:
    """Returns the units that a config takes, by its name; empty for one that is neither a time nor a size."""
    if name.endswith(".ms"):
        return TIMES
    return SIZES if name.endswith((".bytes", ".buffer.size")) else {}


def pattern_of(name: str) -> str:
    """Returns the regular expression of texts with a unit, for editors."""
    return f"^[0-9]+(\\.[0-9]+)? ?({'|'.join(units_of(name))})$"


def hint(name: str) -> str:
    """Returns what is allowed beside a plain number, for an error."""
    units = units_of(name)
    example = "7d" if units is TIMES else "1GiB"
    return f", or a text with a unit ({', '.join(units)}) as {example}" if units else ""


def plain_number(name: str, value: object) -> object:
    """Returns the number that a text with a unit stands for. Anything else is returned as it is, for the model to
    judge."""
    match = _TEXT.fullmatch(value) if isinstance(value, str) else None
    factor = units_of(name).get(match[2]) if match else None
    if match is None or factor is None:
        return value
    number = Fraction(match[1]) * factor
    return int(number) if number.denominator == 1 else value

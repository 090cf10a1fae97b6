"""Base of the models of YAML: the model, one row of a table of configs, units, and errors of rules over several keys.

Times and sizes may have a unit in YAML: `7d` is 604800000, `1GiB` is 1073741824. Kafka's plain numbers work too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from cleantail.errors import Problem

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


LONG_MAX = 2**63 - 1  # Kafka's LONG
INT_MAX = 2**31 - 1  # Kafka's INT


TOPIC_CONFIG = "Kafka TopicConfig"
CLEANER_CONFIG = "Kafka CleanerConfig"
KIP_280 = "KIP-280"
CLEANTAIL = "Cleantail"


class Model(BaseModel):
    """Is the base of everything read from YAML: immutable, strictly typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class Configs(Model):
    """Is the base of the tables of configs: times and sizes may have a unit."""

    @model_validator(mode="before")
    @classmethod
    def _without_units(cls, data: Any) -> Any:
        return {k: plain_number(k, v) for k, v in data.items()} if isinstance(data, dict) else data


def _printable(text: str) -> str:
    if not text.isprintable() or len(text) > NAME_CHARS:
        raise ValueError("not on one printable line")
    return text


NAME_CHARS = 250
PrintableText = Annotated[
    str,
    AfterValidator(_printable),
    Field(json_schema_extra={"x-allowed": f"one printable line of up to {NAME_CHARS} characters"}),
]
"""A text that is shown in Airflow: a line break in it would begin Markdown of its own."""


def config(
    name: str, default: object, doc: str, source: str, *, low: float | None = None, high: float | None = None
) -> Any:
    """Returns one row of the table; both ends of the range [low, high] are allowed values."""
    extra: dict[str, Any] = {"x-source": source}
    return Field(default, alias=name, description=doc, ge=low, le=high, json_schema_extra=extra)


def problems_error(problems: Sequence[tuple[tuple[str | int, ...], Problem]]) -> PydanticCustomError:
    """Returns the error of several problems at once, each with the key path of the mapping that its key is in, as
    ("checks", 0)."""
    return PydanticCustomError("problems", "problems", {"problems": tuple(problems)})


def cross_field_error(key: str, value: object, allowed: str, fact: str = "") -> PydanticCustomError:
    """Returns the error of a rule that joins several keys.

    `key` is the one that a reader should look at. `fact` says what is wrong with it, where that is not its value.
    """
    context = {"key": key, "value": value, "allowed": allowed, "fact": fact}
    return PydanticCustomError("cross_field", "{allowed}", context)


def matching(pattern: str, allowed: str) -> Any:
    """Returns a field whose whole text matches `pattern`; `allowed` says so to people."""
    return Field(pattern=f"^(?:{pattern})$", json_schema_extra={"x-allowed": allowed})


def allowing(allowed: str) -> Any:
    """Returns a field with a rule of its own; `allowed` says to people what it lets through."""
    return Field(json_schema_extra={"x-allowed": allowed})

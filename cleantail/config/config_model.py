"""Base of all models of YAML: the model class, a row of a table of configs, units, and errors of several keys.

Times and sizes may have a unit in YAML: `7d` is 604800000, `1GiB` is 1073741824. Kafka's plain numbers work too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cleantail.errors import Problem
from cleantail.human import AsWritten

TIMES = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")


def units_of(name: str) -> dict[str, int]:
    """Return the units of a config, from its name. Empty if the config is neither a time nor a size."""
    if name.endswith(".ms"):
        return TIMES
    return SIZES if name.endswith((".bytes", ".buffer.size")) else {}


def pattern_of(name: str) -> str:
    """Return the regular expression of texts with a unit, for editors."""
    return f"^[0-9]+(\\.[0-9]+)? ?({'|'.join(units_of(name))})$"


def hint(name: str) -> str:
    """Return the allowed units, in addition to a plain number, for an error."""
    units = units_of(name)
    example = "7d" if units is TIMES else "1GiB"
    return f", or a text with a unit ({', '.join(units)}) such as {example}" if units else ""


def plain_number(name: str, value: object) -> object:
    """Return the number for a text with a unit. Returns any other value unchanged, for the model to validate."""
    match = _TEXT.fullmatch(value) if isinstance(value, str) else None
    factor = units_of(name).get(match[2]) if match else None
    if match is None or factor is None:
        return value
    number = Fraction(match[1]) * factor
    return AsWritten(int(number), match[0]) if number.denominator == 1 else value


LONG_MAX = 2**63 - 1  # Kafka's LONG
INT_MAX = 2**31 - 1  # Kafka's INT


TOPIC_CONFIG = "Kafka TopicConfig"
CLEANER_CONFIG = "Kafka CleanerConfig"
KIP_280 = "KIP-280"
CLEANTAIL = "Cleantail"


class Model(BaseModel):
    """Base of everything read from YAML: immutable, strictly typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class Configs(Model):
    """Base of the tables of configs. Times and sizes may have a unit, and are then AsWritten."""

    @model_validator(mode="wrap")
    @classmethod
    def _without_units(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        numbers = {k: plain_number(k, v) for k, v in data.items()}
        made = handler(numbers)
        for field, row in cls.model_fields.items():  # pydantic makes plain numbers of them
            if isinstance(number := numbers.get(row.alias or field), AsWritten):
                made.__dict__[field] = number
        return made


def _printable(text: str) -> str:
    if not text.isprintable() or len(text) > NAME_CHARS:
        raise ValueError("not on one printable line")
    return text


def setting_text(value: object) -> object:
    """Return numbers and booleans as texts for the clients of Spark, Iceberg and Kafka: "8" for 8, "true" for true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


SettingText = Annotated[str, BeforeValidator(setting_text)]
NAME_CHARS = 250
PrintableText = Annotated[
    str,
    AfterValidator(_printable),
    Field(json_schema_extra={"x-allowed": f"one printable line of up to {NAME_CHARS} characters"}),
]
"""A text without line breaks. Airflow shows it as Markdown, where a line break could begin a new element."""


def config(
    name: str,
    default: object,
    doc: str,
    source: str = CLEANTAIL,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Return one row of a table of configs.

    Both ends of the range are allowed. A range without `high` ends at Kafka's LONG.
    """
    most = LONG_MAX if low is not None and high is None else high
    return Field(default, alias=name, description=doc, ge=low, le=most, json_schema_extra={"x-source": source})


def problems_error(problems: Sequence[tuple[tuple[str | int, ...], Problem]]) -> PydanticCustomError:
    """Return one error for several problems.

    Each has the key path of the mapping that its key is in, such as ("checks", 0).
    """
    return PydanticCustomError("problems", "problems", {"problems": tuple(problems)})


def cross_field_error(key: str, value: object, allowed: str, fact: str = "", by: str = "") -> PydanticCustomError:
    """Return the error of a rule over several keys.

    `key`: the key to report. `fact`: the problem, if it is not the key's value. `by`: the key that decides the allowed
    values. If the value of `by` is wrong, this error is not reported.
    """
    context = {"key": key, "value": value, "allowed": allowed, "fact": fact, "by": by}
    return PydanticCustomError("cross_field", "{allowed}", context)


def matching(pattern: str, allowed: str) -> Any:
    """Return a field whose whole text matches `pattern`; `allowed` describes the pattern in errors."""
    return Field(pattern=f"^(?:{pattern})$", json_schema_extra={"x-allowed": allowed})


def allowing(allowed: str) -> Any:
    """Return a field with a validator of its own; `allowed` describes the valid values in errors."""
    return Field(json_schema_extra={"x-allowed": allowed})


ConnectionId = Annotated[
    str, matching("[A-Za-z0-9_.-]{1,250}", "the id of an Airflow connection: characters a-z A-Z 0-9 . _ -")
]

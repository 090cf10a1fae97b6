"""What the tables of configs are made of: the base model, one row, and the error of a rule over several rows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

LONG_MAX = 2**63 - 1  # Kafka's LONG
INT_MAX = 2**31 - 1  # Kafka's INT


TOPIC_CONFIG = "Kafka TopicConfig"
CLEANER_CONFIG = "Kafka CleanerConfig"
KIP_280 = "KIP-280"
CLEANTAIL = "Cleantail"


class Model(BaseModel):
    """Base of everything read from YAML: immutable, strictly typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


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
"""What is shown in Airflow: a line break in it would begin Markdown of its own."""


def config(
    name: str, default: object, doc: str, source: str, *, low: float | None = None, high: float | None = None
) -> Any:
    """One row of the table; both ends of the range [low, high] are allowed values."""
    extra: dict[str, Any] = {"x-source": source}
    return Field(default, alias=name, description=doc, ge=low, le=high, json_schema_extra=extra)


def cross_field_error(key: str, value: object, allowed: str) -> PydanticCustomError:
    """The error of a rule that joins several keys; `key` is the one that a reader should look at."""
    return PydanticCustomError("cross_field", "{allowed}", {"key": key, "value": value, "allowed": allowed})

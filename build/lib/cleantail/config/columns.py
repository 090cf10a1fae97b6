"""Which columns of an adopted table hold what a topic table has: `columns:` of the topic's YAML.

The same mapping is a property of the table from its adoption on, so that whoever has the table knows it; where YAML
and property differ, nothing is done until the table is adopted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from cleantail.codec import Codec
from cleantail.config.settings.config_model import Model

PROPERTY_COLUMNS = "cleantail.columns"
"""Table property: the mapping as JSON. A table that Cleantail made has none."""

ColumnPath = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_$-]+(\.[A-Za-z0-9_$-]+)*$",
        json_schema_extra={"x-allowed": "a column, or a field of a struct as struct.field"},
    ),
]


class Columns(Model):
    """Column -> where the table has it; a column that is left out is in no record."""

    partition: ColumnPath = Field(description="Kafka partition: a whole number.")
    offset: ColumnPath = Field(description="Kafka offset: a whole number.")
    key: ColumnPath = Field(description="Record key: bytes, or text or a number, which count as their text.")
    value: ColumnPath | None = Field(
        default=None, description="A column that is null in a tombstone, and in nothing else."
    )
    timestamp: ColumnPath | None = Field(default=None, description="Record timestamp: a timestamp, or Unix ms.")
    timestamp_type: ColumnPath | None = Field(default=None, description="0 is CreateTime, 1 LogAppendTime.")
    headers: ColumnPath | None = Field(default=None, description="List of structs of key and value.")

    @property
    def paths(self) -> dict[str, str]:
        """Returns column of a topic table -> path, for the columns that are mapped."""
        return {str(name): str(path) for name, path in self.model_dump(exclude_none=True).items()}

    def as_property(self) -> str:
        """Returns the mapping as one line of JSON, in which equal mappings are equal texts."""
        return _PATHS_JSON.text(self.paths)


_PATHS_JSON: Codec[dict[str, str]] = Codec(dict[str, str])
_COLUMNS_JSON: Codec[Columns] = Codec(Columns)


def columns_of_properties(properties: Mapping[str, str]) -> Columns | None:
    """Returns the mapping of an adopted table; None for one that Cleantail made. Raises TableError where the property
    cannot be read."""
    text = properties.get(PROPERTY_COLUMNS)
    return _COLUMNS_JSON.value(text, f"table property {PROPERTY_COLUMNS}") if text else None


def quoted(path: str) -> str:
    """Returns `a`.`b` for a.b, so that a keyword can be a column."""
    return ".".join(f"`{part}`" for part in path.split("."))

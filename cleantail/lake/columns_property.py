"""The table property that holds the mapping of an adopted table's columns.

It is there from the adoption on, so that whoever has the table knows the mapping. Where the topic's YAML says another
one, nothing is done until the table is adopted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleantail.codec import Codec
from cleantail.config.topic_table import Columns

PROPERTY_COLUMNS = "cleantail.columns"
"""Table property: the mapping as JSON. A table that Cleantail made has none."""
_DATA_JSON: Codec[dict[str, Any]] = Codec(dict[str, Any])
_COLUMNS_JSON: Codec[Columns] = Codec(Columns)


def property_of_columns(columns: Columns) -> str:
    """Returns the mapping as one line of JSON, in which equal mappings are equal texts."""
    return _DATA_JSON.text(columns.as_data)


def columns_of_properties(properties: Mapping[str, str]) -> Columns | None:
    """Returns the mapping of an adopted table; None for one that Cleantail made. Raises TableError where the property
    cannot be read."""
    text = properties.get(PROPERTY_COLUMNS)
    return _COLUMNS_JSON.value(text, f"table property {PROPERTY_COLUMNS}") if text else None

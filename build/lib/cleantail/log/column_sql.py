"""Columns of an adopted table as Spark SQL expressions that give what a topic table has. Pure.

The rounds and the `latest` view use the same text, so that both see the same record. The text holds types, and paths of
the mapping, which cannot hold a quote. By column of a topic table:

1. `partition`, `offset` and `timestamp_type` are whole numbers, cast to the type that a topic table has.
2. `timestamp` is a timestamp, or a long that counts Unix ms.
3. `key` is bytes. Text, dates, booleans and whole numbers count as the bytes of their text. A fraction is refused,
   since one number has many texts, and equal keys would not be equal.
4. `value` is bytes or the bytes of its text; anything else becomes JSON. Null stays null: it marks a tombstone.
5. `headers` is a list of structs of key and value.
6. A column that the mapping leaves out is null in every record, but for `value`: an empty value is no tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleantail.config.columns import Columns, quoted
from cleantail.config.topic_table import COLUMNS, HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE

WHOLE = ("tinyint", "smallint", "int", "bigint")
"""Spark's names of the types of whole numbers."""
AS_TEXT = (*WHOLE, "boolean", "date", "string")
"""Types of keys that count as the bytes of their text. Fractions are none: a number has many texts."""


def problem_of(column: str, kind: str) -> str | None:
    """Returns what is wrong with a type (Spark's name of it) for a column, or None where it fits."""
    if column in (PARTITION, OFFSET, TIMESTAMP_TYPE):
        return None if kind in WHOLE else "a whole number is needed"
    if column == KEY:
        return None if kind == "binary" or kind in AS_TEXT else "bytes, text, a date or a whole number is needed"
    if column == TIMESTAMP:
        return (
            None if kind in ("timestamp", "timestamp_ntz", "bigint") else "a timestamp, or a long of Unix ms is needed"
        )
    if column == HEADERS:
        return None if kind.startswith("array<struct<key:") else "a list of structs of key and value is needed"
    return None


def expressions(columns: Columns, kinds: Mapping[str, str]) -> dict[str, str]:
    """Returns, for each column of a topic table, SQL over the stored columns. `kinds` maps a path to Spark's name of
    its type."""
    return {name: _expression(name, columns.paths.get(name), kinds) for name in COLUMNS}


def _expression(name: str, path: str | None, kinds: Mapping[str, str]) -> str:
    if path is None:
        return "CAST(X'' AS BINARY)" if name == VALUE else f"CAST(NULL AS {COLUMNS[name]})"
    column, kind = quoted(path), kinds[path]
    if name == TIMESTAMP:
        return f"timestamp_millis({column})" if kind == "bigint" else f"CAST({column} AS TIMESTAMP)"
    if name == KEY:
        return _bytes(column, kind)
    if name == VALUE:
        return _bytes(column, kind) if kind in ("binary", *AS_TEXT) else _json(column)
    if name == HEADERS:
        pair = "named_struct('key', CAST(h.`key` AS STRING), 'value', CAST(h.`value` AS BINARY))"
        return f"transform({column}, h -> {pair})"
    return f"CAST({column} AS {COLUMNS[name]})"


def _bytes(column: str, kind: str) -> str:
    """Returns SQL that gives bytes: of anything that is none, the bytes of its text."""
    return column if kind == "binary" else f"CAST(CAST({column} AS STRING) AS BINARY)"


def _json(column: str) -> str:
    """Returns SQL that makes JSON of a value that is no bytes; null stays null. Who wants the value itself reads the
    table."""
    return f"IF({column} IS NULL, NULL, CAST(to_json(named_struct('value', {column})) AS BINARY))"

"""Columns of an adopted table as Spark SQL expressions that give what a topic table has. Pure.

The rounds and the `latest` view use the same text, so that both see the same record. The text holds types, and paths of
the mapping, which cannot hold a quote. By column of a topic table:

1. `partition`, `offset` and `timestamp_type` are whole numbers, cast to the type that a topic table has.
2. `timestamp` is a timestamp, or a long that counts Unix ms.
3. `key` is bytes. Text, dates, truth values and whole numbers count as the bytes of their text; so do decimals, with
   all digits of their scale, and UUIDs. Timestamps count as the text of their microseconds since 1970, fractions as
   that of their bits (a double's, as Java has them: one NaN, one zero): equal numbers are equal keys, whatever their
   text.
4. A key of several columns is, part by part, its length in bytes, a colon and its bytes, or a hyphen where it is null:
   `2:eu-` is ("eu", none), and nothing else. Where all parts are null the record has no key.
5. `value` is bytes or the bytes of its text; anything else becomes JSON, and so do several columns. Null stays null: it
   marks a tombstone. With `deleted` the mark alone decides: then the value is null, and an unmarked null is empty.
6. `headers` is a list of structs of key and value.
7. A column that the mapping leaves out is null in every record, but for `value`: an empty value is no tombstone.
8. With `order` the offset is made of row lineage (cleantail.log.ranks.row_offsets), the partition is 0 where none is
   mapped, and there is a column more: `order`, a whole number, of a timestamp its microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleantail.config.columns import Columns, Deleted, quoted
from cleantail.config.topic_table import (
    COLUMNS,
    HEADERS,
    KEY,
    OFFSET,
    ORDER,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOMBSTONE,
    VALUE,
)
from cleantail.log.ranks.row_offsets import OFFSET_SQL

WHOLE = ("tinyint", "smallint", "int", "bigint")
"""Spark's names of the types of whole numbers."""
AS_TEXT = (*WHOLE, "boolean", "date", "string")
"""Types that count as the bytes of their text, in Spark as in Arrow."""


PLAIN_SCALE, MOST_SCALE = 6, 37
"""Up to which scale a decimal's text never has an exponent, and up to which it can be written without one."""
FRACTIONS = ("float", "double")
TIMES = ("timestamp", "timestamp_ntz")


def problem_of(column: str, kind: str) -> str | None:
    """Returns what is wrong with a type (Spark's name of it) for a column, or None where it fits."""
    if column in (PARTITION, OFFSET, TIMESTAMP_TYPE):
        return None if kind in WHOLE else "a whole number is needed"
    if column == KEY:
        fits = kind == "binary" or kind in (*AS_TEXT, *FRACTIONS, *TIMES) or _is_decimal(kind)
        fields = ": name its fields, as --column key=STRUCT.FIELD,STRUCT.FIELD" if kind.startswith("struct") else ""
        return None if fits else f"a column of one value is needed{fields}"
    if column == ORDER:
        return None if kind in (*WHOLE, *TIMES) else "a whole number, or a timestamp is needed"
    if column == TOMBSTONE:
        return None if kind in AS_TEXT else "text, a truth value or a whole number is needed"
    if column == TIMESTAMP:
        return None if kind in (*TIMES, "bigint") else "a timestamp, or a long of Unix ms is needed"
    if column == HEADERS:
        return None if kind.startswith("array<struct<key:") else "a list of structs of key and value is needed"
    return None


def _is_decimal(kind: str) -> bool:
    """Returns whether the type is a decimal whose text can be written with all digits of its scale (3)."""
    return kind.startswith("decimal(") and int(kind.rstrip(")").partition(",")[2]) <= MOST_SCALE


def expressions(columns: Columns, kinds: Mapping[str, str]) -> dict[str, str]:
    """Returns, for each column of a topic table, SQL over the stored columns. `kinds` maps a path to Spark's name of
    its type."""
    ordered = {} if columns.has_offsets else {ORDER: _whole(quoted(columns.of(ORDER)[0]), kinds[columns.of(ORDER)[0]])}
    return {name: _expression(name, columns, kinds) for name in COLUMNS} | ordered


def _expression(name: str, columns: Columns, kinds: Mapping[str, str]) -> str:
    if name == VALUE:
        return _value(columns, kinds)
    if name == OFFSET and not columns.has_offsets:
        return OFFSET_SQL
    if name == PARTITION and columns.partition is None:
        return f"CAST(0 AS {COLUMNS[name]})"
    if not columns.of(name):
        return f"CAST(NULL AS {COLUMNS[name]})"
    if name == KEY:
        parts = [_key(quoted(path), kinds[path]) for path in columns.of(KEY)]
        return _joined(parts) if len(parts) > 1 else parts[0]
    [path] = columns.of(name)
    column, kind = quoted(path), kinds[path]
    if name == TIMESTAMP:
        return f"timestamp_millis({column})" if kind == "bigint" else f"CAST({column} AS TIMESTAMP)"
    if name == HEADERS:
        pair = "named_struct('key', CAST(h.`key` AS STRING), 'value', CAST(h.`value` AS BINARY))"
        return f"transform({column}, h -> {pair})"
    return f"CAST({column} AS {COLUMNS[name]})"


def _key(column: str, kind: str) -> str:
    """Returns SQL that gives the bytes of a key, or of a part of one (3)."""
    if kind.startswith("decimal("):
        return _decimal(column, int(kind.rstrip(")").partition(",")[2]))
    if kind in FRACTIONS:
        number = f"(CAST({column} AS DOUBLE) + CAST(0 AS DOUBLE))"
        bits = f"reflect('java.lang.Double', 'doubleToLongBits', {number})"
        return f"CAST(IF({column} IS NULL, NULL, {bits}) AS BINARY)"
    return _bytes(_whole(column, kind), "bigint") if kind in TIMES else _bytes(column, kind)


def _whole(column: str, kind: str) -> str:
    """Returns SQL that gives a whole number: of a timestamp its microseconds since 1970."""
    if kind == "timestamp":
        return f"unix_micros({column})"
    if kind == "timestamp_ntz":
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {column})"
    return f"CAST({column} AS BIGINT)"


def _decimal(column: str, scale: int) -> str:
    """Returns SQL that gives the bytes of a decimal's text with all digits of its scale. Of a number that is nearly 0
    Spark's own text may have an exponent, by a setting of the session: one more, or less, has none."""
    plain = f"CAST({column} AS STRING)"
    if scale > PLAIN_SCALE:
        small = f"try_cast({column} AS DECIMAL({scale}, {scale}))"
        above = f"concat('0', substring(CAST({small} + 1 AS STRING), 2))"
        below = f"concat('-0', substring(CAST({small} - 1 AS STRING), 3))"
        plain = f"IF(abs({column}) < 0.000001, IF({column} < 0, {below}, {above}), {plain})"
    return f"CAST({plain} AS BINARY)"


def _joined(parts: Sequence[str]) -> str:
    """Returns SQL that gives the bytes of a key of several parts (4), each given as SQL of its bytes."""
    lengths = (f"CAST(CAST(octet_length({part}) AS STRING) AS BINARY)" for part in parts)
    whole = (f"coalesce(concat({length}, X'3A', {part}), X'2D')" for length, part in zip(lengths, parts, strict=True))
    return f"IF({' AND '.join(f'{part} IS NULL' for part in parts)}, NULL, concat({', '.join(whole)}))"


def _value(columns: Columns, kinds: Mapping[str, str]) -> str:
    """Returns SQL that gives the bytes of a value, by rule 5, and of one that the mapping leaves out, by rule 7."""
    parts, empty = columns.of(VALUE), "CAST(X'' AS BINARY)"
    if len(parts) > 1:
        fields = ", ".join(f"'{path}', {quoted(path)}" for path in parts)
        value = f"CAST(to_json(named_struct({fields})) AS BINARY)"
    elif parts:
        column, kind = quoted(parts[0]), kinds[parts[0]]
        value = _bytes(column, kind) if kind in ("binary", *AS_TEXT) else _json(column)
    else:
        value = empty
    if columns.deleted is None:
        return value
    return f"IF({_marked(columns.deleted)}, NULL, coalesce({value}, {empty}))"


def _marked(deleted: Deleted) -> str:
    """Returns SQL that says whether a record is marked as one that deletes its key. The model allows no text here that
    could be more than a text."""
    texts = ", ".join(f"'{value}'" for value in deleted.values)
    return f"coalesce(CAST({quoted(deleted.column)} AS STRING) IN ({texts}), false)"


def _bytes(column: str, kind: str) -> str:
    """Returns SQL that gives bytes: of anything that is none, the bytes of its text."""
    return column if kind == "binary" else f"CAST(CAST({column} AS STRING) AS BINARY)"


def _json(column: str) -> str:
    """Returns SQL that makes JSON of a value that is no bytes; null stays null. Who wants the value itself reads the
    table."""
    return f"IF({column} IS NULL, NULL, CAST(to_json(named_struct('value', {column})) AS BINARY))"

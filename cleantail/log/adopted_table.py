"""Columns of an adopted table as Spark SQL expressions for the columns of a topic table. Pure.

The rounds and the `latest` view use the same SQL, so that both read the same record. The SQL contains types and paths
of the mapping, which cannot contain a quote. The rules by column of a topic table:

1. `partition`, `offset` and `timestamp_type` are whole numbers, cast to the type in a topic table.
2. `timestamp` is a timestamp, or a long of Unix ms.
3. `key` is bytes. Text, dates, booleans, whole numbers and UUIDs count as the bytes of their text, decimals with all
   digits of their scale. Timestamps count as the text of their microseconds since 1970. Fractions count as the text of
   their bits (a Java double's, with one NaN and one zero): equal numbers are equal keys.
4. A key of several columns has, for each part, its length in bytes, a colon and its bytes. A null part is a hyphen:
   only ("eu", null) is `2:eu-`. If all parts are null, the record has no key.
5. `value` is bytes or the bytes of its text. Any other type becomes JSON, and so do several columns. Null stays null:
   it marks a tombstone. With `deleted` only the mark decides: a marked value is null, an unmarked null is empty.
6. `headers` is a list of structs of key and value.
7. A column that the mapping leaves out is null in every record, except `value`: an empty value is not a tombstone.
8. With `order` the offset is made of row lineage, and the partition is 0 if no column is mapped to it. `order` is one
   more column, a whole number. A timestamp becomes its microseconds since 1970.

Row lineage (format version 3) gives each record an id, and the sequence number of the commit that last wrote or changed
it. Readers inherit both from the metadata of the data file, or find them in a file whose rewrite has kept them:

1. An offset is the sequence number, then the row id, as the bits of one whole number. Offsets are unique, and those of
   a later commit are higher.
2. A rewrite that keeps the lineage, as the specification requires, keeps offsets. A rewrite without lineage makes new
   records: they are above the first dirty offset, and a round reads them again.
3. Offsets have gaps. The limits are 16.7 million commits and 549 billion row ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    Columns,
    Deleted,
    quoted,
)
from cleantail.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa


ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
"""Names of the columns of row lineage, in Spark and in rewritten files."""
LINEAGE_IDS = {ROW_ID: 2_147_483_540, LAST_UPDATED: 2_147_483_539}
"""The field ids that Iceberg's specification reserves for these columns."""
ROW_ID_BITS = 39
MOST_COMMITS = (1 << 63 - ROW_ID_BITS) - 2
"""The highest sequence number: an offset stays below Kafka's highest."""
OFFSET_SQL = f"(shiftleft(`{LAST_UPDATED}`, {ROW_ID_BITS}) | `{ROW_ID}`)"
"""The offset as Spark SQL over a table of format version 3."""
WHOLE = ("tinyint", "smallint", "int", "bigint")
"""Spark's names of the types of whole numbers."""
AS_TEXT = (*WHOLE, "boolean", "date", "string")
"""Types that count as the bytes of their text, in Spark and in Arrow."""
PLAIN_SCALE, MOST_SCALE = 6, 37
"""Up to the first scale a decimal's text never has an exponent. Up to the second it can be written without one."""
FRACTIONS = ("float", "double")
TIMES = ("timestamp", "timestamp_ntz")


def problem_of(column: str, kind: str) -> str | None:
    """Return why a type (Spark's name of it) does not fit a column, or None if it fits."""
    if column in (PARTITION, OFFSET, TIMESTAMP_TYPE):
        return None if kind in WHOLE else "a whole number is needed"
    if column == KEY:
        fits = kind == "binary" or kind in (*AS_TEXT, *FRACTIONS, *TIMES) or _is_decimal(kind)
        fields = ": name its fields, as --column key=STRUCT.FIELD,STRUCT.FIELD" if kind.startswith("struct") else ""
        return None if fits else f"a column of one value is needed{fields}"
    if column == ORDER:
        return None if kind in (*WHOLE, *TIMES) else "a whole number, or a timestamp is needed"
    if column == TOMBSTONE:
        return None if kind in AS_TEXT else "text, a boolean or a whole number is needed"
    if column == TIMESTAMP:
        return None if kind in (*TIMES, "bigint") else "a timestamp, or a long of Unix ms is needed"
    if column == HEADERS:
        return None if kind.startswith("array<struct<key:") else "a list of structs of key and value is needed"
    return None


def _is_decimal(kind: str) -> bool:
    """Return whether the type is a decimal whose text can be written with all digits of its scale (rule 3)."""
    return kind.startswith("decimal(") and int(kind.rstrip(")").partition(",")[2]) <= MOST_SCALE


def expressions(columns: Columns, kinds: Mapping[str, str]) -> dict[str, str]:
    """Return topic table column -> SQL over the stored columns. `kinds` maps a path to Spark's name of its type."""
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
    """Return SQL of the bytes of a key, or of a part of one (rule 3)."""
    if kind.startswith("decimal("):
        return _decimal(column, int(kind.rstrip(")").partition(",")[2]))
    if kind in FRACTIONS:
        number = f"(CAST({column} AS DOUBLE) + CAST(0 AS DOUBLE))"
        bits = f"reflect('java.lang.Double', 'doubleToLongBits', {number})"
        return f"CAST(IF({column} IS NULL, NULL, {bits}) AS BINARY)"
    return _bytes(_whole(column, kind), "bigint") if kind in TIMES else _bytes(column, kind)


def _whole(column: str, kind: str) -> str:
    """Return SQL of a whole number. A timestamp becomes its microseconds since 1970."""
    if kind == "timestamp":
        return f"unix_micros({column})"
    if kind == "timestamp_ntz":
        return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {column})"
    return f"CAST({column} AS BIGINT)"


def _decimal(column: str, scale: int) -> str:
    """Return SQL of the bytes of a decimal's text with all digits of its scale.

    For a number close to 0 Spark's text may have an exponent, by a setting of the session. The number plus or minus 1
    has none.
    """
    plain = f"CAST({column} AS STRING)"
    if scale > PLAIN_SCALE:
        small = f"try_cast({column} AS DECIMAL({scale}, {scale}))"
        above = f"concat('0', substring(CAST({small} + 1 AS STRING), 2))"
        below = f"concat('-0', substring(CAST({small} - 1 AS STRING), 3))"
        plain = f"IF(abs({column}) < 0.000001, IF({column} < 0, {below}, {above}), {plain})"
    return f"CAST({plain} AS BINARY)"


def _joined(parts: Sequence[str]) -> str:
    """Return SQL of the bytes of a key of several parts (rule 4), each given as SQL of its bytes."""
    lengths = (f"CAST(CAST(octet_length({part}) AS STRING) AS BINARY)" for part in parts)
    whole = (f"coalesce(concat({length}, X'3A', {part}), X'2D')" for length, part in zip(lengths, parts, strict=True))
    return f"IF({' AND '.join(f'{part} IS NULL' for part in parts)}, NULL, concat({', '.join(whole)}))"


def _value(columns: Columns, kinds: Mapping[str, str]) -> str:
    """Return SQL of the bytes of a value (rules 5 and 7)."""
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
    """Return SQL of whether a record is marked as deleted. The model allows no text here that needs quoting."""
    texts = ", ".join(f"'{value}'" for value in deleted.values)
    return f"coalesce(CAST({quoted(deleted.column)} AS STRING) IN ({texts}), false)"


def _bytes(column: str, kind: str) -> str:
    """Return SQL that renders a column of bytes or of any other type as bytes. Text is encoded as UTF-8."""
    return column if kind == "binary" else f"CAST(CAST({column} AS STRING) AS BINARY)"


def _json(column: str) -> str:
    """Return SQL that renders a non-binary value as JSON. Null stays null."""
    return f"IF({column} IS NULL, NULL, CAST(to_json(named_struct('value', {column})) AS BINARY))"


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the records of a data file inherit: the row id of its first record, None if no commit has assigned one.
    `updated` is the sequence number of the commit that added the file."""

    first_row_id: int | None
    updated: int

    def or_earlier(self, other: Lineage | None) -> Lineage:
        """Return the earlier of two registrations of one file."""
        if other is None:
            return self
        ids = [each.first_row_id for each in (self, other) if each.first_row_id is not None]
        return Lineage(min(ids, default=None), min(self.updated, other.updated))


@dataclass(frozen=True, slots=True)
class Span:
    """The lowest and the highest number in a file's column of lineage, and whether some records have none."""

    low: int
    high: int
    has_nulls: bool


Spans = tuple[Span | None, Span | None]
"""The row ids and sequence numbers that a file itself has; None for a missing column."""


def spans_of_metrics(nulls: Mapping[int, int], lower: Mapping[int, bytes], upper: Mapping[int, bytes]) -> Spans | None:
    """Return the spans from a manifest's metrics of a file's columns, by field id. None if lineage has no metrics.

    The file may still have lineage columns: writers may omit their metrics.
    """
    ids = LINEAGE_IDS[ROW_ID], LINEAGE_IDS[LAST_UPDATED]
    if not all(number in nulls and number in lower and number in upper for number in ids):
        return None
    row_ids, updated = (Span(_long(lower[n]), _long(upper[n]), bool(nulls[n])) for n in ids)
    return row_ids, updated


def _long(bound: bytes) -> int:
    """Decode a bound in Iceberg's single-value serialization, which is little-endian."""
    return int.from_bytes(bound, "little", signed=True)


def require_row_ids(lineage: Lineage | None, path: str) -> Lineage:
    """Return the lineage. Raises TableError if the file's records have no row ids."""
    if lineage is None or lineage.first_row_id is None:
        raise TableError(
            f"{path} has no row ids, and its records have no other offset. The first commit in Iceberg's format "
            "version 3 assigns them: `cleantail adopt TABLE --upgrade` makes one"
        )
    return lineage


def offset_of(updated: int, row_id: int, path: str) -> int:
    """Return the offset of a record. Raises TableError beyond the limits."""
    if updated > MOST_COMMITS or row_id >> ROW_ID_BITS:
        raise TableError(
            f"{path} has sequence number {updated} and row id {row_id}. Without a column of offsets they can be at "
            f"most {MOST_COMMITS} and {(1 << ROW_ID_BITS) - 1}. Copy the records into a new table"
        )
    return updated << ROW_ID_BITS | row_id


def offset_range(records: int, lineage: Lineage, path: str, spans: Spans = (None, None)) -> tuple[int, int]:
    """Return inclusive bounds of a file's offsets. Raises TableError beyond the limits, and without row ids."""
    row_ids, updated = spans
    first = require_row_ids(lineage, path).first_row_id or 0
    ids = _widened(row_ids, first, first + max(records - 1, 0))
    changes = _widened(updated, lineage.updated, lineage.updated)
    return offset_of(changes[0], ids[0], path), offset_of(changes[1], ids[1], path)


def _widened(span: Span | None, low: int, high: int) -> tuple[int, int]:
    """Return the range of the records' own numbers and of inherited ones."""
    if span is None:
        return low, high
    return (min(span.low, low), max(span.high, high)) if span.has_nulls else (span.low, span.high)


def record_offsets(
    positions: range, lineage: Lineage, path: str, row_ids: pa.Array | None = None, updated: pa.Array | None = None
) -> pa.Array:
    """Return the offsets of a file's records at these positions.

    `row_ids` and `updated`: the columns that the file itself has. Raises TableError as offset_range does.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    first = require_row_ids(lineage, path).first_row_id or 0
    inherited = pa.array(np.arange(first + positions.start, first + positions.stop, dtype=np.int64))
    ids = inherited if row_ids is None else pc.coalesce(row_ids, inherited)
    changes = pa.array(np.full(len(positions), lineage.updated, np.int64))
    changes = changes if updated is None else pc.coalesce(updated, changes)
    if not len(positions):
        return ids
    offset_of(pc.max(changes).as_py(), pc.max(ids).as_py(), path)
    offsets: pa.Array = pc.bit_wise_or(pc.shift_left(changes, ROW_ID_BITS), ids)
    return offsets

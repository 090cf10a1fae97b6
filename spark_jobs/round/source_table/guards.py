"""Says what a record of a source table has to be, as Spark SQL that ends the plan at one that is not.

1. A partition is a whole number from 0 to the largest of Kafka's, an offset one from 0 on, and neither is null.
2. A timestamp is none (null, or Kafka's -1), or one that a table can hold: `unheld` says of which records it is not.
3. The type of a timestamp is one of Kafka's numbers.

What comes back from a task names the column, and the record by partition and offset alone: never a key or a value.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleantail.config.config_model import INT_MAX, LONG_MAX
from cleantail.config.topic_table import HEADERS, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, Columns, quoted
from cleantail.config.unholdable import NO_TIMESTAMP_MS, TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS, WAY_OUT
from cleantail.config.unholdable import TIMESTAMP as UNHELD_TIMESTAMP
from cleantail.errors import CleantailError, ContradictionError, SourceError, UnholdableError
from cleantail.log.adopted_table import expressions
from cleantail.log.rules import COMPARED, Contradiction
from spark_jobs.round.intake.record_batches import UNHELD_COLUMNS

MARK = "cleantail.source-table"
"""Stands around what a task says of a record, and between its parts."""
BAD, DIFFERS, UNHELD_TIME = "bad", "differs", "unheld"


def guarded(columns: Columns, kinds: Mapping[str, str]) -> list[str]:
    """Returns a select list of a topic table's columns over the stored ones. The first of them, which every plan needs,
    looks at all that may be wrong. `kinds` maps a path to Spark's name of its type."""
    sql = expressions(columns, kinds)
    if columns.timestamp:
        ms = _milliseconds(columns.timestamp, kinds)
        sql[TIMESTAMP] = f"IF({ms} <> {NO_TIMESTAMP_MS} AND NOT ({_beyond(ms)}), {sql[TIMESTAMP]}, NULL)"
    if columns.timestamp_type:
        kind = quoted(columns.timestamp_type)
        sql[TIMESTAMP_TYPE] = f"IF({kind} IN (-1, 0, 1), {sql[TIMESTAMP_TYPE]}, NULL)"
    checks = " ".join(f"WHEN {condition} THEN {error}" for condition, error in _checks(columns, kinds))
    sql[PARTITION] = f"CASE {checks} ELSE {sql[PARTITION]} END"
    return [f"{text} AS `{name}`" for name, text in sql.items()]


def _checks(columns: Columns, kinds: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns (condition, SQL that raises) in their order."""
    paths = columns.partition_and_offset
    partition, offset = map(quoted, paths)

    def error(path: str, reason: str, kind: str = BAD) -> str:
        at = [f"coalesce(CAST({column} AS STRING), '')" for column in (partition, offset)]
        return f"raise_error(concat('{MARK}', '{kind}', '{MARK}', '{path}', '{MARK}', '{reason}', {_joined(at)}))"

    wrong = [
        (f"{partition} IS NULL", error(paths[0], "is null")),
        (f"{partition} < 0 OR {partition} > {INT_MAX}L", error(paths[0], "is no partition of Kafka")),
        (f"{offset} IS NULL", error(paths[1], "is null")),
        (f"{offset} < 0 OR {offset} = {LONG_MAX}L", error(paths[1], "is no offset of Kafka")),
    ]
    if columns.timestamp:
        ms = _milliseconds(columns.timestamp, kinds)
        reason = "is a timestamp beyond what the table can hold"
        wrong.append((_beyond(ms), error(columns.timestamp, reason, UNHELD_TIME)))
    if columns.timestamp_type:
        kind = quoted(columns.timestamp_type)
        wrong.append((f"{kind} NOT IN (-1, 0, 1)", error(columns.timestamp_type, "is no type of a timestamp")))
    return wrong


def _milliseconds(path: str, kinds: Mapping[str, str]) -> str:
    column = quoted(path)
    return column if kinds[path] == "bigint" else f"unix_millis(CAST({column} AS TIMESTAMP))"


def _beyond(ms: str) -> str:
    return f"{ms} < {TIMESTAMP_MIN_MS}L OR {ms} > {TIMESTAMP_MAX_MS}L"


def unheld(columns: Columns, kinds: Mapping[str, str]) -> str:
    """Returns SQL over the stored columns for records that no topic's table can hold. What has no partition or offset
    is not one of them: the guards tell of it."""
    if columns.timestamp is None:
        return "false"
    placed = " AND ".join(f"{quoted(path)} IS NOT NULL" for path in columns.partition_and_offset)
    return f"coalesce({placed} AND ({_beyond(_milliseconds(columns.timestamp, kinds))}), false)"


def unheld_columns(columns: Columns, kinds: Mapping[str, str]) -> list[str]:
    """Returns a select list of UNHELD_COLUMNS over the stored columns."""
    sql = expressions(columns, kinds)
    assert columns.timestamp is not None, "nothing else is unheld"
    sql["timestamp_ms"] = _milliseconds(columns.timestamp, kinds)
    sql[HEADERS] = f"CAST({sql[HEADERS]} AS {UNHELD_COLUMNS[HEADERS]})"
    sql["reason"] = f"'{UNHELD_TIMESTAMP}'"
    return [f"{sql[name]} AS `{name}`" for name in UNHELD_COLUMNS]


def _joined(parts: list[str]) -> str:
    return ", ".join(f"'{MARK}', {part}" for part in parts) + f", '{MARK}'"


def beyond(columns: Columns, next_offsets: Mapping[int, int]) -> str:
    """Returns SQL over the stored columns for records at or beyond these offsets, and those of other partitions. What
    has no partition or offset stays: the guards tell of it."""
    partition, offset = map(quoted, columns.partition_and_offset)
    below = " OR ".join(f"({partition} = {p:d} AND {offset} < {end:d})" for p, end in sorted(next_offsets.items()))
    return f"NOT coalesce({below or 'false'}, false)"


def differing(first: str) -> str:
    """Returns SQL that raises for a record that differs from the `first` one of its offset."""
    names = ", ".join(f"IF({name} <=> {first}.{name}, NULL, '{name}')" for name in COMPARED)
    at = [f"CAST({name} AS STRING)" for name in (f"`{PARTITION}`", f"`{OFFSET}`")]
    return f"raise_error(concat('{MARK}', '{DIFFERS}', '{MARK}', concat_ws(',', {names}), '{MARK}', '', {_joined(at)}))"


def raised(text: str, table: str) -> CleantailError | None:
    """Returns the error that a task has told, None where this text has none. `table`: the source, for people."""
    parts = text.split(MARK)
    if len(parts) < 7:
        return None
    _, kind, names, reason, partition, offset, *_ = parts
    where = f"partition {partition or 'null'}, offset {offset or 'null'}"
    text = f"{table}: column {names} {reason}, in the record at {where}; nothing was appended"
    if kind == UNHELD_TIME:
        return UnholdableError(f"{text}. {WAY_OUT}")
    if kind == BAD:
        return SourceError(text)
    contradiction = Contradiction(int(partition), 1, int(offset), tuple(names.split(",")))
    return ContradictionError(
        f"{table}: {where}: two different records: {contradiction.difference}; nothing was appended. An offset has one "
        'record: does the table hold several topics? See "Two different records at one offset" in docs/operations.md',
        [contradiction],
    )

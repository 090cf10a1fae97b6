"""Read and write records in kcat's `-J` format: one JSON object per line.

`{"topic", "partition", "offset", "tstype", "ts", "headers": [k, v, ...], "key", "payload"}`. A null payload is a
tombstone, and a null key is no key; "" is an empty one. kcat writes bytes that are not UTF-8 unchanged, so lines are
read with surrogate escapes. `cleantail read` writes such a field as base64, and marks it by `key_encoding`,
`payload_encoding` or `headers_encoding` = "base64".

With `-s` kcat decodes Avro. If it cannot decode a key or payload, the field is null, and `key_error` or `payload_error`
has the reason. Such a line is not a record. A key or payload that is Avro's null is not a record either: in Kafka it
has bytes and is not a tombstone. Both are refused, or left out by `cleantail.unholdable.policy`.

A line that names another topic than the one being read is refused. A line without `topic` is accepted.

An error names field, number and JSON type only. Logs and alerts show it, so it never quotes a key, value or header.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, overload

from cleantail.config.input_limits import DEFAULT_LIMITS, HEADERS, InputLimits, limit_text, line_problem
from cleantail.config.unholdable import (
    ALL,
    HEADER_NAME,
    NO_TIMESTAMP_MS,
    TIMESTAMP,
    TIMESTAMP_MAX_MS,
    TIMESTAMP_MIN_MS,
    UNDECODED,
    UNHELD,
    WAY_OUT,
    Keep,
    Reason,
    is_held_timestamp,
)
from cleantail.errors import BadLineError, CleantailError
from cleantail.human import counted
from cleantail.sources.source_files import BLANK_LINES, FileContent

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
TIMESTAMP_TYPES = {"create": 0, "logappend": 1, "unknown": -1}
FIELDS = frozenset(
    ("topic", "partition", "offset", "tstype", "ts", "headers", "key", "payload")
    + ("key_encoding", "payload_encoding", "headers_encoding")
)
"""Names of the envelope in a line."""
ERRORS = {"key_error": "key", "payload_error": "payload"}
"""Field with the reason why kcat could not decode another field -> that other field."""
SCHEMA_IDS = {"key_schema_id": "key", "value_schema_id": "payload"}
"""Field with the Avro schema of another field -> that other field."""
OTHER_FIELDS = frozenset(("broker", *ERRORS, *SCHEMA_IDS))
"""Further names that kcat writes."""
IGNORED_MAX, IGNORED_SHOWN, IGNORED_CHARS = 100, 10, 40
"""Limits per file: names of ignored fields that are counted, names in the warning, characters of each name."""
BLANK_LINES_A_RECORD = 10
"""Blank lines that are accepted per record, on top of BLANK_LINES. More are an error: each costs time, and millions of
them compress to almost nothing."""
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""A topic name that Kafka allows (org.apache.kafka.common.internals.Topic)."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a log. `timestamp_ms` is None if it is unknown. A record with `value` None is a tombstone."""

    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class UndecodedRecord(Record):
    """A line whose key or value kcat could not decode: it has neither, and no headers."""


def read_records(
    file: Path,
    encoding: str = "text",
    topic: str | None = None,
    limits: InputLimits = DEFAULT_LIMITS,
    ignored: set[str] | None = None,
    keep: Keep = ALL,
) -> Iterator[Record]:
    """Yield the records of a `.jsonl` or `.jsonl.gz` file. `topic`, `ignored` and `keep` are as in parse_line.

    Raises BadLineError with the line's number for a bad line, and for one that exceeds a limit.
    """
    number, blank = 1, 0
    try:
        with FileContent(file, limits) as content:
            for line in content.lines():
                if line.strip():
                    record = parse_line(line, encoding, topic, limits, ignored, keep)
                    if record is not None:
                        yield record
                elif (blank := blank + 1) > BLANK_LINES + BLANK_LINES_A_RECORD * (number - blank):
                    raise ValueError(
                        f"{blank} blank lines, and at most {BLANK_LINES} are allowed, with {BLANK_LINES_A_RECORD} more "
                        "for each record before them: remove blank lines"
                    )
                number += 1
    except ValueError as e:
        raise BadLineError(file, number, str(e)) from None
    except (OSError, EOFError, zlib.error) as e:
        if isinstance(e, FileNotFoundError | PermissionError | IsADirectoryError):
            raise CleantailError(f"{file} cannot be read: {e.strerror}; nothing was appended") from None
        raise BadLineError(file, number, f"the file ends early or is not gzip: {e}") from None


@overload
def parse_line(
    line: bytes,
    encoding: str = ...,
    topic: str | None = ...,
    limits: InputLimits = ...,
    ignored: set[str] | None = ...,
) -> Record: ...


@overload
def parse_line(
    line: bytes, encoding: str, topic: str | None, limits: InputLimits, ignored: set[str] | None, keep: Keep
) -> Record | None: ...


def parse_line(
    line: bytes,
    encoding: str = "text",
    topic: str | None = None,
    limits: InputLimits = DEFAULT_LIMITS,
    ignored: set[str] | None = None,
    keep: Keep = ALL,
) -> Record | None:
    """Return the record of a line, None if `keep` leaves it out.

    If the line has a `topic`, it must equal `topic`; None accepts any. Adds to `ignored` the names of fields that kcat
    does not write, up to IGNORED_MAX. Raises ValueError with the field, its kind, and the allowed values.
    """
    if problem := line_problem(line, limits):
        raise ValueError(problem)
    fields = _json_object(line)
    _require_topic(fields, topic)
    undecoded = _undecoded_problem(fields)
    if undecoded and keep == ALL:
        raise ValueError(f"{undecoded}. {WAY_OUT}")
    if ignored is not None and len(ignored) < IGNORED_MAX:
        ignored.update(islice(fields.keys() - FIELDS - OTHER_FIELDS - ignored, IGNORED_MAX - len(ignored)))
    timestamp_ms = _integer(fields, "ts", -LONG_MAX - 1, LONG_MAX, default=NO_TIMESTAMP_MS)
    kind = UndecodedRecord if undecoded else Record
    if undecoded:
        fields |= {"key": None, "payload": None, "headers": None}
    record = kind(
        partition=_integer(fields, "partition", 0, INT_MAX),
        offset=_integer(fields, "offset", 0, LONG_MAX - 1),
        timestamp_ms=None if timestamp_ms == NO_TIMESTAMP_MS else timestamp_ms,
        timestamp_type=_timestamp_type(fields),
        key=_bytes(fields, "key", encoding),
        value=_bytes(fields, "payload", encoding),
        headers=_headers(fields, encoding, limits),
    )
    unheld = unheld_reason(record)
    if keep == ALL and unheld == TIMESTAMP:
        allowed = f"an integer from {TIMESTAMP_MIN_MS} to {TIMESTAMP_MAX_MS}"
        raise ValueError(f'"ts" is {timestamp_ms}: {allowed} is allowed; {WAY_OUT}')
    if keep == ALL and unheld == HEADER_NAME:
        raise ValueError(f'"headers" has a name that is not UTF-8; {WAY_OUT}')
    return record if keep == ALL or bool(unheld) == (keep == UNHELD) else None


def unheld_reason(record: Record) -> Reason | None:
    """Return why a topic's table cannot hold a record, None if it can."""
    if isinstance(record, UndecodedRecord):
        return UNDECODED
    if record.timestamp_ms is not None and not is_held_timestamp(record.timestamp_ms):
        return TIMESTAMP
    return None if all(_is_utf8(name) for name, _ in record.headers) else HEADER_NAME


def _json_object(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line.decode("utf-8", "surrogateescape"), object_pairs_hook=_without_repeated_names)
    except RecursionError:
        raise ValueError("nested too deeply: a record is an object, and only its headers are a list") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"not JSON: {e}") from None
    except ValueError as e:
        if str(e).startswith("Exceeds the limit"):  # Python's own limit: the time grows with the square of the digits
            raise ValueError("not JSON: a number of thousands of digits") from None
        raise
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object but {_kind(fields)}")
    if "payload" not in fields:
        raise ValueError('"payload" is missing: a record has one, null for a tombstone')
    return fields


def _require_topic(fields: dict[str, Any], topic: str | None) -> None:
    """Raise ValueError for a line of another topic: it would replace this topic's record at that offset.

    A text that is not a topic name may be data, and is not shown.
    """
    if "topic" not in fields:
        return
    name = fields["topic"]
    if not isinstance(name, str):
        raise ValueError('"topic" is not a string: the name of the topic is allowed, or no "topic" at all')
    if topic is None or name == topic:
        return
    if not TOPIC_NAME.fullmatch(name):
        raise ValueError(f'"topic" is not a name that Kafka allows: "{topic}" is allowed, or no "topic" at all')
    raise ValueError(
        f'"topic" is "{name}": a record of another topic; "{topic}" is allowed, or no "topic" at all. If {name} is '
        f"another name of this topic (renamed, prefixed, mirrored), set source.topic: {name} in the topic's YAML, or "
        "for these files alone --any-topic"
    )


def _undecoded_problem(fields: dict[str, Any]) -> str:
    """Return the problem of a line in which a null replaces undecoded data, "" without a problem.

    If such a line counted as a record, its key would be deleted or lost. kcat's error may quote the record and is not
    shown.
    """
    for error, name in ERRORS.items():
        if fields.get(error) is not None:
            return (
                f'"{error}" says that kcat could not decode the {name}: the line is not a record. Read the topic again '
                "without kcat's -s, or with the schema registry that has the schema"
            )
    for schema, name in SCHEMA_IDS.items():
        if fields.get(schema) is not None and fields.get(name) is None:
            return (
                f'"{schema}" is there and "{name}" is null: Avro\'s null, which has bytes in Kafka and does not delete '
                "a key. Read the topic again without kcat's -s"
            )
    return ""


def ignored_text(file: object, names: Collection[str]) -> str:
    """Return the warning about ignored fields of a file. The warning names a few fields, each shortened."""
    few = ", ".join(json.dumps(name[:IGNORED_CHARS]) for name in sorted(names)[:IGNORED_SHOWN])
    most = "at least " if len(names) >= IGNORED_MAX else ""
    more = f" and {most}{len(names) - IGNORED_SHOWN} more" if len(names) > IGNORED_SHOWN else ""
    fields = "field" if len(names) == 1 else "fields"
    return f"{file}: {fields} that kcat does not write, ignored: {few}{more}"


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises ValueError if a name occurs twice: it is unknown which of two offsets counts."""
    fields, envelope = dict(pairs), FIELDS | OTHER_FIELDS
    if len(fields) < len(pairs):
        times = Counter(name for name, _ in pairs)
        twice = next(name for name, count in times.items() if count > 1)
        # names of a nested object may be data
        raise ValueError(f'"{twice}" occurs twice' if twice in envelope else "a name occurs twice in an object")
    return fields


def _integer(fields: dict[str, Any], name: str, low: int, high: int, default: int | None = None) -> int:
    value = fields.get(name, default)
    if value is None:
        raise ValueError(f'"{name}" is missing: an integer from {low} to {high}')
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f'"{name}" is {_number_or_kind(value)}: an integer from {low} to {high} is allowed')
    return value


def _number_or_kind(value: object) -> str:
    """Return a number that is out of bounds, for the error. Return only the kind of any other value."""
    return str(value) if type(value) is int and abs(value) <= 10 * LONG_MAX else _kind(value)


def _timestamp_type(fields: dict[str, Any]) -> int:
    name = fields.get("tstype", "create")
    if not isinstance(name, str) or name not in TIMESTAMP_TYPES:
        raise ValueError(f'"tstype" is {_kind(name, "another string")}: one of {", ".join(TIMESTAMP_TYPES)} is allowed')
    return TIMESTAMP_TYPES[name]


def _bytes(fields: dict[str, Any], name: str, encoding: str) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f'"{name}" is {_kind(value)}: a string or null is allowed')
    return _decoded(value, name, fields.get(f"{name}_encoding", encoding))


def _decoded(value: str, name: str, encoding: object) -> bytes:
    if encoding == "text":
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f'"{name}" has a lone surrogate, which no bytes stand for') from None
    if encoding != "base64":
        raise ValueError(f'"{name}_encoding" is {_kind(encoding, "another string")}: text or base64 is allowed')
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f'"{name}" is a string of {counted(len(value), "character")} that is not base64') from None


def _headers(fields: dict[str, Any], encoding: str, limits: InputLimits) -> tuple[Header, ...]:
    flat = fields.get("headers")
    if flat is None:
        return ()
    if not isinstance(flat, list) or len(flat) % 2:
        raise ValueError('"headers" is not a list of names and values in turn')
    if len(flat) // 2 > limits.headers:
        most = f"at most {limits.headers} are allowed; {limit_text(HEADERS)}"
        raise ValueError(f'"headers" has {len(flat) // 2} entries, and {most}')
    encoding = fields.get("headers_encoding", encoding)
    return tuple(_header(name, value, encoding) for name, value in zip(flat[::2], flat[1::2], strict=True))


def _header(name: object, value: object, encoding: str) -> Header:
    if not isinstance(name, str) or not (value is None or isinstance(value, str)):
        kinds = f"{_kind(name)} and {_kind(value)}"
        raise ValueError(f'"headers" has {kinds}: a string and a string or null are allowed')
    return name, None if value is None else _decoded(value, "headers", encoding)


def _is_utf8(name: str) -> bool:
    """Return whether a header's name is UTF-8, as in Kafka: other bytes were read as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object, string: str = "a string") -> str:
    """Return the kind of a value, in JSON's words."""
    if value is None:
        return "null"
    kinds = ((bool, "true or false"), ((int, float), "a number"), (str, string), (list, "a list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "an object")


def format_record(topic: str, record: Record) -> str:
    """Return a record as a line of `kcat -J`, with kcat's order of fields. parse_line returns the record again."""
    names = {number: name for name, number in TIMESTAMP_TYPES.items()}
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": names.get(record.timestamp_type, "unknown"),
        "ts": -1 if record.timestamp_ms is None else record.timestamp_ms,
    }
    if record.headers:
        fields |= _encoded_headers(record.headers)
    return json.dumps(fields | _encoded("key", record.key) | _encoded("payload", record.value), ensure_ascii=False)


def _encoded(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_encoding": "base64", name: base64.b64encode(value).decode("ascii")}


def _encoded_headers(headers: tuple[Header, ...]) -> dict[str, Any]:
    try:
        return {"headers": [part for k, v in headers for part in (k, None if v is None else v.decode("utf-8"))]}
    except UnicodeDecodeError:
        values = [part for k, v in headers for part in (k, None if v is None else base64.b64encode(v).decode("ascii"))]
        return {"headers_encoding": "base64", "headers": values}

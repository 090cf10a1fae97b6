"""Writes a record as a line of kcat's `-J`, which `cleantail.sources.kcat` reads back as it was."""

from __future__ import annotations

import base64
import json
from typing import Any

from cleantail.sources.kcat import TIMESTAMP_TYPES, Header, Record


def format_record(topic: str, record: Record) -> str:
    """Returns a record as a line of `kcat -J`, fields in kcat's order; parse_line gives the same record back."""
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

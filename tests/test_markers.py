"""Markers are found in each form in which a program may have written them."""

from __future__ import annotations

import base64
import gzip
import html
import json
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.markers import traces

MARKER = 'Q7 "zmärker" of a key'
FORMS: dict[str, Callable[[str], bytes]] = {
    "raw": str.encode,
    "cut": lambda text: text[:14].encode(),
    "JSON": lambda text: json.dumps({"k": text}).encode(),
    "URL": lambda text: quote(text).encode(),
    "HTML": lambda text: html.escape(text).encode(),
    "repr": lambda text: repr({"k": text.encode()}).encode(),
    "hex": lambda text: text.encode().hex().encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "gzip": lambda text: gzip.compress(text.encode()),
    **{f"Base64 after {n}": lambda text, n=n: base64.b64encode(b"x" * n + text.encode()) for n in range(4)},
    "URL-safe Base64": lambda text: base64.urlsafe_b64encode(text.encode()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_marker_is_found_in_this_form(tmp_path: Path, form: str) -> None:
    file = tmp_path / "file.bin"
    file.write_bytes(FORMS[form]("another text") if form == "gzip" else b"other" + FORMS[form]("another text"))
    assert traces([file], MARKER) == {}
    file.write_bytes(FORMS[form](MARKER) if form == "gzip" else b"other" + FORMS[form](MARKER))
    assert traces([file], MARKER, "absent marker") == {str(file): [MARKER]}


def test_a_marker_is_found_in_compressed_parquet_and_in_packed_values_of_a_database(tmp_path: Path) -> None:
    parquet, database = tmp_path / "a.parquet", tmp_path / "a.db"
    pq.write_table(pa.table({"key": [b"x" * 50, MARKER.encode()]}), parquet, compression="zstd")
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE a (v)")
        connection.execute("INSERT INTO a VALUES (?)", (zlib.compress(MARKER.encode()),))
    connection.close()
    assert traces([parquet, database], MARKER) == {str(parquet): [MARKER], str(database): [MARKER]}

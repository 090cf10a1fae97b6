"""Traces of texts in files: the text itself, in the encodings in which programs write it, and in decoded files."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import fastavro
import pyarrow.parquet as pq

CUT = 14
"""Bounds in manifests are cut to 16 characters. So the first 16 characters of a marker must be unique."""


def decoded(file: Path) -> list[bytes]:
    """Return the content of a file: its bytes, and the values that a reader decodes from them."""
    content = file.read_bytes()
    texts = [content]
    if file.suffix == ".parquet":
        texts.append(repr(pq.read_table(file).to_pylist()).encode())
        texts.append(repr(pq.read_metadata(file).to_dict()).encode())
    elif file.suffix == ".avro":
        texts.append(repr(list(fastavro.reader(io.BytesIO(content)))).encode())
    elif content[:2] == b"\x1f\x8b":
        texts.append(gzip.decompress(content))
    elif content[:15] == b"SQLite format 3":
        texts += rows_of(file)  # a long value is cut by the pages of the file
    return [*texts, *(packed for text in texts for packed in packed_in(text))]


PACKED = re.compile(rb"eN[A-Za-z0-9+/]{8,}={0,2}")
"""Base64 of zlib's output: summaries of snapshots have such entries (cleantail.codec)."""


def packed_in(text: bytes) -> Iterator[bytes]:
    for found in PACKED.findall(text):
        with suppress(ValueError, zlib.error):
            yield zlib.decompress(base64.b64decode(found))


def rows_of(database: Path) -> Iterator[bytes]:
    """Yield every value of every table of an SQLite database. Values that zlib compressed are decompressed."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    connection.text_factory = bytes
    names = [name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for name in names:
        for row in connection.execute(f'SELECT * FROM "{name}"'):
            for value in row:
                if isinstance(value, bytes):
                    yield value
                    with suppress(zlib.error):
                        yield zlib.decompress(value)
    connection.close()


def encodings(marker: str) -> set[bytes]:
    """Return the byte strings to search for: the first CUT characters of a marker in every usual encoding."""
    start = marker[:CUT].encode()
    whole = {json.dumps(marker)[1:-1], quote(marker), html.escape(marker), repr(marker)[1:-1], repr(start)[2:-1]}
    # only the digits of Base64 that do not depend on the neighbouring bytes
    shifted = {base64.b64encode(b"\0" * at + start)[-(-at * 4 // 3) : -4] for at in range(3)}
    shifted |= {digits.replace(b"+", b"-").replace(b"/", b"_") for digits in shifted}
    wide = {marker[:CUT].encode(encoding) for encoding in ("utf-16-le", "utf-16-be")}
    hexed = start.hex().encode()
    return {start, hexed, hexed.upper(), *wide, *shifted, *(text.encode() for text in whole)}


Forms: TypeAlias = Callable[[str], Collection[bytes]]


def traces(files: Iterable[Path], *markers: str, forms: Forms = encodings) -> dict[str, list[str]]:
    """Return file -> markers, of each file that has a trace of one, in one of its forms."""
    sought = tuple((marker, frozenset(forms(marker))) for marker in markers)
    found = dict[str, list[str]]()
    for file in files:
        # tests search the same files many times, and these never change
        look = _kept_traces if file.suffix in (".parquet", ".avro") else _traces
        if there := look(file, file.stat().st_mtime_ns, sought):
            found[str(file)] = there
    return found


def _traces(file: Path, _: int, sought: Iterable[tuple[str, frozenset[bytes]]]) -> list[str]:
    texts = decoded(file)
    return [m for m, its_forms in sought if any(form in text for form in its_forms for text in texts)]


_kept_traces = cache(_traces)

"""Limits of one file of a source, so that a damaged or hostile file cannot exhaust a worker. Pure.

Imports only the standard library, because tasks on workers load it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LINE_BYTES = "line.max.bytes"
FILE_BYTES = "file.max.bytes"
FILE_RATIO = "file.max.ratio"
HEADERS = "record.max.headers"
BATCH_BYTES = "batch.max.bytes"
YAML_BYTES = "yaml.max.bytes"
METADATA_BYTES = "metadata.max.bytes"
MANIFEST_BYTES = "manifest.max.bytes"
DELETES_BYTES = "deletes.max.bytes"
INGEST_MS = "ingest.max.ms"
CHECKS_MS = "checks.max.ms"
FREE_BYTES = 64 << 20
"""A file may unpack to this size regardless of its ratio: small files that repeat a few words are common."""


@dataclass(frozen=True, slots=True)
class InputLimits:
    """Limits of one file; each limit itself is allowed. The settings are those of `platform.limits`.

    line_bytes  of a line, with its end
    file_bytes  of a file's content, unpacked
    file_ratio  unpacked bytes to those of a .gz file, beyond FREE_BYTES
    headers     of a record
    batch_bytes of a record batch in a segment of a broker's log, packed or unpacked
    """

    line_bytes: int = 64 << 20
    file_bytes: int = 64 << 30
    file_ratio: int = 250
    headers: int = 1000
    batch_bytes: int = 256 << 20

    def unpacked_bytes(self, packed_bytes: int) -> int:
        """Return how many unpacked bytes of a .gz file of that size are read."""
        return min(self.file_bytes, max(FREE_BYTES, packed_bytes * self.file_ratio))


DEFAULT_LIMITS = InputLimits()
LONG_LINE_BYTES = 1 << 20
OTHER_STRINGS = 10_000
"""Strings that a record may have in addition to its headers: names and values of its fields, also of ignored ones."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string of JSON, also one that the line ends in. Each character is read once."""


def limit_text(setting: str) -> str:
    """Return where a limit is set, for the end of an error."""
    return f"the limit is {setting} under `platform: limits:` in defaults.yaml"


def line_problem(line: bytes, limits: InputLimits = DEFAULT_LIMITS) -> str | None:
    """Return the problem of a long line before it is parsed, or None.

    Only strings of a record may be long. Lists, objects and numbers become objects of up to 30 times their text, so a
    line of them, which compresses well, would take gigabytes. Every string also costs time, however short it is.
    """
    if len(line) <= LONG_LINE_BYTES:
        return None
    most, strings = LONG_LINE_BYTES + 8 * limits.headers, 0
    most_strings = OTHER_STRINGS + 2 * limits.headers
    for count, string in enumerate(_STRING.finditer(line), 1):
        if string.start() - strings > most:
            break
        if count > most_strings:
            return f"more than {most_strings} strings: names and values of headers and fields; {limit_text(HEADERS)}"
        strings += string.end() - string.start()
    else:
        if len(line) - strings <= most:
            return None
    return f"more than {most} bytes outside of strings: a record is an object of strings and a few numbers"

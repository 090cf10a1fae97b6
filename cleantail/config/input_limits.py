"""Says how much one file of a source may hold: what keeps a broken or hostile one from costing a worker. Pure.

Nothing but the standard library is imported: tasks on workers load it.
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
"""A file may unpack to as many bytes whatever its ratio: small files of a few repeated words are common."""


@dataclass(frozen=True, slots=True)
class InputLimits:
    """Bounds of one file; each is the highest that is allowed. The settings are those of `platform.limits`.

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
        """Returns how many unpacked bytes of a .gz file of that size are read."""
        return min(self.file_bytes, max(FREE_BYTES, packed_bytes * self.file_ratio))


DEFAULT_LIMITS = InputLimits()
LONG_LINE_BYTES = 1 << 20
OTHER_STRINGS = 10_000
"""The strings that a record may have beside its headers: names and values of its fields, ignored fields included."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Finds a string of JSON, also one that the line ends in; each character is looked at once."""


def limit_text(setting: str) -> str:
    """Returns where a limit is set, for the end of an error."""
    return f"the limit is {setting} under `platform: limits:` in defaults.yaml"


def line_problem(line: bytes, limits: InputLimits = DEFAULT_LIMITS) -> str | None:
    """Returns what is wrong with a long line before it is parsed; None where nothing is.

    What is long in a record are its strings. Lists, objects and numbers become objects of up to 30 times their text, so
    a line of them, which packs to nothing, would take gigabytes. And every string costs a look, however short it is.
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

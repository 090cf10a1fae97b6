"""Tells whether a file may be ingested, and whether it was ingested before: by its content, whatever its name.

1. A file is known by the digest of its decompressed content (`content_digest`): a copy, and its .gz, are the same file.
2. What is read after that has to be what the digest was taken of, so a file that changes meanwhile is refused
   (`file_state`, `require_unchanged`).

Which files a source has is found elsewhere (cleantail.config.claims.source_paths).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from cleantail.config.settings.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.errors import BadLineError, CleantailError, OutsideError
from cleantail.sources.input_content import Content

_READ_ERRORS = (OSError, EOFError, gzip.BadGzipFile, zlib.error)
"""What Python raises for a file that cannot be read, or is a damaged .gz."""


def require_readable(files: Iterable[Path]) -> None:
    """Raises CleantailError, before anything is started, for a path that is no readable file."""
    for file in files:
        if not file.exists():
            raise CleantailError(f"{file} does not exist; nothing was appended")
        if file.is_dir():
            raise CleantailError(f"{file} is a folder, and a file of records is needed there; nothing was appended")
        if not file.is_file() or not os.access(file, os.R_OK):
            raise CleantailError(f"{file} is not a file that can be read; nothing was appended")


def file_state(file: Path) -> str | None:
    """Returns a text that changes whenever the file does, None where there is no such file.

    Size and time of the last write can be as before although the content is not. The time at which the inode changed
    (ctime) is in the text as well, and nobody can set that.
    """
    try:
        status = file.stat()
    except OSError:
        return None
    parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ":".join(map(str, parts))


def require_unchanged(states: Mapping[Path, str | None]) -> None:
    """Raises OutsideError for a file that has changed since its state was taken, before its digest.

    Its records may be others than those that the digest stands for: the table would remember these as ingested, and
    never read them.
    """
    for file, state in states.items():
        if file_state(file) != state:
            raise OutsideError(
                f"{file} changed while it was read; nothing was appended. Try again once its producer has finished it: "
                f"a file is written under another name or in another folder, and moved here when it is whole"
            )


def content_digest(file: Path, limits: InputLimits = DEFAULT_LIMITS) -> str:
    """Returns SHA-256 of the decompressed content, as hexadecimal digits.

    Raises CleantailError where there is no such file, BadLineError where it is damaged or passes a limit.
    """
    digest, lines = hashlib.sha256(), 0
    try:
        with Content(file, limits) as content:
            for block in content.blocks():
                digest.update(block)
                lines += block.count(b"\n")
    except FileNotFoundError:
        raise CleantailError(f"{file} does not exist; nothing was appended") from None
    except ValueError as e:
        raise BadLineError(file, lines + 1, f"{e}; nothing was appended") from None
    except _READ_ERRORS as e:
        raise BadLineError(file, lines + 1, f"the file ends early or cannot be read: {e}") from None
    return digest.hexdigest()

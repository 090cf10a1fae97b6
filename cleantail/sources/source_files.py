"""Which files a source has, and how a file is recognized: by its content, whatever its name and compression."""

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

UNREADABLE = (OSError, EOFError, gzip.BadGzipFile, zlib.error)


def require_readable(files: Iterable[Path]) -> None:
    """Raises CleantailError, before anything is started, for a path that is no readable file."""
    for file in files:
        if not file.exists():
            raise CleantailError(f"{file} does not exist; nothing was appended")
        if not file.is_file() or not os.access(file, os.R_OK):
            raise CleantailError(f"{file} is not a file that can be read; nothing was appended")


def file_state(file: Path) -> str | None:
    """Returns a text that changes whenever the file does, None where there is no such file.

    Nobody can set the time at which its inode last changed (ctime), which is part of the text.
    """
    try:
        status = file.stat()
    except OSError:
        return None
    parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ":".join(map(str, parts))


def require_unchanged(states: Mapping[Path, str | None]) -> None:
    """Raises OutsideError for a file that has changed since its digest was taken.

    Its records may be others than those that the digest stands for, and these would never be read again.
    """
    for file, state in states.items():
        if file_state(file) != state:
            raise OutsideError(
                f"{file} changed while it was read; nothing was appended. Try again once its producer has finished it: "
                f"a file is written under another name or in another folder, and moved here when it is whole"
            )


def content_digest(file: Path, limits: InputLimits = DEFAULT_LIMITS) -> str:
    """Returns SHA-256 of the decompressed content, so that a file and its .gz are the same.

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
    except UNREADABLE as e:
        raise BadLineError(file, lines + 1, f"the file ends early or cannot be read: {e}") from None
    return digest.hexdigest()

"""Which files a source has, and how one is known: by its content, whatever its name and compression."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from cleantail.errors import BadLineError, CleantailError
from cleantail.kcat import open_lines

BLOCK_BYTES = 1 << 20
UNREADABLE = (OSError, EOFError, gzip.BadGzipFile, zlib.error)


def require_readable(files: Iterable[Path]) -> None:
    """Raises CleantailError, before anything is started, for a path that is no readable file."""
    for file in files:
        if not file.exists():
            raise CleantailError(f"{file} does not exist; nothing was appended")
        if not file.is_file() or not os.access(file, os.R_OK):
            raise CleantailError(f"{file} is not a file that can be read; nothing was appended")


def matching_files(home: Path, pattern: str) -> list[Path]:
    """The files that a source.path means, in the order of names; relative to CLEANTAIL_HOME."""
    found = glob.glob(os.path.join(glob.escape(str(home)), pattern), recursive=True)  # an absolute path stays as it is
    return sorted(path for path in map(Path, found) if path.is_file())


def content_digest(file: Path) -> str:
    """SHA-256 of the decompressed content, so that a file and its .gz are the same.

    Raises CleantailError where there is no such file, BadLineError where it is damaged.
    """
    digest, lines = hashlib.sha256(), 0
    try:
        with open_lines(file) as content:
            while block := content.read(BLOCK_BYTES):
                digest.update(block)
                lines += block.count(b"\n")
    except FileNotFoundError:
        raise CleantailError(f"{file} does not exist; nothing was appended") from None
    except UNREADABLE as e:
        raise BadLineError(file, lines + 1, f"the file ends early or cannot be read: {e}") from None
    return digest.hexdigest()

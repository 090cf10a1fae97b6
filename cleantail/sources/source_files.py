"""Files of records: their identity, their content within limits, and how tasks share their lines.

1. A file is identified by the digest of its decompressed content (`content_digest`): a copy, and its .gz, are the same
   file.
2. The records must come from the content that was digested, so a file that changes meanwhile is refused (`file_state`,
   `require_unchanged`).
3. A large file is cut into ranges of bytes, and small files share a task. A .gz file is one range, because it can only
   be read from its start.

cleantail.config.source_paths decides which files a source has.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from cleantail.config.input_limits import (
    DEFAULT_LIMITS,
    FILE_BYTES,
    FILE_RATIO,
    LINE_BYTES,
    InputLimits,
    limit_text,
)
from cleantail.errors import BadLineError, CleantailError, OutsideError
from cleantail.home.home_folder import open_resolved

BLOCK_BYTES = 1 << 20
LINE_BLOCK_BYTES = 2 << 20
"""Lines are read in blocks of about this size, each to the end of its last line."""
BLANK_LINES = 100_000
"""Blank lines of a file that are always accepted."""
RANGE_BYTES_MIN = 64 << 20
"""Smallest range that a file is cut into: each range makes data files of its own."""
TASKS_PER_CORE = 1
"""Each task writes files of its own: more tasks would make more and smaller files."""
_READ_ERRORS = (OSError, EOFError, gzip.BadGzipFile, zlib.error)
"""Errors of Python for a file that cannot be read, or a damaged .gz."""


class FileContent:
    """The bytes of a file, decompressed if its name ends in .gz.

    All methods raise ValueError as soon as a limit is exceeded, before the rest of a .gz file is decompressed.
    """

    def __init__(self, file: Path, limits: InputLimits) -> None:
        self._stream = _opened(file)
        self._size = os.fstat(self._stream.fileno()).st_size
        self._packed_bytes = self._size if file.name.endswith(".gz") else None
        self._limits = limits
        self._most = limits.file_bytes if self._packed_bytes is None else limits.unpacked_bytes(self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()

    def blocks(self) -> Iterator[bytes]:
        """Yield the whole content in blocks of up to BLOCK_BYTES."""
        left = self._most
        while block := self._stream.read(BLOCK_BYTES):
            if (left := left - len(block)) < 0:
                raise self._too_much()
            yield block

    def lines(self) -> Iterator[bytes]:
        """Yield each line with its end. Only \\n ends a line, as kcat writes it."""
        left, most, readline = self._most, self._limits.line_bytes, self._stream.readline
        while line := readline(most + 1):
            size = len(line)
            if size > most:
                raise ValueError(f"a line of more than {most} bytes; {limit_text(LINE_BYTES)}")
            if (left := left - size) < 0:
                raise self._too_much()
            yield line

    def line_blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the lines that begin in bytes [start, end), in blocks of whole lines of about LINE_BLOCK_BYTES.

        The last line of a file may have no end. A .gz file is read from its start.
        """
        left, most, stream = self._most, self._limits.line_bytes, self._stream
        if self._packed_bytes is None and self._size > left:
            raise self._too_much()
        at = self._begin(start)
        while end is None or at < end:
            block = stream.read(LINE_BLOCK_BYTES if end is None else min(LINE_BLOCK_BYTES, end - at))
            if not block:
                return
            if not block.endswith(b"\n"):
                block += stream.readline(most + 1)
                if not block.endswith(b"\n") and stream.read(1):
                    raise ValueError(f"a line of more than {most} bytes; {limit_text(LINE_BYTES)}")
            at += len(block)
            if (left := left - len(block)) < 0:
                raise self._too_much()
            yield block

    def _begin(self, start: int) -> int:
        """Seek to the first line that begins at `start` or later, and return its position."""
        if not start:
            return 0
        at = self._stream.seek(start - 1)
        while piece := self._stream.readline(BLOCK_BYTES):
            at += len(piece)
            if piece.endswith(b"\n"):
                break
        return at

    def _too_much(self) -> ValueError:
        if self._packed_bytes is None or self._most == self._limits.file_bytes:
            return ValueError(f"a file of more than {self._most} bytes, unpacked; {limit_text(FILE_BYTES)}")
        return ValueError(
            f"{self._packed_bytes} bytes that unpack to more than {self._most}, over {self._limits.file_ratio} times "
            f"as many; {limit_text(FILE_RATIO)}"
        )


def _opened(file: Path) -> BinaryIO | gzip.GzipFile:
    """Open the file without following links: a link may have replaced the checked file. Raises OSError."""
    try:
        stream = os.fdopen(open_resolved(file), "rb")
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise CleantailError(f"{file} cannot be read: a part of its path is a link; nothing was appended") from None
        raise
    return _Unpacked(stream) if file.name.endswith(".gz") else stream


class _Unpacked(gzip.GzipFile):
    """A GzipFile that also closes the file below it."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


@dataclass(frozen=True, slots=True)
class FileRange:
    """The lines of a file that begin in bytes [start, end). If `end` is None, all lines from `start` on.

    Up to `blank_lines` blank lines are accepted without a count over the whole file.
    """

    file: Path
    start: int = 0
    end: int | None = None
    blank_lines: int = BLANK_LINES


def file_tasks(sizes: Mapping[Path, int], cores: int) -> tuple[tuple[FileRange, ...], ...]:
    """Return the ranges of each task, in the order of the files. `sizes`: bytes on the disk."""
    share = max(RANGE_BYTES_MIN, -(-sum(sizes.values()) // (cores * TASKS_PER_CORE)))
    tasks: list[list[FileRange]] = []
    filled = 0
    for file, size in sizes.items():
        pieces = 1 if file.name.endswith(".gz") else max(1, round(size / share))
        cuts = [size * number // pieces for number in range(pieces)]
        for start, end in zip(cuts, [*cuts[1:], None], strict=True):
            piece = FileRange(file, start, end, BLANK_LINES // pieces)
            if not tasks or filled + size // pieces > share:
                tasks.append([])
                filled = 0
            tasks[-1].append(piece)
            filled += size // pieces
    return tuple(map(tuple, tasks))


def require_readable(files: Iterable[Path]) -> None:
    """Raise CleantailError for a path that is not a readable file."""
    for file in files:
        if not file.exists():
            raise CleantailError(f"{file} does not exist; nothing was appended")
        if file.is_dir():
            raise CleantailError(f"{file} is a folder, not a file of records; nothing was appended")
        if not file.is_file() or not os.access(file, os.R_OK):
            raise CleantailError(f"{file} is not a readable file; nothing was appended")


def file_state(file: Path) -> str | None:
    """Return a text that changes whenever the file does, None if the file does not exist.

    Size and modification time may stay the same although the content changes. So the text also has the inode's change
    time (ctime), which no user can set.
    """
    try:
        status = file.stat()
    except OSError:
        return None
    parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return ":".join(map(str, parts))


def require_unchanged(states: Mapping[Path, str | None]) -> None:
    """Raise OutsideError if a file has changed since its state was taken, before its digest.

    Its records may differ from the digested content, which the table would then remember as ingested.
    """
    for file, state in states.items():
        if file_state(file) != state:
            raise OutsideError(
                f"{file} changed while it was read; nothing was appended. Try again when its producer has finished it. "
                "A producer should write a file elsewhere, and move it here when it is complete"
            )


def content_digest(file: Path, limits: InputLimits = DEFAULT_LIMITS) -> str:
    """Return the SHA-256 of the decompressed content, as hexadecimal digits.

    Raises CleantailError if the file does not exist, BadLineError if it is damaged or exceeds a limit.
    """
    digest, lines = hashlib.sha256(), 0
    try:
        with FileContent(file, limits) as content:
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

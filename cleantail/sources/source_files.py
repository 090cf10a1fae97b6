"""Tells whether a file may be ingested, and whether it was ingested before: by its content, whatever its name.

1. A file is known by the digest of its decompressed content (`content_digest`): a copy, and its .gz, are the same file.
2. What is read after that has to be what the digest was taken of, so a file that changes meanwhile is refused
   (`file_state`, `require_unchanged`).

Which files a source has is found elsewhere (cleantail.config.source_paths).
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
"""Lines are read together in blocks of this size, and to the end of the last one."""


class Content:
    """Reads the bytes of a file, decompressed where its name ends in .gz.

    All readers raise ValueError where a limit is passed: in a .gz file that is before the rest is unpacked.
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
        """Yields the whole content in pieces of up to BLOCK_BYTES."""
        left = self._most
        while block := self._stream.read(BLOCK_BYTES):
            if (left := left - len(block)) < 0:
                raise self._too_much()
            yield block

    def lines(self) -> Iterator[bytes]:
        """Yields each line with its end. Only \\n ends one, as kcat writes them."""
        left, most, readline = self._most, self._limits.line_bytes, self._stream.readline
        while line := readline(most + 1):
            size = len(line)
            if size > most:
                raise ValueError(f"a line of more than {most} bytes; {limit_text(LINE_BYTES)}")
            if (left := left - size) < 0:
                raise self._too_much()
            yield line

    def line_blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yields the lines that begin in bytes [start, end), whole lines together, of about BLOCK_BYTES; the last line
        of a file may have no end. A .gz file is read from its start."""
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
        """Goes to the first line that begins at `start` or behind it, and returns where that is."""
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
    """Returns the file's stream. No link on the way is followed: one may have replaced what was checked. Raises
    OSError."""
    try:
        stream = os.fdopen(open_resolved(file), "rb")
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise CleantailError(f"{file} cannot be read: there is a link on its way; nothing was appended") from None
        raise
    return _Unpacked(stream) if file.name.endswith(".gz") else stream


class _Unpacked(gzip.GzipFile):
    """Closes the file as well."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


BLANK_LINES = 100_000
"""Blank lines of a file that are always accepted."""
RANGE_BYTES_MIN = 64 << 20
"""The size of the smallest range of a file that is cut: a smaller range is not worth data files of its own."""
TASKS_PER_CORE = 1
"""Each task writes files of its own: more tasks would make more and smaller ones."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Names the lines of a file that begin in bytes [start, end); where `end` is None, all lines from `start` on.

    Up to `blank_lines` blank lines are accepted without counting those of the whole file.
    """

    file: Path
    start: int = 0
    end: int | None = None
    blank_lines: int = BLANK_LINES


def file_tasks(sizes: Mapping[Path, int], cores: int) -> tuple[tuple[FileRange, ...], ...]:
    """Returns the ranges of each task, in the order of the files. `sizes`: bytes on the disk."""
    share = max(RANGE_BYTES_MIN, -(-sum(sizes.values()) // (cores * TASKS_PER_CORE)))
    tasks: list[list[FileRange]] = []
    filled = 0
    for file, size in sizes.items():
        pieces = 1 if file.name.endswith(".gz") else max(1, round(size / share))
        for piece in _pieces(file, size, pieces):
            if not tasks or filled + size // pieces > share:
                tasks.append([])
                filled = 0
            tasks[-1].append(piece)
            filled += size // pieces
    return tuple(map(tuple, tasks))


def _pieces(file: Path, size: int, pieces: int) -> list[FileRange]:
    cuts = [size * number // pieces for number in range(pieces)]
    ends = [*cuts[1:], None]
    return [FileRange(file, start, end, BLANK_LINES // pieces) for start, end in zip(cuts, ends, strict=True)]


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

"""The unpacked content of a source's file, in blocks or lines: no more of it is held or read than the limits allow."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from cleantail.config.settings.input_limits import FILE_BYTES, FILE_RATIO, LINE_BYTES, InputLimits, limit_text
from cleantail.errors import CleantailError
from cleantail.home.private_files import open_resolved

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

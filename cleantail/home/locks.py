"""Locks between the processes of one machine. A lock is released when its process ends, however it ends.

Across machines the table's own commits decide: they are compare-and-swap, and a round that lost starts over.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cleantail.errors import CleantailError, OutsideError
from cleantail.home.conditions import holds_within
from cleantail.home.private_files import make_folder

_PAUSE_S = 0.1
NAME_CHARS = 180
"""A longer name of a lock is cut, and gets a hash."""


@contextmanager
def exclusive(home: Path, name: str, within_s: float | None = None) -> Iterator[None]:
    """Waits for the lock `name` under CLEANTAIL_HOME/locks and holds it for the block.

    Raises CleantailError where the lock cannot be made, and OutsideError where `within_s` seconds have passed without
    it.
    """
    try:
        folder = make_folder(home, "locks")
        file = (folder / _file_name(name)).open("w", encoding="utf-8")
    except OSError as e:
        raise CleantailError(f"CLEANTAIL_HOME {home} cannot be written: {e.strerror}: {e.filename}") from None
    with file:
        _wait(file, name, within_s)
        yield


def _file_name(name: str) -> str:
    """Returns the name of a lock's file. File systems take 255 bytes: a topic's name may have 249, without the word
    before it."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if len(plain) <= NAME_CHARS else f"{plain[:NAME_CHARS]}-{hashlib.sha256(name.encode()).hexdigest()}"


def _wait(file: IO[str], name: str, within_s: float | None) -> None:
    if within_s is None:
        fcntl.flock(file, fcntl.LOCK_EX)
    elif not holds_within(lambda: _is_taken(file), every_s=_PAUSE_S, within_s=within_s):
        raise OutsideError(f"another process holds the lock {name} for over {within_s:g} s")


def _is_taken(file: IO[str]) -> bool:
    """Takes the lock if nobody holds it, and returns whether it is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""Copies of standard input in CLEANTAIL_HOME, each only while a process reads it. Copies have keys and values.

A process that is killed leaves its copy. The next copy, and each erasure, deletes copies that no process locks.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from cleantail.home.home_folder import exclusive, make_folder

FOLDER = "stdin"


@contextmanager
def copy_folder(home: Path) -> Iterator[Path]:
    """Make a private folder for one copy, and delete it after the block. Raises OSError."""
    delete_dead(home)
    with exclusive(home, FOLDER):  # otherwise another process could find the folder without its lock
        folder = TemporaryDirectory(dir=make_folder(home, FOLDER))
        lock = os.open(folder.name, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    with folder:
        try:
            yield Path(folder.name)
        finally:
            os.close(lock)


def delete_dead(home: Path) -> None:
    """Delete the copies of processes that have died."""
    if not (home / FOLDER).is_dir():
        return
    with exclusive(home, FOLDER):
        for folder in (home / FOLDER).iterdir():
            lock = os.open(folder, os.O_RDONLY)
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            os.close(lock)

"""CLEANTAIL_HOME on the disk: private folders and files, the paths of Data Docs, and locks between processes.

Anyone who may read the folder can read catalog, tables, Data Docs, alerts and landed files, even without any right in
Airflow. So Cleantail makes it for its owner only (0700). It keeps the mode of an existing folder, and warns if that is
open.

A lock works between the processes of one machine, and is released when its process ends. Across machines the table's
commits decide: each is a compare-and-swap, and a round that loses starts over.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from cleantail.errors import CleantailError, OutsideError

OWNER_FOLDER_MODE = 0o700
OWNER_FILE_MODE = 0o600
GROUP_AND_OTHERS = 0o077
"""Permission bits of group and others."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = "data_docs"
"""Folder with a project of Great Expectations for each topic."""
GENERATOR = '<meta name="generator" content="cleantail data docs 2">'
"""Marks a page that Cleantail wrote."""
HEAD_CHARS = 2000
"""GENERATOR is within this many characters from a page's start."""
NAME_CHARS = 180
"""A longer name of a lock is truncated and ends in a hash."""
_PAUSE_S = 0.1


def make_home(home: Path) -> None:
    """Make the folder if it is missing, for its owner only. Folders above it get the default mode."""
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=OWNER_FOLDER_MODE, exist_ok=True)


def make_folder(home: Path, *parts: str) -> Path:
    """Return a folder in the home. Makes both if they are missing."""
    make_home(home)
    folder = home.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_to_others(home: Path) -> str | None:
    """Return a warning if users other than its owner may enter or read the home. None if not."""
    try:
        mode = stat.S_IMODE(home.stat().st_mode)
    except OSError:
        return None
    if not mode & GROUP_AND_OTHERS:
        return None
    return (
        f"CLEANTAIL_HOME {home} is open to users other than its owner (mode {mode:04o}), and with it tables, landed "
        f"files and alerts: chmod 700 {home}"
    )


def append_line(home: Path, path: str, line: str) -> None:
    """Append a line to a private file in the home, by one write: lines of parallel tasks do not mix. A last line that a
    killed process or a full disk has cut is ended first.

    Below the home no link is followed, because it could lead to a file that must not be written. Raises CleantailError
    for a link, and for a file that is not regular or has a second name.
    """
    make_home(home)
    *folders, name = PurePosixPath(path).parts
    opened = [os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, OWNER_FOLDER_MODE, dir_fd=opened[-1])
            opened.append(os.open(folder, _FOLDER, dir_fd=opened[-1]))
        opened.append(os.open(name, _APPEND, OWNER_FILE_MODE, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise CleantailError(f"{home / path} is not a regular file, or has a second name; nothing was written")
        is_cut = status.st_size > 0 and os.pread(opened[-1], 1, status.st_size - 1) != b"\n"
        os.write(opened[-1], ("\n" * is_cut + f"{line}\n").encode())
    except OSError as e:
        raise CleantailError(f"{home / path} cannot be written without following links: {e.strerror}") from None
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)


def open_resolved(file: Path) -> int:
    """Open a file for reading, by a path without links. Raises OSError if a part of it is a link."""
    *folders, name = file.parts[1:] if file.anchor else file.parts
    above = os.open(file.anchor or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for folder in folders:
        try:
            below = os.open(folder, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
        above = below
    try:
        return os.open(name, _READ, dir_fd=above)
    finally:
        os.close(above)


def uncommitted_of(home: Path, topic: str) -> Path:
    """Return the folder of a topic's results and pages, with the names of Great Expectations."""
    return home / FOLDER / topic / "gx" / "uncommitted"


def results_of(home: Path, topic: str) -> Path:
    return uncommitted_of(home, topic) / "validations"


def site_of(home: Path, topic: str) -> Path:
    """Return the root of a topic's pages. `topic` must be a configured topic, never a client's text."""
    return uncommitted_of(home, topic) / "data_docs" / "local_site"


def holds_within(condition: Callable[[], bool], every_s: float, within_s: float) -> bool:
    """Poll the condition at least once. Return whether it held in time."""
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

    return Retrying(
        retry=retry_if_result(lambda holds: not holds),
        stop=stop_after_delay(within_s),
        wait=wait_fixed(every_s),
        retry_error_callback=lambda _: False,
    )(condition)


@contextmanager
def exclusive(home: Path, name: str, within_s: float | None = None) -> Iterator[None]:
    """Hold the lock `name` under CLEANTAIL_HOME/locks for the block.

    Raises CleantailError if the lock cannot be made, and OutsideError if it is not free within `within_s` seconds.
    """
    try:
        folder = make_folder(home, "locks")
        file = (folder / _file_name(name)).open("w", encoding="utf-8")
    except OSError as e:
        raise CleantailError(f"CLEANTAIL_HOME {home} cannot be written: {e.strerror}: {e.filename}") from None
    with file:
        if within_s is None:
            fcntl.flock(file, fcntl.LOCK_EX)
        elif not holds_within(lambda: _is_taken(file), every_s=_PAUSE_S, within_s=within_s):
            raise OutsideError(f"another process holds the lock {name} for over {within_s:g} s")
        yield


def _file_name(name: str) -> str:
    """Return the name of a lock's file. It has at most 255 bytes, and a topic's name alone may have 249."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if len(plain) <= NAME_CHARS else f"{plain[:NAME_CHARS]}-{hashlib.sha256(name.encode()).hexdigest()}"


def _is_taken(file: IO[str]) -> bool:
    """Try to take the lock without waiting. Return whether it succeeded."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

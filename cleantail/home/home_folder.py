"""CLEANTAIL_HOME on the disk: made for its owner alone, and files appended to in it without following links.

Catalog, tables, Data Docs, alerts and landed files are open to whoever may read the folder, whatever Airflow lets them
see. So the folder that Cleantail makes is its owner's (0700). A folder that was there before stays as it is, since
somebody may count on it: a warning says that it is open.
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
"""The bits of what group and others may do."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_home(home: Path) -> None:
    """Makes the folder where it is missing, for its owner alone; folders above it get the modes that the system
    gives."""
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=OWNER_FOLDER_MODE, exist_ok=True)


def make_folder(home: Path, *parts: str) -> Path:
    """Returns a folder in the home; both are made where they are missing."""
    make_home(home)
    folder = home.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_to_others(home: Path) -> str | None:
    """Returns what to say of a home that others than its owner may enter or read; None where there is no home, or
    nothing to say."""
    try:
        mode = stat.S_IMODE(home.stat().st_mode)
    except OSError:
        return None
    if not mode & GROUP_AND_OTHERS:
        return None
    return (
        f"CLEANTAIL_HOME {home} is open to others than its owner (mode {mode:04o}), and with it tables, landed files "
        f"and alerts: chmod 700 {home}"
    )


def append_line(home: Path, path: str, line: str) -> None:
    """Appends a line to a file in the home by one write, so that lines of parallel tasks do not mix; the file is its
    owner's.

    No link is followed below the home, neither as the file nor as a folder on the way: it could lead to a file that
    must not be written to. Raises CleantailError where there is a link, and where the file is not an ordinary one of
    this name alone.
    """
    make_home(home)
    *folders, name = PurePosixPath(path).parts
    opened = [os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for folder in folders:
            opened.append(_entered(folder, opened[-1]))
        opened.append(os.open(name, _APPEND, OWNER_FILE_MODE, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise CleantailError(f"{home / path} is not an ordinary file of this name alone; nothing was written")
        os.write(opened[-1], f"{line}\n".encode())
    except OSError as e:
        raise CleantailError(f"{home / path} cannot be written without following links: {e.strerror}") from None
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)


def _entered(folder: str, above: int) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, OWNER_FOLDER_MODE, dir_fd=above)
    return os.open(folder, _FOLDER, dir_fd=above)


def open_resolved(file: Path) -> int:
    """Returns a descriptor of a file whose path has no link in it: a link that was put on the way since is not
    followed. Raises OSError."""
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


FOLDER = "data_docs"
"""It has a folder for each topic, with what Great Expectations calls a project."""
GENERATOR = '<meta name="generator" content="cleantail data docs 2">'
"""Marks a page as one that Cleantail wrote."""
HEAD_CHARS = 2000
"""In the beginning of a page it says who made it."""


def uncommitted_of(home: Path, topic: str) -> Path:
    """Returns the folder of a topic's results and pages: the names are those that Great Expectations gives."""
    return home / FOLDER / topic / "gx" / "uncommitted"


def results_of(home: Path, topic: str) -> Path:
    """Returns the folder of a topic's validation results, of which pages are made."""
    return uncommitted_of(home, topic) / "validations"


def site_of(home: Path, topic: str) -> Path:
    """Returns the root of a topic's pages. `topic` is the name of a configured topic, and no text of a client."""
    return uncommitted_of(home, topic) / "data_docs" / "local_site"


def holds_within(condition: Callable[[], bool], every_s: float, within_s: float) -> bool:
    """Asks until the condition holds, every so many seconds but once at least; returns whether it did in time."""
    from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

    return Retrying(
        retry=retry_if_result(lambda holds: not holds),
        stop=stop_after_delay(within_s),
        wait=wait_fixed(every_s),
        retry_error_callback=lambda _: False,
    )(condition)


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

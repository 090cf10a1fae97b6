"""Says which files a topic's `source.path` may mean: those in the folders that the platform names (`platform.sources`).

A topic's YAML speaks for its own topic. Without these roots it could name any file of the machine, another topic's
landed records too, and show them to whoever may see the topic.

1. What the pattern begins with, before its first * ? or [, has to be in a root.
2. So has every file that matches, with all links followed.
3. A file that is named on the command line may lie anywhere: who has the shell may read it anyway.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError, OutsideError
from cleantail.human import counted

MOST_ENTRIES = 100_000
"""The search for one pattern looks at no more files and folders than this."""
MAGIC = re.compile(r"[*?\[]")


RECORD_FILES = (".jsonl", ".jsonl.gz")
"""Endings of the names of files of records."""


def roots_of(platform: Platform) -> list[Path]:
    """Returns the roots, absolute, with links followed."""
    return [(platform.home / root).resolve() for root in platform.sources]


def written_problem(pattern: str, home: Path, sources: Sequence[str]) -> str | None:
    """Returns what is allowed where a source.path lies in no root by its text alone; None where it lies in one. No disk
    is looked at."""
    roots = [Path(os.path.normpath(home / root)) for root in sources]
    return None if _inside(beginning_of(pattern, home), roots) else _allowed_beginning(home, sources)


def path_problem(pattern: str, platform: Platform) -> str | None:
    """Returns what is allowed where a source.path lies in no root, with links followed."""
    inside = _inside(beginning_of(pattern, platform.home).resolve(), roots_of(platform))
    return None if inside else _allowed_beginning(platform.home, platform.sources)


def beginning_of(pattern: str, home: Path) -> Path:
    """Returns the part of a pattern before its first * ? or [."""
    fixed = takewhile(lambda part: not MAGIC.search(part), PurePosixPath(pattern).parts)
    return Path(os.path.normpath(home.joinpath(*fixed)))


def folder_of(pattern: str, home: Path) -> Path:
    """Returns the folder in which the search for a pattern begins."""
    beginning = beginning_of(pattern, home)
    return beginning if MAGIC.search(pattern) else beginning.parent


def _allowed_beginning(home: Path, sources: Sequence[str]) -> str:
    return f"a path that begins, before its first * ? or [, in {_allowed(home, sources)}"


def matching_files(platform: Platform, pattern: str) -> list[Path]:
    """Returns the files that a source.path means, relative to CLEANTAIL_HOME, in the order of names and with links
    followed.

    Raises CleantailError where one of them, or the pattern itself, lies outside the roots, and where the search would
    look at more than MOST_ENTRIES; OutsideError where this user may not look into a folder on the way: whether there is
    anything new is not known then.
    """
    if allowed := path_problem(pattern, platform):
        raise CleantailError(f"source.path {pattern} is not allowed: {allowed}; nothing was appended")
    parts = (platform.home / pattern).parts
    try:
        matches = sorted(_matches(Path(parts[0]), parts[1:], _BoundedListing(pattern)))
        # a folder of such a name was meant as a file: reading it says what is wrong
        files = [path for path in matches if path.is_file() or path.name.endswith(RECORD_FILES)]
    except PermissionError as e:
        raise OutsideError(
            f"source.path {pattern}: {e.filename} may not be looked at ({e.strerror}), so nobody knows whether there "
            "are new files; nothing was appended. Give the user of Airflow's workers the right to list it and to go "
            "through it, or name another path"
        ) from None
    return list(dict.fromkeys(require_inside(file, platform) for file in files))


def require_inside(file: Path, platform: Platform) -> Path:
    """Returns the file with links followed. Raises CleantailError where that is in no root."""
    real = file.resolve()
    if _inside(real, roots_of(platform)):
        return real
    allowed = _allowed(platform.home, platform.sources)
    link = f", a link to {real}," if real != file else ""
    raise CleantailError(f"{file}{link} is no file of this topic: it is not in {allowed}; nothing was appended")


def _allowed(home: Path, sources: Sequence[str]) -> str:
    roots = ", ".join(str(home / root) for root in sources)
    return f"one of the folders that platform.sources in defaults.yaml names: {roots or 'none'}"


def _inside(path: Path, roots: Sequence[Path]) -> bool:
    """Returns whether a path lies below one of the roots; a root itself is a folder, and no file."""
    return any(root in (path, *path.parents) for root in roots)


class _BoundedListing:
    """Lists folders, and no more than MOST_ENTRIES entries in all of them together."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._seen = 0

    def entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """Yields the entries of a folder, none where there is no such folder. Raises CleantailError after too many, and
        PermissionError."""
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    self._seen += 1
                    if self._seen > MOST_ENTRIES:
                        raise CleantailError(
                            f"source.path {self._pattern} looks at more than {counted(MOST_ENTRIES, 'file')} and "
                            "folders; nothing was appended. Name a folder with less in it, or take out what is ingested"
                        )
                    yield entry
        except PermissionError:
            raise
        except OSError:
            return


def _folders(folder: Path, listing: _BoundedListing) -> Iterator[Path]:
    """Yields the folder and all below it, however deep."""
    waiting = [folder]
    while waiting:
        below = waiting.pop()
        yield below
        entries = [entry for entry in listing.entries(below) if not entry.name.startswith(".")]
        waiting += [below / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _matches(folder: Path, parts: Sequence[str], listing: _BoundedListing) -> Iterator[Path]:
    """Yields the paths that glob would, hidden files by name alone. ** goes through no link, which may lead anywhere or
    in a circle."""
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below in _folders(folder, listing):
            yield from _matches(below, rest or ("*",), listing)
    elif not MAGIC.search(part):
        if _is_there(folder / part):
            yield from _matches(folder / part, rest, listing)
    else:
        names = [entry.name for entry in listing.entries(folder)]
        for name in fnmatch.filter(names, part):
            if part.startswith(".") or not name.startswith("."):
                yield from _matches(folder / name, rest, listing)


def _is_there(path: Path) -> bool:
    """Returns whether there is anything of this name. Raises PermissionError where that may not be known."""
    try:
        path.lstat()
    except PermissionError:
        raise
    except OSError:
        return False
    return True

"""Find the files of a topic's `source.path`, only in the folders of `platform.sources` (the roots).

Without roots a topic's YAML could name any file of the machine, even another topic's records. All users who may see the
topic would see them.

1. The part of the pattern before its first * ? or [ must be in a root.
2. Every matching file must be in a root, with all links followed.
3. A file on the command line may be anywhere, because a user with a shell may read it anyway.
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
"""Number of files and folders after which the search for a pattern fails."""
MAGIC = re.compile(r"[*?\[]")


RECORD_FILES = (".jsonl", ".jsonl.gz")
"""Suffixes of files of records."""


def roots_of(platform: Platform) -> list[Path]:
    """Return the roots, absolute, with links followed."""
    return [(platform.home / root).resolve() for root in platform.sources]


def written_problem(pattern: str, home: Path, sources: Sequence[str]) -> str | None:
    """Return the allowed values if the text of a source.path is outside all roots, else None. Reads no disk."""
    roots = [Path(os.path.normpath(home / root)) for root in sources]
    return None if _inside(beginning_of(pattern, home), roots) else _allowed_beginning(home, sources)


def path_problem(pattern: str, platform: Platform) -> str | None:
    """Return the allowed values if a source.path, with links followed, is outside all roots, else None."""
    inside = _inside(beginning_of(pattern, platform.home).resolve(), roots_of(platform))
    return None if inside else _allowed_beginning(platform.home, platform.sources)


def beginning_of(pattern: str, home: Path) -> Path:
    """Return the part of a pattern before its first * ? or [."""
    fixed = takewhile(lambda part: not MAGIC.search(part), PurePosixPath(pattern).parts)
    return Path(os.path.normpath(home.joinpath(*fixed)))


def folder_of(pattern: str, home: Path) -> Path:
    """Return the folder of a pattern before its first part with a * ? or [. For a plain file, return its folder."""
    beginning = beginning_of(pattern, home)
    return beginning if MAGIC.search(pattern) else beginning.parent


def _allowed_beginning(home: Path, sources: Sequence[str]) -> str:
    return f"a path that begins, before its first * ? or [, in {_allowed(home, sources)}"


def matching_files(platform: Platform, pattern: str) -> list[Path]:
    """Return the files that a source.path matches, by name and with links followed. A path is relative to
    CLEANTAIL_HOME.

    Raises CleantailError if a file or the pattern is outside the roots, or if the search reads more than MOST_ENTRIES.
    Raises OutsideError if a folder on the way may not be read.
    """
    if allowed := path_problem(pattern, platform):
        raise CleantailError(f"source.path {pattern} is not allowed: {allowed}; nothing was appended")
    parts = (platform.home / pattern).parts
    try:
        matches = sorted(_matches(Path(parts[0]), parts[1:], _BoundedListing(pattern)))
        # keeps a folder with the name of a record file: reading it raises the right error
        files = [path for path in matches if path.is_file() or path.name.endswith(RECORD_FILES)]
    except PermissionError as e:
        raise OutsideError(
            f"source.path {pattern}: {e.filename} cannot be read ({e.strerror}), so new files cannot be found; nothing "
            "was appended. Give the user of Airflow's workers the rights to list and enter it, or name another path"
        ) from None
    beginning = folder_of(pattern, platform.home).resolve()
    found = []
    for file in files:
        real = require_inside(file, platform)
        if not _inside(real, [beginning]):
            raise CleantailError(
                f"{file}, a link to {real}, is not a file of this topic: it is not in {beginning}, where its "
                "source.path begins; nothing was appended"
            )
        found.append(real)
    return list(dict.fromkeys(found))


def require_inside(file: Path, platform: Platform) -> Path:
    """Return the file with links followed. Raises CleantailError if the result is in no root."""
    real = file.resolve()
    if _inside(real, roots_of(platform)):
        return real
    allowed = _allowed(platform.home, platform.sources)
    link = f", a link to {real}," if real != file else ""
    raise CleantailError(f"{file}{link} is not a file of this topic: it is not in {allowed}; nothing was appended")


def _allowed(home: Path, sources: Sequence[str]) -> str:
    roots = ", ".join(str(home / root) for root in sources)
    return f"one of the folders that platform.sources in defaults.yaml names: {roots or 'none'}"


def _inside(path: Path, roots: Sequence[Path]) -> bool:
    return any(root in (path, *path.parents) for root in roots)


class _BoundedListing:
    """Lists folders, with at most MOST_ENTRIES entries in total."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._seen = 0

    def entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a folder. Yields none if the folder is missing.

        Raises CleantailError after too many entries, and PermissionError.
        """
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    self._seen += 1
                    if self._seen > MOST_ENTRIES:
                        raise CleantailError(
                            f"source.path {self._pattern} searches more than {counted(MOST_ENTRIES, 'file')} and "
                            "folders; nothing was appended. Name a smaller folder, or move ingested files away"
                        )
                    yield entry
        except PermissionError:
            raise
        except OSError:
            return


def _folders(folder: Path, listing: _BoundedListing) -> Iterator[Path]:
    waiting = [folder]
    while waiting:
        below = waiting.pop()
        yield below
        entries = [entry for entry in listing.entries(below) if not entry.name.startswith(".")]
        waiting += [below / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _matches(folder: Path, parts: Sequence[str], listing: _BoundedListing) -> Iterator[Path]:
    """Yield the paths that glob would yield. Hidden files match only by name.

    ** follows no links, because links may form circles.
    """
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        for below in _folders(folder, listing):
            yield from _matches(below, rest or ("*",), listing)
    elif not MAGIC.search(part):
        if _exists(folder / part):
            yield from _matches(folder / part, rest, listing)
    else:
        names = [entry.name for entry in listing.entries(folder)]
        for name in fnmatch.filter(names, part):
            if part.startswith(".") or not name.startswith("."):
                yield from _matches(folder / name, rest, listing)


def _exists(path: Path) -> bool:
    """Return whether the path exists. Raises PermissionError if its folder may not be read."""
    try:
        path.lstat()
    except PermissionError:
        raise
    except OSError:
        return False
    return True

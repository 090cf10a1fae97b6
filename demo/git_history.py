"""The file history of a git repository as a changelog: key = path, value = mode and blob, null = deleted.

After compaction the changelog equals the output of `git ls-tree -r`. The demonstration compares them at its end. It
uses only git's plumbing commands, because no user's settings change their output. They always run with -z, so that a
path may have any byte.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.records import Change

NO_MODE = b"000000"
_LOCATION_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
)
"""Variables that git sets inside its hooks. They would override the requested folder."""


class NoHistoryError(Exception):
    """Git, the repository or its first commit is missing. The message is git's own."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the first-parent line. `parent` is "" for the oldest commit, even of a shallow clone."""

    name: str
    parent: str
    commit_ms: int
    author_ms: int


def head_of(repository: Path) -> str:
    """Return the present commit of HEAD. Raises NoHistoryError."""
    return _git(repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()


def changelog(repository: Path, head: str, now_ms: int) -> list[Change]:
    """Return every change of every file up to `head`, oldest first. Times after `now_ms` are set to `now_ms`."""
    commits = {commit.name: commit for commit in first_parent_line(repository, head)}
    pairs = "".join(f"{commit.name} {commit.parent}".rstrip() + "\n" for commit in commits.values())
    return [
        Change(path, value, min(commits[name].commit_ms, now_ms), (("author_ts", b"%d" % commits[name].author_ms),))
        for name, path, value in _changes(repository, pairs.encode())
    ]


def first_parent_line(repository: Path, head: str) -> list[Commit]:
    """Return the commits of the main branch along first parents, oldest first."""
    arguments = ("rev-list", "--first-parent", "--reverse", "--format=%H %ct %at %P", head)
    lines = _git(repository, *arguments).decode("ascii").splitlines()
    return [_commit(line.split()) for line in lines if not line.startswith("commit ")]


def _commit(fields: list[str]) -> Commit:
    name, committed, authored, *parents = fields
    return Commit(name, parents[0] if parents else "", int(committed) * 1000, int(authored) * 1000)


def _changes(repository: Path, pairs: bytes) -> Iterator[tuple[str, bytes, bytes | None]]:
    """Yield (commit, path, value) of each change in `pairs`, lines of "commit parent". A commit without a parent adds
    all its files."""
    arguments = (
        "diff-tree",
        "--stdin",
        "-r",
        "-z",
        "--root",
        "--raw",
        "--no-abbrev",
        "--no-renames",
        "--ignore-submodules=none",
    )
    parts = iter(_git(repository, *arguments, stdin=pairs).split(b"\0"))
    commit = ""
    for part in parts:
        if part.startswith(b":"):
            _, mode, _, blob, _ = part.split(b" ")
            yield commit, next(parts), None if mode == NO_MODE else mode + b" " + blob
        elif part:
            commit = part.decode("ascii")


def tree(repository: Path, head: str) -> dict[bytes, bytes]:
    """Return path -> mode and blob of every file that `git ls-tree -r` lists. Submodules are entries like files."""
    lines = _git(repository, "ls-tree", "-r", "-z", "--full-tree", head).split(b"\0")
    entries = (line.partition(b"\t") for line in lines if line)
    return {path: _value(*meta.split(b" ")) for meta, _, path in entries}


def _value(mode: bytes, _kind: bytes, blob: bytes) -> bytes:
    return mode + b" " + blob


def _git(repository: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    environment = {name: value for name, value in os.environ.items() if name not in _LOCATION_VARIABLES}
    command = ["git", "--no-replace-objects", "-C", str(repository), *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False)
    except FileNotFoundError:
        raise NoHistoryError("git is not installed") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoHistoryError(lines[0] if lines else f"{repository} has no commit yet")
    return done.stdout

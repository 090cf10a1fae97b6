"""A cache of digests of source files, so that a run does not read its whole landing folder again.

The cache is a private SQLite file, CLEANTAIL_HOME/digests.db, which several processes may use. It recognizes a source
file by resolved path, device, inode, size and change times in nanoseconds. Without the cache everything works, only
slower.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from cleantail.config.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.errors import CleantailError
from cleantail.sources.source_files import content_digest, file_state

logger = logging.getLogger("cleantail.digest_cache")

FILE_NAME = "digests.db"
SETTLED_MS = 10_000
"""A file that changed more recently is not cached. It may change again within one tick of the file system's clock, and
then its change time stays the same."""
MOST_FILES = 100_000
"""Maximum number of digests, about 25 MB. A full cache drops digests of deleted files. If it stays full, new files are
read every time."""
_BUSY_SECONDS = 5
_MAKING = threading.Lock()
_TABLE = "CREATE TABLE IF NOT EXISTS digests (path BLOB PRIMARY KEY, state TEXT NOT NULL, sha256 TEXT NOT NULL)"


class DigestCache:
    """Digests by file. A context manager, opened for one pass over a number of files."""

    def __init__(self, home: Path, limits: InputLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._database = _opened(home / FILE_NAME)
        self._room: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._database is not None:
            self._database.close()

    def digest(self, file: Path, clock_ms: int) -> str:
        """Return the file's content_digest, with its errors. `clock_ms` is the real clock (Unix ms)."""
        before = file_state(file)
        path = os.fsencode(os.path.realpath(file))
        if before is not None and (remembered := self._remembered(path, before)):
            return remembered
        digest = content_digest(file, self._limits)
        if before is not None and before == file_state(file) and _changed_ms(file) + SETTLED_MS <= clock_ms:
            self._remember(path, before, digest)
        return digest

    def digest_if_readable(self, file: Path) -> str | None:
        """Return the file's content_digest by the real clock. None if the file cannot be read."""
        try:
            return self.digest(file, int(time.time() * 1000))
        except CleantailError:
            return None

    def _remembered(self, path: bytes, state: str) -> str | None:
        rows = self._execute("SELECT sha256 FROM digests WHERE path = ? AND state = ?", (path, state))
        return str(rows[0][0]) if rows else None

    def _remember(self, path: bytes, state: str, digest: str) -> None:
        if self._room is None:
            self._room = self._make_room()
        if self._room > 0:
            self._room -= 1
            self._execute("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", (path, state, digest))

    def _make_room(self) -> int:
        """Return how many more digests fit. If the cache is full, drops digests of deleted files first."""
        count = self._count()
        if count >= MOST_FILES:
            paths = [row[0] for row in self._execute("SELECT path FROM digests")]
            deleted_paths = [path for path in paths if isinstance(path, bytes) and not os.path.exists(path)]
            for path in deleted_paths:
                self._execute("DELETE FROM digests WHERE path = ?", (path,))
            count = self._count()
        return MOST_FILES - count

    def _count(self) -> int:
        return int((self._execute("SELECT count(*) FROM digests") or [(MOST_FILES,)])[0][0])

    def _execute(self, statement: str, values: tuple[bytes | str, ...] = ()) -> list[tuple[bytes | str | int, ...]]:
        """Return the rows of a statement. After an error, closes the cache and returns no rows."""
        if self._database is None:
            return []
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as e:
            logger.warning("digests of files are not remembered: %s", e)
            self._database.close()
            self._database = None
            return []


def _opened(file: Path) -> sqlite3.Connection | None:
    """Return the private database, or None. Deletes a damaged database, so that the next process makes a new one."""
    try:
        _make_file(file)
        database = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
        database.execute(_TABLE)
        return database
    except sqlite3.OperationalError as e:  # another process has it, or the disk is full
        logger.warning("digests of files are not remembered: %s", e)
    except sqlite3.DatabaseError as e:
        logger.warning("%s is damaged and was deleted: %s", file, e)
        file.unlink(missing_ok=True)
    except OSError as e:
        logger.debug("digests of files are not remembered: %s", e)
    return None


def _make_file(file: Path) -> None:
    """Make the private file if it does not exist. Raises OSError if the path is not a regular file.

    Never opens an existing file outside SQLite, because closing it would release all locks of this process.
    """
    with _MAKING:
        if file.is_symlink():
            raise OSError(errno.ELOOP, "is a link", str(file))
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        except FileExistsError:
            if not file.is_file():
                raise


def _changed_ms(file: Path) -> int:
    status = file.stat()
    return max(status.st_mtime_ns, status.st_ctime_ns) // 1_000_000

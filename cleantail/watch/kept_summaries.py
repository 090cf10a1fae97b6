"""Summaries of tables on the disk, so that a server that has just started need not read every table anew.

They lie in CLEANTAIL_HOME/page/summaries.db, each with the key that says of which metadata it is. Nothing depends on
the file: where it cannot be read or written, tables are read instead, and who deletes it loses nothing.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cleantail.home.private_files import OWNER_FILE_MODE, OWNER_FOLDER_MODE, make_folder

logger = logging.getLogger(__name__)

FOLDER, FILE = "page", "summaries.db"
WAIT_S = 5.0
KEPT_S = 30 * 86_400
"""A summary that is older is read anew: so those of topics that have gone do not stay for ever."""
_TABLE = "CREATE TABLE IF NOT EXISTS summaries (topic TEXT PRIMARY KEY, key TEXT, at_s REAL, summary TEXT)"


class KeptSummaries:
    """Reads and writes the file. It is safe to use from many threads, and by several servers of one home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._usable = True

    def load(self) -> dict[str, tuple[str, str]]:
        """Returns topic -> (key, summary as JSON) of all that is kept; nothing where the file cannot be read."""
        found: dict[str, tuple[str, str]] = {}
        with self._opened() as database:
            if database is not None:
                with database:
                    database.execute("DELETE FROM summaries WHERE at_s < ?", (time.time() - KEPT_S,))
                rows = database.execute("SELECT topic, key, summary FROM summaries")
                found.update((topic, (key, summary)) for topic, key, summary in rows)
        return found

    def keep(self, topic: str, key: str, summary: str) -> None:
        """Writes one summary in the place of the topic's last one."""
        with self._opened() as database:
            if database is not None:
                row = (topic, key, time.time(), summary)
                with database:
                    database.execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)", row)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection | None]:
        """Yields the database, None where it cannot be used. What goes wrong is said once, and costs only time."""
        with self._lock:
            if not self._usable:
                yield None
                return
            try:
                with closing(self._connect()) as database:
                    yield database
            except (sqlite3.Error, OSError) as error:
                self._usable = self._usable and self._begun_anew(error)

    def _connect(self) -> sqlite3.Connection:
        folder = make_folder(self._home, FOLDER)
        folder.chmod(OWNER_FOLDER_MODE)
        database = sqlite3.connect(folder / FILE, timeout=WAIT_S)
        database.execute("PRAGMA synchronous = OFF")  # what a crash of the machine damages is written anew
        database.execute(_TABLE)
        (folder / FILE).chmod(OWNER_FILE_MODE)
        return database

    def _begun_anew(self, error: Exception) -> bool:
        """Deletes a file that is no database. Returns whether to go on using it."""
        logger.info("summaries of tables are not kept: %s: %s", type(error).__name__, error)
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            (self._home / FOLDER / FILE).unlink(missing_ok=True)
            return True
        return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)

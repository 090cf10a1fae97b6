"""A cache on the disk with one text for each topic, shared by the processes of one home.

The cache is a SQLite file in CLEANTAIL_HOME. Each text has a key that names the state from which it was computed. You
may delete the file at any time. Then the texts are computed again.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from cleantail.home.home_folder import OWNER_FILE_MODE, OWNER_FOLDER_MODE, make_folder

T = TypeVar("T")
logger = logging.getLogger(__name__)

WAIT_S, LOCKED_S = 5.0, 60.0
"""Seconds to wait for a lock of another process, and seconds to work without the file after that."""
KEPT_S = 30 * 86_400
"""Age (s) at which a text is deleted, so that texts of removed topics do not accumulate."""
_TABLE = "CREATE TABLE IF NOT EXISTS texts (topic TEXT PRIMARY KEY, key TEXT, at_s REAL, text TEXT)"


class TextCache:
    """The cache in CLEANTAIL_HOME/`folder`/`name`. Safe for several threads and several processes."""

    def __init__(self, home: Path, folder: str, name: str) -> None:
        self._home, self._folder, self._name = home, folder, name
        self._lock = threading.Lock()
        self._usable_from_s = float("-inf")

    def load(self) -> dict[str, tuple[str, str]]:
        """Return topic -> (key, text) of all texts. Empty if the file cannot be read."""
        return self._with_database(_loaded) or {}

    def text(self, topic: str, key: str) -> str | None:
        """Return the topic's text with this key, or None."""
        return self._with_database(lambda database: _text(database, topic, key))

    def keep(self, topic: str, key: str, text: str) -> None:
        row = (topic, key, time.time(), text)
        self._with_database(lambda d: d.execute("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", row))

    def drop_old(self) -> None:
        """Delete texts that are older than KEPT_S."""
        self._with_database(_without_old)

    def _with_database(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `work` in one transaction and return its result. None if the database cannot be used."""
        with self._lock:
            if time.monotonic() < self._usable_from_s:
                return None
            try:
                with closing(self._connect()) as database, database:
                    return work(database)
            except (sqlite3.Error, OSError) as error:
                self._usable_from_s = time.monotonic() + self._rest_s(error)
                return None

    @property
    def _file(self) -> Path:
        return self._home / self._folder / self._name

    def _connect(self) -> sqlite3.Connection:
        folder = make_folder(self._home, self._folder)
        folder.chmod(OWNER_FOLDER_MODE)
        database = sqlite3.connect(self._file, timeout=WAIT_S)
        database.execute("PRAGMA synchronous = OFF")  # a file that a crash damages is made again
        database.execute(_TABLE)
        self._file.chmod(OWNER_FILE_MODE)
        return database

    def _rest_s(self, error: Exception) -> float:
        """Return the seconds for which the file rests after an error. A damaged file is deleted, and made again at
            once.

        After a long lock of another process the file rests, so that not every topic waits for the lock.
        """
        logger.info("%s is not used: %s: %s", self._name, type(error).__name__, error)
        operational, message = isinstance(error, sqlite3.OperationalError), str(error)
        if isinstance(error, sqlite3.DatabaseError) and (not operational or "decode" in message):
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            return 0.0
        return LOCKED_S if operational and "locked" in message else math.inf


def _without_old(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM texts WHERE at_s < ?", (time.time() - KEPT_S,))


def _loaded(database: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    _without_old(database)
    rows = database.execute("SELECT topic, key, text FROM texts")
    return {topic: (key, text) for topic, key, text in rows}


def _text(database: sqlite3.Connection, topic: str, key: str) -> str | None:
    row = database.execute("SELECT text FROM texts WHERE topic = ? AND key = ?", (topic, key)).fetchone()
    return None if row is None else str(row[0])

"""Texts about topics on the disk, so that a process need not work out again what another one has.

They lie in a SQLite file of CLEANTAIL_HOME, each with the key that says what it follows from. Nothing depends on the
file: where it cannot be read or written, the work is done again, and who deletes it loses nothing.
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
"""How long to wait for a lock that another process holds, and how long then to do without the file."""
KEPT_S = 30 * 86_400
"""A text that is older is worked out anew: so those of topics that have gone do not stay for ever."""
_TABLE = "CREATE TABLE IF NOT EXISTS texts (topic TEXT PRIMARY KEY, key TEXT, at_s REAL, text TEXT)"


class KeptTexts:
    """Reads and writes one file, CLEANTAIL_HOME/`folder`/`name`. It is safe to use from many threads, and by several
    processes of one home."""

    def __init__(self, home: Path, folder: str, name: str) -> None:
        self._home, self._folder, self._name = home, folder, name
        self._lock = threading.Lock()
        self._usable_from_s = float("-inf")

    def load(self) -> dict[str, tuple[str, str]]:
        """Returns topic -> (key, text) of all that is kept; nothing where the file cannot be read."""
        return self._with_database(_loaded) or {}

    def text(self, topic: str, key: str) -> str | None:
        """Returns the topic's text, None where none is kept that follows from what the key says."""
        return self._with_database(lambda database: _text(database, topic, key))

    def keep(self, topic: str, key: str, text: str) -> None:
        """Writes one text in the place of the topic's last one."""
        row = (topic, key, time.time(), text)
        self._with_database(lambda d: d.execute("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)", row))

    def drop_old(self) -> None:
        """Deletes the texts of topics that have gone, after a while."""
        self._with_database(_without_old)

    def _with_database(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Returns what the work returns, in one transaction; None where the database cannot be used. What goes wrong is
        said once, and costs only time."""
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
        database.execute("PRAGMA synchronous = OFF")  # what a crash of the machine damages is written anew
        database.execute(_TABLE)
        self._file.chmod(OWNER_FILE_MODE)
        return database

    def _rest_s(self, error: Exception) -> float:
        """Returns for how long not to use the file. One that is damaged is deleted, and made anew at once. A lock that
        another process holds for long is waited for once in a while, not for every topic."""
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

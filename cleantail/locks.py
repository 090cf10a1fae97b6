"""One process at a time for one purpose on one machine; the lock goes when its process does, however it ends.

Across machines the table's own commits decide: they are compare-and-swap, and a round that lost starts over.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cleantail.errors import CleantailError


@contextmanager
def exclusive(home: Path, name: str) -> Iterator[None]:
    """Waits for the lock `name` under CLEANTAIL_HOME/locks and holds it for the block."""
    folder = home / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / re.sub(r"[^A-Za-z0-9._-]", "_", name)).open("w")
    except OSError as e:
        raise CleantailError(f"CLEANTAIL_HOME {home} cannot be written: {e.strerror}: {e.filename}") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

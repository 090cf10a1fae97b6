"""One process at a time for one purpose on one machine; the lock goes when its process does, however it ends.

Across machines the table's own commits decide: they are compare-and-swap, and a round that lost starts over.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(home: Path, name: str) -> Iterator[None]:
    """Waits for the lock `name` under CLEANTAIL_HOME/locks and holds it for the block."""
    folder = home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / re.sub(r"[^A-Za-z0-9._-]", "_", name)).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""What a user without rights sees of the disk, also where the tests run as root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

NOBODY = 65_534


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yields a folder that every user may look into, which those of pytest are not."""
    with TemporaryDirectory(prefix="cleantail-open-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder


@contextmanager
def as_nobody() -> Iterator[None]:
    """Takes root's rights away for the block: root may read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if before == 0:
            os.seteuid(before)

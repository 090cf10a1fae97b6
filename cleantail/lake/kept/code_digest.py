"""Says by which code something was worked out, so that nothing of another version is ever taken for that of this."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_digest() -> str:
    """Returns the digest of PyIceberg's version and of all modules of the package `cleantail`: a few hundred files,
    which a process reads once."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256(version("pyiceberg").encode())
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode())
        with suppress(FileNotFoundError):  # while the package is replaced by another version
            digest.update(file.read_bytes())
    return digest.hexdigest()

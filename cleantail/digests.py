"""A short name for a list of values, such as what Airflow knows a task by: for a file, a folder or a property. Pure.

Such a name may be written down and looked for again later, by another version too: how it is made stays as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

CHARS = 32


def digest_of(values: Iterable[object]) -> str:
    """Returns a digest of the values in their order, in hexadecimal digits. They are texts, numbers or None; 1 and "1"
    give different digests, and so do ("a", "b") and ("ab",)."""
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:CHARS]

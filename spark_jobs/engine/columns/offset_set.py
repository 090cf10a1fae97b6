"""Some offsets of a log, and which records have one of them."""

from __future__ import annotations

import numpy as np

from cleantail.log.winners import Booleans, Longs

FLAGS_FOR_EACH = 8
"""Up to so many bytes for each offset a table of flags is kept: it takes no more than the offsets themselves."""


class OffsetSet:
    """Says of offsets whether they are in the set: by a flag for each offset of its range, or by search where those of
    the set lie far apart."""

    def __init__(self, offsets: Longs) -> None:
        """`offsets`: in any order."""
        self._first = int(offsets.min()) if len(offsets) else 0
        width = int(offsets.max()) - self._first + 1 if len(offsets) else 0
        self._flags, self._ordered = np.zeros(0, np.bool_), np.zeros(0, np.int64)
        if width <= FLAGS_FOR_EACH * len(offsets):
            self._flags = np.zeros(width, np.bool_)
            self._flags[offsets - self._first] = True
        else:
            self._ordered = np.sort(offsets)

    def among(self, offsets: Longs) -> Booleans:
        """Returns which of the offsets are in the set."""
        if len(self._ordered):
            at = np.searchsorted(self._ordered, offsets).clip(max=len(self._ordered) - 1)
            members: Booleans = self._ordered[at] == offsets
            return members
        at = offsets - self._first
        inside: Booleans = (at >= 0) & (at < len(self._flags))
        if inside.all():
            return self._flags[at]
        inside[inside] = self._flags[at[inside]]
        return inside

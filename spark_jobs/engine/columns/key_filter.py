"""A filter of keys by their hashes: it lets through every key that was put in, and few others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BITS_PER_KEY = 16
"""One bit of so many is set for a key: about one other key of sixteen is let through, and told apart by itself."""
MOST_BITS = 1 << 31
"""256 MiB. A filter of more keys lets more of the others through."""
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Bits by the lowest part of a hash; their number is a power of two."""

    bits: npt.NDArray[np.uint8]

    @classmethod
    def for_keys(cls, keys: int) -> KeyFilter:
        """Returns an empty filter for at most so many keys."""
        size = 1 << max(min(keys * BITS_PER_KEY, MOST_BITS) - 1, 7).bit_length()
        return cls(np.zeros(size // 8, np.uint8))

    def add(self, hashes: Hashes) -> None:
        """Puts keys in."""
        byte, bit = self._place(hashes)
        np.bitwise_or.at(self.bits, byte, bit)

    def lets_through(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Returns which of the keys may have been put in."""
        byte, bit = self._place(hashes)
        through: npt.NDArray[np.bool_] = (self.bits[byte] & bit) != 0
        return through

    def _place(self, hashes: Hashes) -> tuple[Any, Any]:
        place = hashes & np.uint64(len(self.bits) * 8 - 1)
        return place >> np.uint64(3), np.left_shift(np.uint8(1), (place & np.uint64(7)).astype(np.uint8))

    def __or__(self, other: KeyFilter) -> KeyFilter:
        return KeyFilter(self.bits | other.bits)

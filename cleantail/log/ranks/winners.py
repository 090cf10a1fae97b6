"""The winner of each key: the record that survives a round (semantics.md 1.4, 2).

Keys are numbers here, given out by whoever has matched them. A rank is (has a version, version, offset):

1. A record with a version beats any that has none; then the highest version wins, then the highest offset.
2. By the strategy `offset` no record has a version, so the highest offset wins.
3. A key of which a higher rank is remembered, that of a tombstone which has expired, keeps no record at all
   (semantics.md 2, hazard 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.log.ranks.versions import Booleans, Longs, Numbers, Versions

NO_RECORD = -1
"""The winner's offset of a key of which no record competes."""
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Ranks:
    """Holds one entry for each key: the rank of its best record, or of its worst. `offset` is NO_RECORD for a key
    without one."""

    has: Booleans
    version: Longs
    offset: Longs

    @property
    def known(self) -> Booleans:
        """Returns whether a key has a record."""
        known: Booleans = self.offset != NO_RECORD
        return known


def best_ranks(keys: Numbers, versions: Versions, offsets: Longs, count: int) -> Ranks:
    """Returns the highest rank of each of `count` keys. `keys`: the number of each record's key."""
    import numpy as np

    has = np.zeros(count, np.bool_)
    has[keys[versions.has]] = True
    level = versions.has == has[keys]
    version = np.full(count, LOWEST, np.int64)
    if has.any():
        np.maximum.at(version, keys[level], versions.version[level])
        level &= versions.version == version[keys]
    offset = np.full(count, NO_RECORD, np.int64)
    np.maximum.at(offset, keys[level], offsets[level])
    return Ranks(has, version, offset)


def worst_ranks(keys: Numbers, versions: Versions, offsets: Longs, count: int) -> Ranks:
    """Returns the lowest rank of each key, as best_ranks does the highest."""
    import numpy as np

    has = np.ones(count, np.bool_)
    has[keys[~versions.has]] = False
    level = versions.has == has[keys]
    version = np.full(count, HIGHEST, np.int64)
    np.minimum.at(version, keys[level], versions.version[level])
    level &= versions.version == version[keys]
    offset = np.full(count, HIGHEST, np.int64)
    np.minimum.at(offset, keys[level], offsets[level])
    return Ranks(has, version, np.where(offset == HIGHEST, NO_RECORD, offset))


def beaten(ranks: Ranks, by: Ranks) -> Booleans:
    """Returns for each key whether the other rank is the higher one; both have to be known."""
    import numpy as np

    version, other = np.where(ranks.has, ranks.version, 0), np.where(by.has, by.version, 0)
    higher = np.where(
        ranks.has != by.has, by.has, np.where(version != other, other > version, by.offset > ranks.offset)
    )
    return higher & ranks.known & by.known


def ranks_of(keys: Numbers, ranks: Ranks) -> Ranks:
    """Returns the rank of each record's key."""
    return Ranks(ranks.has[keys], ranks.version[keys], ranks.offset[keys])


def ranks_by_offset(highest: Longs) -> Ranks:
    """Returns the best rank of each key by `offset`, of which `highest` has the highest offset."""
    import numpy as np

    return Ranks(np.zeros(len(highest), np.bool_), np.zeros(len(highest), np.int64), highest)


def record_ranks(versions: Versions, offsets: Longs) -> Ranks:
    """Returns the records' own ranks."""
    return Ranks(versions.has, versions.version, offsets)

"""Recognize records of erased keys by marks. The keys themselves are not stored.

1. The *mark* of a key is its HMAC-SHA256, by a secret of the topic. This secret is derived from
   `CLEANTAIL_ERASURE_KEY`. Without it a mark shows nothing, even to a person who can guess the key of a record.
2. The *tag* of a key is a fast hash of 64 bits, by numpy, for millions of records in a second. The mark is computed
   only if a tag matches. The mark decides.
3. A person could guess a key from a fast hash. So tags are stored sealed: XORed with a stream of bytes that needs the
   secret.
4. Spark's executors get the topic's secret and the tags, never `CLEANTAIL_ERASURE_KEY`. Processes that the driver
   starts on its own machine inherit its environment.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cleantail.errors import CleantailError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

ERASURE_KEY: Final = "CLEANTAIL_ERASURE_KEY"
"""The variable of the environment with the secret: at least 32 random bytes in Base64."""
SECRET_BYTES = 32
MARK_BYTES = 32
Tags: TypeAlias = "npt.NDArray[np.uint64]"
_HOW = "make one with: python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"


class ErasureSecret:
    """The platform's secret for marks. Its `repr` does not show the secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def from_environ(cls, env: Mapping[str, str]) -> ErasureSecret:
        """Return the secret of the environment. Raises CleantailError if it is missing, too short or not Base64."""
        text = env.get(ERASURE_KEY, "")
        if not text:
            raise CleantailError(f"{ERASURE_KEY} is not set: Cleantail marks erased keys with it; {_HOW}")
        try:
            secret = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise CleantailError(f"{ERASURE_KEY} is not Base64; {_HOW}") from None
        if len(secret) < SECRET_BYTES:
            raise CleantailError(f"{ERASURE_KEY} has {len(secret)} bytes; at least {SECRET_BYTES} are needed; {_HOW}")
        return cls(secret)

    @property
    def name(self) -> str:
        """Return a name of the secret that does not show it. The name is stored with marks, to detect another
        secret."""
        return self._derived("name")[:8].hex()

    def keys_of(self, topic: str) -> TopicKeys:
        return TopicKeys(self._derived(f"mark\0{topic}"), self._derived(f"tag\0{topic}"))

    def marks(self, topic: str, keys: pa.Array) -> list[bytes]:
        """Return the mark of each key. Raises ValueError for a null key."""
        return self.keys_of(topic).marks(keys)

    def tags(self, topic: str, keys: pa.Array) -> Tags:
        """Return the tag of each key, for comparisons in memory. Store tags only sealed."""
        return self.keys_of(topic).tags(keys)

    def sealed(self, topic: str, request: str, tags: Tags) -> Tags:
        """Seal all tags of a request, in their order. A second call opens sealed tags."""
        import numpy as np

        stream = hashlib.shake_256(self._derived(f"seal\0{topic}\0{request}")).digest(8 * len(tags))
        opened: Tags = tags ^ np.frombuffer(stream, "<u8")
        return opened

    def digest(self, topic: str, marks: Sequence[bytes]) -> str:
        """Return a digest of a set of keys by their marks, in any order."""
        return hmac.digest(self._derived(f"set\0{topic}"), b"".join(sorted(set(marks))), "sha256").hex()

    def stored_digest(self, topic: str, request: str, sealed: Tags, marks: bytes) -> str:
        """Return a digest of a request's stored tags and marks, in their order. It shows a lost row or a changed
        bit."""
        digest = hmac.new(self._derived(f"stored\0{topic}\0{request}"), sealed.tobytes(), "sha256")
        digest.update(marks)
        return digest.hexdigest()

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, f"cleantail erasure\0{purpose}".encode(), "sha256")

    def __repr__(self) -> str:
        return "ErasureSecret(…)"


class TopicKeys:
    """The secrets of one topic for marks and tags, derived from the platform's secret."""

    def __init__(self, mark: bytes, tag: bytes) -> None:
        self._mark, self._tag = mark, tag

    def marks(self, keys: pa.Array) -> list[bytes]:
        """Return the mark of each key. Raises ValueError for a null key."""
        if keys.null_count:
            raise ValueError("a null key has no mark")
        return [hmac.digest(self._mark, key, "sha256") for key in as_bytes(keys).to_pylist()]

    def tags(self, keys: pa.Array) -> Tags:
        """Return the tag of each key. A null key gets any number.

        Reads each key in words of 8 bytes, from the array's own buffers."""
        import numpy as np

        if not len(keys):
            return np.empty(0, np.uint64)
        keys = as_bytes(keys)
        seed, factor = np.frombuffer(self._tag[:16], "<u8") | np.uint64(1)
        offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
        low, end = int(offsets[0]), int(offsets[-1])
        starts, lengths = offsets[:-1].astype(np.int64) - low, np.diff(offsets).astype(np.int64)
        data = np.zeros(end - low + 8, np.uint8)
        if end > low:
            data[:-8] = np.frombuffer(keys.buffers()[2], np.uint8, end - low, low)
        first_bytes = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)  # masks of little-endian words
        words: Tags = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        tags: Tags = seed ^ (lengths.astype(np.uint64) * factor)
        for at in range(0, int(lengths.max()), 8):
            longer: Any = slice(None) if at < int(lengths.min()) else np.flatnonzero(lengths > at)
            word = words[starts[longer] + at] & first_bytes[np.minimum(lengths[longer] - at, 8)]
            mixed = (tags[longer] ^ word) * factor
            tags[longer] = mixed ^ (mixed >> np.uint64(32))
        return tags

    def __repr__(self) -> str:
        return "TopicKeys(…)"


def as_bytes(keys: pa.Array) -> pa.Array:
    """Return keys as an array of binary. Texts become UTF-8."""
    import pyarrow as pa

    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    return keys if pa.types.is_binary(keys.type) else keys.cast(pa.binary())


class ErasedKeys:
    """The erased keys of a topic, by tags and marks. Spark's processes get them pickled. The `repr` shows no mark.

    `tags` and `marks` (an array of 32 bytes a row) have one entry for each key, in any order."""

    def __init__(self, topic: str, keys: TopicKeys, tags: Tags, marks: npt.NDArray[np.uint8]) -> None:
        import numpy as np

        if (tags[:-1] > tags[1:]).any():
            order = np.argsort(tags, kind="stable")
            tags, marks = tags[order], marks[order]
        self.topic, self._keys, self._tags, self._marks = topic, keys, tags, marks
        # 4 to 8 bytes for each key, so that few other keys pass and need a search
        self._shift = np.uint64(64 - min(27, max(12, (32 * len(tags)).bit_length() + 1)))
        self._prefixes = _bitmap(tags >> self._shift, 64 - int(self._shift))

    @classmethod
    def of(cls, topic: str, secret: ErasureSecret, keys: pa.Array) -> ErasedKeys:
        import numpy as np

        marks = np.frombuffer(b"".join(secret.marks(topic, keys)), np.uint8).reshape(-1, MARK_BYTES)
        return cls(topic, secret.keys_of(topic), secret.tags(topic, keys), marks)

    def __len__(self) -> int:
        return len(self._tags)

    def found(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Return, for each key, whether it is erased. False for a null key."""
        is_erased: npt.NDArray[np.bool_] = self.entries(keys) >= 0
        return is_erased

    def entries(self, keys: pa.Array) -> npt.NDArray[np.int64]:
        """Return, for each key, its number among the erased keys, counted from 0. -1 if the key is not erased."""
        import numpy as np
        import pyarrow as pa

        keys = as_bytes(keys)
        found = np.full(len(keys), -1, np.int64)
        if not len(self) or not len(keys):
            return found
        tags = self._keys.tags(keys)
        prefixes = tags >> self._shift
        bits = (prefixes & np.uint64(7)).astype(np.uint8)
        candidates = np.flatnonzero(self._prefixes[prefixes >> np.uint64(3)] >> bits & 1)
        first = np.searchsorted(self._tags, tags[candidates])
        same = self._tags[np.minimum(first, len(self) - 1)] == tags[candidates]
        if keys.null_count:
            same &= keys.is_valid().to_numpy(zero_copy_only=False)[candidates]
        candidates, first = candidates[same], first[same]
        if not len(candidates):
            return found
        end = np.searchsorted(self._tags, tags[candidates], "right")
        marks = self._keys.marks(keys.take(pa.array(candidates)))
        found[candidates] = [
            next((row for row in range(low, high) if self._marks[row].tobytes() == mark), -1)
            for mark, low, high in zip(marks, first.tolist(), end.tolist(), strict=True)
        ]
        return found

    def __repr__(self) -> str:
        return f"ErasedKeys({self.topic!r}, keys: {len(self)})"


def _bitmap(numbers: Tags, bits: int) -> npt.NDArray[np.uint8]:
    """Return a bitmap with one bit for each possible number of `bits` bits: whether `numbers`, which are sorted, have
    it."""
    import numpy as np

    bitmap = np.zeros(1 << (bits - 3), np.uint8)
    if len(numbers):
        places = numbers >> np.uint64(3)
        starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
        of_each = np.left_shift(np.uint8(1), (numbers & np.uint64(7)).astype(np.uint8))
        bitmap[places[starts]] = np.bitwise_or.reduceat(of_each, starts)
    return bitmap

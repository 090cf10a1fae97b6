"""Random histories: the records that producers send to one partition in each round, and the bounds of its segments.
Pure.

1. Nothing depends on a clock.
2. Segments roll by record timestamps. These lie so far in the future that the newest segment is active to Kafka
   (always) and to the archive (younger than segment.ms).
3. If a lag is tested, "old" records are in the past and "young" ones in the future, on any day.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from cleantail.sources.kcat import Header

SEGMENT_MS = 3_600_000
STEP_MS = 10 * SEGMENT_MS
"""The time from the start of one segment to that of the next: always enough to roll."""
JITTER_MS = SEGMENT_MS // 4
"""The maximum distance of timestamps inside a segment. They are out of order, but too close for the segment to roll."""
YOUNG_MS = 4_102_444_800_000
"""The year 2100: younger than any lag."""
OLD_MS = 1_500_000_000_000
"""The year 2017: older than any lag that is tested here."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A record before it has an offset."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """The content of one segment. `aborted` is sent after `committed_first` of the records, and then aborted."""

    records: tuple[Draft, ...]
    aborted: tuple[Draft, ...] = ()
    committed_first: int = 0
    young: bool = True


Round = tuple[Segment, ...]
"""The segments that one round adds. The last one is active when the cleaner runs. Empty: a quiet round."""


@dataclass(frozen=True, slots=True)
class History:
    """All records that are sent to one partition, and a name of their features."""

    shape: str
    rounds: tuple[Round, ...]


def _plain_key(number: int) -> bytes:
    return b"key-%d" % number


def _empty_first_key(number: int) -> bytes:
    return b"%d" % number if number else b""


def _binary_key(number: int) -> bytes:
    return b"\xff\x00" + number.to_bytes(2, "big")


def _text(rng: random.Random) -> bytes:
    return f"value {rng.randrange(1 << 30)} é".encode()


def _empty_or_text(rng: random.Random) -> bytes:
    return b"" if rng.random() < 0.6 else _text(rng)


def _long(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(5_000, 30_000))


def _no_headers(_rng: random.Random) -> tuple[Header, ...]:
    return ()


def _some_headers(rng: random.Random) -> tuple[Header, ...]:
    """Return no header, one, or several: repeated names, no value, an empty one, bytes that are not UTF-8."""
    values = [None, b"", b"v", b"\xfe\xff", rng.randbytes(8)]
    return tuple((rng.choice(["version", "trace", "é"]), rng.choice(values)) for _ in range(rng.randrange(4)))


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a history's records. Spans are inclusive; shares and chances are in [0, 1]."""

    name: str
    keys: int = 12
    key: Callable[[int], bytes] = _plain_key
    tombstones: float = 0.25
    value: Callable[[random.Random], bytes] = _text
    headers: Callable[[random.Random], tuple[Header, ...]] = _no_headers
    records: tuple[int, int] = (1, 40)
    segments: tuple[int, int] = (2, 4)
    quiet: float = 0.0


SHAPES = (
    Shape("few keys", keys=3),
    Shape("many keys", keys=400, tombstones=0.3, records=(20, 60)),
    Shape("one key", keys=1, tombstones=0.4),
    Shape("all tombstones", keys=30, tombstones=1.0),
    Shape("empty values", value=_empty_or_text, tombstones=0.3),
    Shape("empty key", keys=4, key=_empty_first_key),
    Shape("binary keys", keys=20, key=_binary_key, headers=_some_headers),
    Shape("quiet rounds", keys=20, tombstones=0.5, quiet=0.6),
    Shape("segments of one record", keys=3, tombstones=0.4, records=(1, 1), segments=(2, 6)),
    Shape("headers", keys=8, headers=_some_headers),
    Shape("long values", keys=5, value=_long, records=(1, 12)),
    Shape("one segment", keys=4, tombstones=0.4, segments=(1, 1)),
)


def make_history(
    rng: random.Random, shape: Shape, rounds: int, *, lagging: bool = False, transactional: bool = False
) -> History:
    """Return a random history of that shape.

    With `transactional` some records are aborted. With `lagging` the first segments are old and all later ones young.
    The active one is always young, because by the archive's clock an old segment would not be active.
    """
    counts = [0 if n and rng.random() < shape.quiet else rng.randint(*shape.segments) for n in range(rounds)]
    old = rng.randrange(counts[0]) if lagging else 0
    step, history_rounds = 0, []
    for count in counts:
        segments = []
        for _ in range(count):
            start_ms = (OLD_MS if step < old else YOUNG_MS) + step * STEP_MS
            segments.append(_segment(rng, shape, start_ms, step >= old, transactional))
            step += 1
        history_rounds.append(tuple(segments))
    return History(shape.name, tuple(history_rounds))


def _segment(rng: random.Random, shape: Shape, start_ms: int, young: bool, transactional: bool) -> Segment:
    records = _drafts(rng, shape, start_ms, rng.randint(*shape.records))
    aborted = _drafts(rng, shape, start_ms, rng.randrange(6)) if transactional else ()
    return Segment(records, aborted, rng.randint(0, len(records)) if aborted else 0, young)


def _drafts(rng: random.Random, shape: Shape, start_ms: int, count: int) -> tuple[Draft, ...]:
    return tuple(_draft(rng, shape, start_ms + rng.randrange(JITTER_MS)) for _ in range(count))


def _draft(rng: random.Random, shape: Shape, timestamp_ms: int) -> Draft:
    value = None if rng.random() < shape.tombstones else shape.value(rng)
    return Draft(shape.key(rng.randrange(shape.keys)), value, timestamp_ms, shape.headers(rng))

"""A record batch of Kafka's message format version 2 (`DefaultRecordBatch`) in a segment: header and records.

A header has 61 bytes. The checksum covers only the bytes after itself. Offset, length, leader epoch and magic byte are
compared with those of neighbouring batches instead.

aiokafka computes the checksum (CRC-32C) and parses the records, both in C. pyarrow decompresses in pieces. So a batch
that decompresses to more than a worker can hold is rejected in time.

A producer has one transaction at a time. A marker ends all batches that the producer appended since its last marker.
The broker's own list of aborted transactions (`.txnindex`) has the same information and is not needed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cleantail.config.input_limits import BATCH_BYTES, DEFAULT_LIMITS, HEADERS, limit_text

if TYPE_CHECKING:
    from aiokafka.record._protocols import DefaultRecordProtocol


HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
COUNTED_FROM = 12
"""Position from which the batch length counts: after offset and length."""
ATTRIBUTES_AT = 21
MAGIC = 2
OLD_LENGTH = 14
"""Minimum length of a message before version 2."""
NO_CODEC, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_BITS, APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT = 0x07, 0x08, 0x10, 0x20


class BatchHeader(NamedTuple):
    """The header of one batch.

    `base_offset` and `last_offset_delta` are those of the batch as it was appended: the broker's cleaner removes
    records but leaves both unchanged.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """Return the size of the batch in the file, including its header."""
        return COUNTED_FROM + self.length

    @property
    def codec(self) -> int:
        """Return the number of the codec that compresses its records."""
        return self.attributes & CODEC_BITS

    @property
    def has_append_time(self) -> bool:
        """Return whether the broker has set the timestamps of its records (LogAppendTime)."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch is part of a transaction, or ends one."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Return whether the batch is a marker of the broker. Consumers never get these."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def was_cleaned(self) -> bool:
        """Return whether the batch has fewer records than offsets. Only the broker's cleaner removes records."""
        return self.record_count <= self.last_offset_delta


def parse_header(data: bytes) -> BatchHeader:
    """Return the header of a batch from its first HEADER_BYTES."""
    return BatchHeader(*HEADER.unpack(data))


def header_problem(header: BatchHeader, left_bytes: int, limit_bytes: int) -> str | None:
    """Return what is wrong with a header by itself, or None. `left_bytes`: size of the file from the batch on."""
    if header.length < OLD_LENGTH:
        return "no record batch begins here"
    if header.magic in (0, 1):
        return (
            f"a batch of message format version {header.magic}, which Kafka 4 no longer has: only version 2 can be read"
        )
    if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
        return "no record batch begins here"
    if header.size_bytes > left_bytes:
        return f"the batch has {header.size_bytes} bytes and the file only {left_bytes} more: it is cut off"
    if header.size_bytes > limit_bytes:
        return f"a batch of {header.size_bytes} bytes; {limit_text(BATCH_BYTES)}"
    if header.codec > ZSTD:
        return f"codec {header.codec} is unknown"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"a batch of {header.record_count} records at {header.last_offset_delta + 1} offsets"
    return None


SegmentRecord: TypeAlias = "DefaultRecordProtocol | RawRecord"
STREAMS = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
"""Codecs whose compressed form is a stream, by pyarrow's names. Kafka's lz4 is the frame format."""
PIECE_BYTES = 1 << 20
XERIAL_MAGIC, XERIAL_HEADER_BYTES = b"\x82SNAPPY\x00", 16
"""Java's clients frame snappy as snappy-java does; other clients write one bare block. Consumers accept both."""
_LAST_SHIFT, _LONGEST_SHIFT = 28, 63
ABORT = 0


class BatchProblem(Exception):
    """Raised for a batch that cannot be read; the message is the reason. The caller adds the file."""


def require_whole(data: bytes) -> None:
    """Raise BatchProblem if the checksum of a batch does not match its bytes."""
    from aiokafka.record.default_records import DefaultRecordBatch

    if not DefaultRecordBatch(data).validate_crc():
        raise BatchProblem("the batch does not match its checksum (CRC-32C): it is damaged")


def records_of(
    header: BatchHeader, data: bytes, limit_bytes: int, most_headers: int = DEFAULT_LIMITS.headers
) -> Iterator[SegmentRecord]:
    """Yield the records of a batch, after its checksum is verified. Raises BatchProblem.

    `limit_bytes`: maximum decompressed size; `most_headers`: maximum number of headers of a record.
    """
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record.default_records import DefaultRecordBatch

    require_whole(data)
    plain = data if header.codec == NO_CODEC else _plain(header, data, limit_bytes)
    _require_few_headers(memoryview(plain), most_headers)
    count = 0
    try:
        for record in DefaultRecordBatch(plain):
            yield record
            count += 1
    except UnicodeDecodeError:  # aiokafka decodes the names of headers as UTF-8
        yield from _raw_records(header, memoryview(plain)[HEADER_BYTES:], count)
    except (CorruptRecordException, ValueError, OverflowError, MemoryError) as e:  # the last two: absurd lengths
        raise BatchProblem(f"its records cannot be parsed: {str(e) or type(e).__name__}") from None


def _require_few_headers(plain: memoryview, most: int) -> None:
    """Raise BatchProblem if a record has more headers. Ignores bytes that are not a record: aiokafka reports those.

    Headers are counted before aiokafka makes a list of them, in which an empty header of two bytes takes eighty.
    """
    at = HEADER_BYTES
    try:
        while at < len(plain):
            size, begin = _varint(plain, at)
            at = begin + size
            if size < 0:
                return
            if size <= 2 * most:  # a header has two bytes at least
                continue
            _, field = _varint(plain, begin + 1)  # after the attributes: times, offset, key and value
            _, field = _varint(plain, field)
            for _ in range(2):
                length, field = _varint(plain, field)
                field += max(length, 0)
            headers, _ = _varint(plain, field)
            if headers > most:
                allowed = f"at most {most} are allowed; {limit_text(HEADERS)}"
                raise BatchProblem(f"a record has {headers} headers, and {allowed}")
    except IndexError:
        return


def _varint(plain: memoryview, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the position after it.

    Raises IndexError past the end, and for a number of more than ten bytes.
    """
    number = shift = 0
    while True:
        byte = plain[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        if shift > _LONGEST_SHIFT:
            raise IndexError


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of a batch in which the name of a header is not UTF-8.

    Such a name is bytes, any other is text, as in `DefaultRecordProtocol`.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str | bytes, bytes | None]]

    @property
    def has_bad_name(self) -> bool:
        return any(isinstance(name, bytes) for name, _ in self.headers)


def _raw_records(header: BatchHeader, data: memoryview, passed: int) -> Iterator[RawRecord]:
    """Yield the records of a decompressed batch without the first `passed`, by Kafka's record format (version 2).

    Raises BatchProblem.
    """
    at = 0
    try:
        for number in range(header.record_count):
            size, at = _varint(data, at)
            if size < 0 or at + size > len(data):
                raise IndexError
            if number >= passed:
                yield _raw_record(header, data[at : at + size])
            at += size
    except IndexError:
        raise BatchProblem("its records cannot be parsed: one ends early") from None


def _raw_record(header: BatchHeader, data: memoryview) -> RawRecord:
    delta_ms, at = _varint(data, 1)
    delta, at = _varint(data, at)
    key, at = _nullable(data, at)
    value, at = _nullable(data, at)
    count, at = _varint(data, at)
    headers: list[tuple[str | bytes, bytes | None]] = []
    for _ in range(count):
        name, at = _nullable(data, at)
        of_name, at = _nullable(data, at)
        headers.append((_text(name or b""), of_name))
    timestamp = header.max_timestamp if header.has_append_time else header.base_timestamp + delta_ms
    return RawRecord(header.base_offset + delta, timestamp, int(header.has_append_time), key, value, headers)


def _text(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def _nullable(data: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return bytes(data[at : at + size]), at + size


def is_abort_marker(header: BatchHeader, data: bytes) -> bool | None:
    """Return whether a control batch aborts its producer's transaction. Raises BatchProblem.

    Returns None if the broker's cleaner has emptied the batch, because no record of the transaction is left.
    """
    from aiokafka.record.control_record import ControlRecord

    for record in records_of(header, data, PIECE_BYTES):
        if record.key is None or len(record.key) < 4:
            raise BatchProblem("a control batch whose record has no type")
        return bool(ControlRecord.parse(record.key).type_ == ABORT)
    return None


def _plain(header: BatchHeader, data: bytes, limit_bytes: int) -> bytes:
    """Return the batch decompressed. Its checksum is still the old one."""
    import pyarrow as pa

    attributes = header.attributes & ~CODEC_BITS
    head = data[:ATTRIBUTES_AT] + attributes.to_bytes(2, "big", signed=True) + data[ATTRIBUTES_AT + 2 : HEADER_BYTES]
    packed = memoryview(data)[HEADER_BYTES:]
    pieces = _snappy_pieces(packed, limit_bytes) if header.codec == SNAPPY else _stream_pieces(header.codec, packed)
    unpacked, size = [head], 0
    try:
        for piece in pieces:
            size += len(piece)
            if size > limit_bytes:
                raise BatchProblem(f"a batch that unpacks to more than {limit_bytes} bytes; {limit_text(BATCH_BYTES)}")
            unpacked.append(piece)
    except (OSError, pa.ArrowException) as e:  # Arrow's I/O errors are Python's
        raise BatchProblem(f"its records cannot be unpacked: {str(e).splitlines()[0]}") from None
    return b"".join(unpacked)


def _stream_pieces(codec: int, packed: memoryview) -> Iterator[bytes]:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(packed), STREAMS[codec]) as stream:
        while piece := stream.read(PIECE_BYTES):
            yield piece


def _snappy_pieces(packed: memoryview, limit_bytes: int) -> Iterator[bytes]:
    """Yield the blocks of a framed stream, or the one block of a stream without a frame."""
    if packed[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(packed, limit_bytes)
        return
    at = XERIAL_HEADER_BYTES
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "big")
        yield _snappy_block(packed[at + 4 : at + 4 + size], limit_bytes)
        at += 4 + size


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    """Decompress one block, which begins with its decompressed size, a varint of seven bits a byte."""
    import pyarrow as pa

    size = 0
    for shift, byte in zip(range(0, _LAST_SHIFT + 7, 7), block, strict=False):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    if size > limit_bytes:
        raise BatchProblem(f"a batch that unpacks to {size} bytes; {limit_text(BATCH_BYTES)}")
    unpacked: bytes = pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
    return unpacked


Span = tuple[int, int]
"""Offsets [from the first record, to the marker) of an aborted transaction."""


class AbortedRecords:
    """Finds aborted batches. Batches and markers are added, and batches are queried, in the order of their offsets."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: dict[int, deque[Span]] = {}

    @property
    def are_known(self) -> bool:
        """Return whether every transaction that was added has ended."""
        return not self._open

    def begin(self, producer_id: int, offset: int) -> None:
        """Add a batch of a transaction. Only the first one of a transaction counts."""
        self._open.setdefault(producer_id, offset)

    def end(self, producer_id: int, offset: int, aborted: bool) -> None:
        """Add the marker that ends the producer's transaction."""
        first = self._open.pop(producer_id, None)
        if aborted and first is not None:
            self._aborted.setdefault(producer_id, deque()).append((first, offset))

    def include(self, producer_id: int, offset: int) -> bool:
        """Return whether the batch was aborted.

        Query batches in the order of their offsets: spans before the offset are dropped.
        """
        spans = self._aborted.get(producer_id) or deque[Span]()
        while spans and spans[0][1] <= offset:
            spans.popleft()
        return bool(spans) and spans[0][0] <= offset

"""The records of one batch: its checksum verified, unpacked in bounded memory, byte for byte.

aiokafka, the client of the aio-libs project, computes the checksum (CRC-32C) and takes the records apart, both in C.
pyarrow unpacks, in pieces, so that a batch which unpacks to more than a worker can hold is told in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cleantail.config.input_limits import BATCH_BYTES, DEFAULT_LIMITS, HEADERS, limit_text
from cleantail.kafka.segments.batch_header import (
    ATTRIBUTES_AT,
    CODEC_BITS,
    GZIP,
    HEADER_BYTES,
    LZ4,
    NO_CODEC,
    SNAPPY,
    ZSTD,
    BatchHeader,
)

if TYPE_CHECKING:
    from aiokafka.record._protocols import DefaultRecordProtocol

SegmentRecord: TypeAlias = "DefaultRecordProtocol | RawRecord"
STREAMS = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
"""Codecs whose packed form is a stream, by pyarrow's names. Kafka's lz4 is the frame format."""
PIECE_BYTES = 1 << 20
XERIAL_MAGIC, XERIAL_HEADER_BYTES = b"\x82SNAPPY\x00", 16
"""Java's clients frame snappy as snappy-java does, others write one bare block: a consumer takes both."""
_LAST_SHIFT, _LONGEST_SHIFT = 28, 63
ABORT = 0


class BatchProblem(Exception):
    """Is raised for a batch that cannot be read; the message says why, and whoever knows the file says where."""


def require_whole(data: bytes) -> None:
    """Raises BatchProblem where the checksum of a batch is not that of its bytes."""
    from aiokafka.record.default_records import DefaultRecordBatch

    if not DefaultRecordBatch(data).validate_crc():
        raise BatchProblem("the bytes of the batch are not those of its checksum (CRC-32C): it is damaged")


def records_of(
    header: BatchHeader, data: bytes, limit_bytes: int, most_headers: int = DEFAULT_LIMITS.headers
) -> Iterator[SegmentRecord]:
    """Yields the records of a batch, whose checksum is verified first. `limit_bytes` bounds what they may unpack to,
    `most_headers` the headers of each. Raises BatchProblem."""
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
    except UnicodeDecodeError:  # aiokafka takes the names of headers for UTF-8
        yield from _raw_records(header, memoryview(plain)[HEADER_BYTES:], count)
    except (CorruptRecordException, ValueError, OverflowError, MemoryError) as e:  # the last two: of absurd lengths
        raise BatchProblem(f"its records cannot be taken apart: {str(e) or type(e).__name__}") from None


def _require_few_headers(plain: memoryview, most: int) -> None:
    """Raises BatchProblem where a record has more headers: counted before aiokafka makes a list of them, in which an
    empty header of two bytes takes eighty. What is no record is left to aiokafka."""
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
                raise BatchProblem(f"a record of {headers} headers, of at most {most}; {limit_text(HEADERS)}")
    except IndexError:
        return


def _varint(plain: memoryview, at: int) -> tuple[int, int]:
    """Returns a number of variable length, and where it ends. Raises IndexError behind the end, and for one of more
    than ten bytes."""
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
    """Describes a record of a batch in which the name of a header is not UTF-8. Such a name is bytes, any other text,
    as in `DefaultRecordProtocol`."""

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
    """Yields the records of an unpacked batch but the first ones, by Kafka's format of a record (version 2). Raises
    BatchProblem."""
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
        raise BatchProblem("its records cannot be taken apart: one ends early") from None


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


def is_abort(header: BatchHeader, data: bytes) -> bool | None:
    """Returns whether a control batch ends its producer's transaction by taking it back; None where the broker's
    cleaner has emptied it, which it does once no record of the transaction is left. Raises BatchProblem."""
    from aiokafka.record.control_record import ControlRecord

    for record in records_of(header, data, PIECE_BYTES):
        if record.key is None or len(record.key) < 4:
            raise BatchProblem("a control batch whose record has no type")
        return bool(ControlRecord.parse(record.key).type_ == ABORT)
    return None


def _plain(header: BatchHeader, data: bytes, limit_bytes: int) -> bytes:
    """Returns the batch as it would be without a codec; its checksum is still the old one."""
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
    """Yields the blocks of a framed stream, or the one block that there is without a frame."""
    if packed[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(packed, limit_bytes)
        return
    at = XERIAL_HEADER_BYTES
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "big")
        yield _snappy_block(packed[at + 4 : at + 4 + size], limit_bytes)
        at += 4 + size


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    """Unpacks one block, which begins with how many bytes it unpacks to, seven bits at a time."""
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

"""Segments as a broker writes them, byte by byte: for what no broker can be brought to write when a test wants it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from cleantail.kafka.segment_batches import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CONTROL_BIT,
    GZIP,
    HEADER_BYTES,
    LZ4,
    SNAPPY,
    TRANSACTIONAL_BIT,
    ZSTD,
)

CRC_AT, EPOCH_AT, COUNT_AT = 17, 12, 57
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"
RecordFields = tuple[bytes | None, bytes | None]
STREAMS = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}


def batch(
    base: int,
    records: Sequence[tuple[Any, ...]] = ((b"k", b"v"),),
    producer: int = -1,
    bits: int = 0,
    epoch: int = 0,
    codec: int = 0,
    framed: bool = True,
) -> bytes:
    """A batch whose first record has the offset `base`; a record is key, value, headers, timestamp, as many as there
    are."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer, 0, 0, 1 << 30)
    for delta, (key, value, *more) in enumerate(records):
        headers, timestamp = [*more, *([], 1000 + delta)[len(more) :]]
        assert builder.append(delta, timestamp, key, value, headers) is not None
    data = bytearray(builder.build())
    if codec:
        data[HEADER_BYTES:] = packed(bytes(data[HEADER_BYTES:]), codec, framed)
    struct.pack_into(">qii", data, 0, base, len(data) - 12, epoch)
    return sealed(data, bits | codec)


def transactional(base: int, producer: int, records: Sequence[tuple[Any, ...]] = ((b"k", b"v"),), **more: Any) -> bytes:
    return batch(base, records, producer, TRANSACTIONAL_BIT, **more)


def marker(base: int, producer: int, kind: bytes, **more: Any) -> bytes:
    return batch(base, [(kind, b"\0\0\0\0\0\0")], producer, TRANSACTIONAL_BIT | CONTROL_BIT, **more)


def append_time(base: int, records: Sequence[tuple[Any, ...]]) -> bytes:
    return batch(base, records, bits=APPEND_TIME_BIT)


def emptied(data: bytes) -> bytes:
    """The batch as the cleaner leaves it where no record of it is left and its producer still needs it."""
    rest = bytearray(data[:HEADER_BYTES])
    struct.pack_into(">i", rest, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", rest, COUNT_AT, 0)
    return sealed(rest, struct.unpack_from(">h", data, ATTRIBUTES_AT)[0])


def sealed(data: bytearray, attributes: int) -> bytes:
    """The batch with other attributes, and the checksum that goes with them."""
    struct.pack_into(">h", data, ATTRIBUTES_AT, attributes)
    struct.pack_into(">I", data, CRC_AT, calc_crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytes(data)


def packed(plain: bytes, codec: int, framed: bool) -> bytes:
    if codec != SNAPPY:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, STREAMS[codec]) as stream:
            stream.write(plain)
        return sink.getvalue().to_pybytes()
    if not framed:
        return pa.compress(plain, codec="snappy", asbytes=True)
    blocks = [pa.compress(plain[at : at + 100], codec="snappy", asbytes=True) for at in range(0, len(plain), 100)]
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)


def segment(folder: Path, base: int, *batches: bytes, name: str = "") -> Path:
    """Writes a segment's file into a partition's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (name or f"{base:020}.log")
    file.write_bytes(b"".join(batches))
    return file

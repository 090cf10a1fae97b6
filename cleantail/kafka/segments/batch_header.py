"""The header of a record batch of Kafka's message format version 2 (`DefaultRecordBatch`), as it is in a segment. Pure.

It has 61 bytes. The checksum is of what comes after it, so neither offset nor length, leader epoch and magic byte are
covered: they are held against their neighbours instead.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cleantail.config.input_limits import BATCH_BYTES, limit_text

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
COUNTED_FROM = 12
"""Where the bytes begin that the length of a batch counts: after offset and length."""
ATTRIBUTES_AT = 21
MAGIC = 2
OLD_LENGTH = 14
"""The shortest length of a message before version 2."""
NO_CODEC, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_BITS, APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT = 0x07, 0x08, 0x10, 0x20


class BatchHeader(NamedTuple):
    """Describes one batch. `base_offset` and `last_offset_delta` are those of the batch as it was appended: the
    broker's cleaner takes records out, and leaves both as they are."""

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
        """Returns the offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """Returns how many bytes the batch has in the file, with its header."""
        return COUNTED_FROM + self.length

    @property
    def codec(self) -> int:
        """Returns the number of the codec that its records are packed with."""
        return self.attributes & CODEC_BITS

    @property
    def has_append_time(self) -> bool:
        """Returns whether its records have the time at which the broker appended them."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Returns whether the batch is part of a transaction, or ends one."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Returns whether the batch is a marker of the broker, which no consumer is shown."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def was_cleaned(self) -> bool:
        """Returns whether the batch has fewer records than offsets: only the broker's cleaner takes records out."""
        return self.record_count <= self.last_offset_delta


def parse_header(data: bytes) -> BatchHeader:
    """Returns the header of a batch from its first HEADER_BYTES."""
    return BatchHeader(*HEADER.unpack(data))


def header_problem(header: BatchHeader, left_bytes: int, limit_bytes: int) -> str | None:
    """Returns what is wrong with a header by itself, None where nothing is. `left_bytes` is what the file has from the
    batch on."""
    if header.length < OLD_LENGTH:
        return "no record batch begins here"
    if header.magic in (0, 1):
        return f"a batch of message format version {header.magic}, which Kafka 4 has no more: only version 2 is read"
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

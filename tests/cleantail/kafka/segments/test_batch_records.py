import random
import tracemalloc
from contextlib import suppress

import pytest

from cleantail.kafka.segment_batches import (
    APPEND_TIME_BIT,
    GZIP,
    HEADER_BYTES,
    LZ4,
    NO_CODEC,
    SNAPPY,
    ZSTD,
    BatchProblem,
    _require_few_headers,
    is_abort_marker,
    parse_header,
    records_of,
)
from tests.segment_builders import ABORT, COMMIT, append_time, batch, emptied, marker, packed, sealed

RECORDS = [
    (b"a", b"x" * 3000, [("h", b"1"), ("h", None), ("h", b""), ("\u00e9", b"\xff")], 1_600_000_000_000),
    (None, None, [], 5),
    (b"", b"", [], 4),
    (b"\xff\0", random.Random(17).randbytes(5000), [], 1_600_000_000_001),
]
LIMIT = 1 << 20


def read(data, limit=LIMIT):
    return list(records_of(parse_header(data[:HEADER_BYTES]), data, limit))


@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize("codec", [NO_CODEC, GZIP, SNAPPY, LZ4, ZSTD])
def test_records_come_byte_for_byte_from_every_codec(codec, framed):
    found = read(batch(70, RECORDS, codec=codec, framed=framed))
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in found] == RECORDS
    assert [r.offset for r in found] == [70, 71, 72, 73]


def test_with_append_time_all_records_of_a_batch_have_its_largest_timestamp():
    assert [
        r.timestamp for r in read(append_time(0, [(b"a", b"", [], 3), (b"b", b"", [], 9), (b"c", b"", [], 5)]))
    ] == [9] * 3


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_unpacks_to_more_than_the_limit_is_told_and_not_unpacked(codec):
    data = batch(0, [(b"k", bytes(3 << 20))], codec=codec)
    assert len(data) < LIMIT
    with pytest.raises(BatchProblem, match=r"unpacks to .*; the limit is batch\.max\.bytes"):
        read(data)


@pytest.mark.parametrize("codec", [NO_CODEC, ZSTD])
@pytest.mark.parametrize("count", [11, 300_000])
def test_a_record_of_more_headers_than_the_limit_is_told_before_a_list_is_made_of_them(codec, count):
    few, many = (b"k", b"v", [("h", b"x")] * 10, 5), (b"k" * 300, None, [("", None)] * count, 5)
    data = batch(0, [few, RECORDS[1], many, few], codec=codec)
    tracemalloc.start()
    with pytest.raises(
        BatchProblem, match=rf"a record has {count} headers, and at most 10 are allowed; .*record\.max\.headers"
    ):
        list(records_of(parse_header(data[:HEADER_BYTES]), data, LIMIT, 10))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert len(list(records_of(parse_header(data[:HEADER_BYTES]), data, LIMIT, count))) == 4


@pytest.mark.parametrize("seed", range(30))
def test_records_that_are_taken_apart_wrongly_end_in_a_problem_and_not_in_a_loop(seed):
    rng = random.Random(seed)
    plain = bytearray(batch(0, RECORDS))
    for _ in range(3):
        plain[rng.randrange(HEADER_BYTES, len(plain))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    with suppress(BatchProblem):
        _require_few_headers(memoryview(plain), 1)


@pytest.mark.parametrize("at", range(21, len(batch(0, RECORDS)), 517))
def test_any_flipped_bit_after_the_checksum_is_reported(at):
    data = bytearray(batch(0, RECORDS))
    header = parse_header(bytes(data[:HEADER_BYTES]))
    data[at] ^= 1 << at % 8
    with pytest.raises(BatchProblem, match="does not match its checksum"):
        list(records_of(header, bytes(data), LIMIT))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_is_not_packed_as_the_header_says_is_told_though_its_checksum_is_right(codec):
    data = sealed(bytearray(batch(0, RECORDS)), codec)
    with pytest.raises(BatchProblem, match="cannot be unpacked"):
        read(data)


def test_unparsable_records_with_a_correct_checksum_are_reported():
    plain = bytearray(batch(0, [(b"k", b"v")]))
    with pytest.raises(BatchProblem, match="cannot be parsed"):
        read(sealed(plain[:-1], 0))


@pytest.mark.parametrize("length", [1 << 40, (1 << 62) - 1, (1 << 63) - 1, (1 << 63) - 100], ids=hex)
def test_a_length_beyond_the_batch_is_reported(length):
    data, number = bytearray(batch(0, [(b"k" * 50, b"v")])), length << 1
    varint = bytearray()
    while number > 127:
        varint.append(number & 127 | 128)
        number >>= 7
    at = data.index(b"k" * 50)
    data[at - 1 : at] = bytes([*varint, number])
    with pytest.raises(BatchProblem, match="cannot be parsed"):
        read(sealed(data, 0))


STRANGE = [
    (b"k", b"v", [("h", b"1"), ("h", None)], 5),
    (None, b"", [("name", b"x"), ("h", None), ("", b"")], 3),
    (b"", None, [], -1),
    (b"k" * 300, b"v" * 70_000, [("h" * 200, b"x" * 9_000)], 9_000_000_000),
]


@pytest.mark.parametrize("bits", [pytest.param(0, id="create"), pytest.param(APPEND_TIME_BIT, id="append_time")])
def test_a_name_of_a_header_that_is_not_utf_8_comes_as_bytes_and_everything_else_as_it_is(bits):
    data = bytearray(batch(7, STRANGE))
    plain = [as_tuple(r) for r in read(sealed(data, bits))]
    data[data.index(b"name")] = 0xFF
    records = read(sealed(data, bits))
    assert [getattr(r, "has_bad_name", False) for r in records] == [False, True, False, False]
    assert [h for h, _ in records[1].headers] == [b"\xffame", "h", ""]
    assert [as_tuple(r) for r in records[:1] + records[2:]] == plain[:1] + plain[2:]
    assert as_tuple(records[1])[:-1] == plain[1][:-1]


def as_tuple(record):
    return record.offset, record.timestamp, record.timestamp_type, record.key, record.value, list(record.headers)


def test_a_record_that_ends_early_is_reported_even_next_to_a_header_name_that_is_not_utf_8():
    data = bytearray(batch(0, [(b"k", b"v", [("name", b"x")], 5), (b"key", b"value", [], 6)]))
    data[data.index(b"name")], data[data.index(b"key") - 1] = 0xFF, 0x7E
    with pytest.raises(BatchProblem, match="one ends early"):
        read(sealed(data, 0))


def test_a_marker_says_how_its_transaction_ended_and_one_that_the_cleaner_emptied_does_not():
    ends = [marker(3, 7, ABORT), marker(3, 7, COMMIT), emptied(marker(3, 7, ABORT))]
    assert [is_abort_marker(parse_header(data[:HEADER_BYTES]), data) for data in ends] == [True, False, None]


def test_the_frame_of_snappy_is_the_one_of_java():
    assert packed(b"abc", SNAPPY, True)[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

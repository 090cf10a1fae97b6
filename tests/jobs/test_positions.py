"""The bytes are those of Iceberg's Puffin specification; positions come back as they went in."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from pyroaring import BitMap64

from cleantail.errors import TableError
from spark_jobs.iceberg.deletion_vectors import WORD, file_hash, positions_by_file, positions_of, vector_blob


def words_of(positions_by_name):
    rows = {}
    for name, positions in positions_by_name.items():
        for position in positions:
            key = name, position // WORD
            rows[key] = rows.get(key, 0) | 1 << position % WORD
    shuffled = random.Random(1).sample(sorted(rows.items()), len(rows))
    columns = zip(*((name, word, bits) for (name, word), bits in shuffled), strict=True)
    return [np.array(column, dtype=np.uint64).astype(np.int64) for column in columns]


@pytest.mark.parametrize(
    "positions",
    [{7: {0}}, {7: {63, 64, 127}, 3: {5}}, {1: set(range(0, 5_000, 3)), 2: {1 << 33}}],
    ids=["one record", "ends of words", "many and far"],
)
def test_bits_of_words_are_positions(positions):
    found = positions_by_file(*words_of(positions))
    assert {name: set(p) for name, p in found.items()} == positions


@pytest.mark.parametrize(
    ("path", "number"),
    [("abc", 1423657621850124518), ("", -7444071767201028348)],
    ids=["positive", "negative"],
)
def test_a_file_has_the_number_that_spark_gives_its_name(path, number):
    assert file_hash(path) == number  # SELECT xxhash64('abc'), xxhash64('')


def test_no_rows_are_no_files():
    assert positions_by_file(*(np.array([], dtype=np.int64) for _ in range(3))) == {}


def test_a_blob_is_length_magic_bitmap_and_crc():
    blob = vector_blob(BitMap64([1, 1 << 32]))
    body = blob[4:-4]
    assert int.from_bytes(blob[:4], "big") == len(body)
    assert body[:4].hex() == "d1d33964"
    assert int.from_bytes(body[4:12], "little") == 2  # one bitmap for each upper half
    assert int.from_bytes(blob[-4:], "big") == zlib.crc32(body)


@pytest.mark.parametrize("positions", [[], [0], [1, 1 << 40], range(100_000)], ids=["none", "one", "far", "a run"])
def test_a_blob_gives_its_positions_back(positions):
    assert list(positions_of(vector_blob(BitMap64(positions)), "x")) == list(positions)


@pytest.mark.parametrize("at", [0, 5, 20, -1], ids=["length", "magic", "bitmap", "crc"])
def test_a_damaged_blob_is_named(at):
    blob = bytearray(vector_blob(BitMap64([1, 2, 3])))
    blob[at] ^= 1
    with pytest.raises(TableError, match="f.puffin is not a deletion vector"):
        positions_of(bytes(blob), "f.puffin")

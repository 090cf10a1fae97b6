"""The bytes are those of Iceberg's Puffin specification; positions come back as they went in."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from pyroaring import BitMap64

from cleantail.errors import TableError
from cleantail.lake.position_deletes import vector_positions
from spark_jobs.engine.task_records import positions_by_place
from spark_jobs.iceberg.log_files import file_hash, vector_blob


@pytest.mark.parametrize(
    ("path", "number"),
    [("abc", 1423657621850124518), ("", -7444071767201028348)],
    ids=["positive", "negative"],
)
def test_a_file_has_the_number_that_spark_gives_its_name(path, number):
    assert file_hash(path) == number  # SELECT xxhash64('abc'), xxhash64('')


def test_positions_in_any_order_are_grouped_by_place():
    place, pos = np.array([7, 3, 7], np.int32), np.array([64, 5, 1 << 33])
    assert {name: set(found) for name, found in positions_by_place(place, pos).items()} == {7: {64, 1 << 33}, 3: {5}}
    assert positions_by_place(place[:0], pos[:0]) == {}


def test_a_blob_is_length_magic_bitmap_and_crc():
    blob = vector_blob(BitMap64([1, 1 << 32]))
    body = blob[4:-4]
    assert int.from_bytes(blob[:4], "big") == len(body)
    assert body[:4].hex() == "d1d33964"
    assert int.from_bytes(body[4:12], "little") == 2  # one bitmap for each upper half
    assert int.from_bytes(blob[-4:], "big") == zlib.crc32(body)


@pytest.mark.parametrize("positions", [[], [0], [1, 1 << 40], range(100_000)], ids=["none", "one", "far", "a run"])
def test_a_blob_gives_its_positions_back(positions):
    assert list(vector_positions(vector_blob(BitMap64(positions)), "x")) == list(positions)


@pytest.mark.parametrize("at", [0, 5, 20, -1], ids=["length", "magic", "bitmap", "crc"])
def test_a_damaged_blob_is_named(at):
    blob = bytearray(vector_blob(BitMap64([1, 2, 3])))
    blob[at] ^= 1
    with pytest.raises(TableError, match="f.puffin is not a deletion vector"):
        vector_positions(bytes(blob), "f.puffin")

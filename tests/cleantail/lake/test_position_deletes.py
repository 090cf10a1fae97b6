"""Delete files of one data file: how many of its records they hide, and which of them nobody can read."""

from __future__ import annotations

import os
import tracemalloc
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.io.pyarrow
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import FileFormat
from pyroaring import BitMap64

from cleantail.config.platform_configs import LimitConfigs
from cleantail.errors import TableError
from cleantail.lake import metadata_guards
from cleantail.lake.position_deletes import (
    POSITIONS,
    VECTORS,
    DeleteFile,
    bound_deletes,
    lost_positions,
    lost_records,
    positions_of_file,
    puffin_problem,
    vectors_by_file,
)
from spark_jobs.iceberg.log_files import puffin_file

MIB = 1 << 20


def vector(number, records=3, path="v.puffin"):
    return DeleteFile("a.parquet", path, VECTORS, records, number)


@pytest.fixture
def positions(tmp_path):
    def write(number, *pos):
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"file_path": ["a.parquet"] * len(pos), "pos": pa.array(pos, pa.int64())}), path)
        return DeleteFile("a.parquet", path, POSITIONS, len(pos), number)

    return write


@pytest.mark.parametrize(("arrived", "lost"), [(0, 3), (5, 3), (6, 2), (7, 0)])
def test_position_deletes_are_of_what_came_before_them(positions, arrived, lost):
    deletes = [positions(5, 1, 2), positions(6, 2, 3)]
    assert lost_records(PyArrowFileIO(), deletes, 9, arrived) == lost


def test_a_vector_has_all_that_its_file_has_lost():
    assert lost_records(PyArrowFileIO(), [vector(6)], 9, 6) == 3


def test_two_vectors_of_a_file_are_refused_with_the_way_out():
    with pytest.raises(TableError, match="a.parquet has 2 deletion vectors, in v.puffin and w.puffin.*cleantail mend"):
        lost_records(PyArrowFileIO(), [vector(5), vector(6, path="w.puffin")], 9, 1)


def test_a_vector_that_is_older_than_its_file_is_refused_with_the_way_out():
    with pytest.raises(TableError, match="registered .sequence number 7. after its deletion vector.*cleantail mend"):
        lost_records(PyArrowFileIO(), [vector(6)], 9, 7)


def test_vectors_are_told_by_their_data_file():
    one, other = vector(5), DeleteFile("b.parquet", "p.parquet", POSITIONS, 1, 5)
    assert vectors_by_file([one, other, one]) == {"a.parquet": [one, one]}


def test_position_deletes_of_several_files_are_told_apart(tmp_path):
    place = tmp_path / "several.parquet"
    names = ["a.parquet", "b.parquet", "a.parquet"]
    pq.write_table(pa.table({"file_path": names, "pos": pa.array([1, 1, 4], pa.int64())}), place)
    content = place.read_bytes()
    found = {n: list(positions_of_file(BytesIO(content), n, "", MIB)) for n in (*names, "c.parquet")}
    assert found == {"a.parquet": [1, 4], "b.parquet": [1], "c.parquet": []}


def bomb(place, pos, names=("a.parquet",), **options):
    """A position delete file of many positions that takes few bytes."""
    paths = pa.DictionaryArray.from_arrays(pa.array([0] * len(pos), pa.int32()), list(names)).cast(pa.string())
    table = pa.table({"file_path": paths, "pos": pos})
    pq.write_table(table, place, compression="zstd", **{"use_dictionary": ["file_path"], **options})
    return str(place)


@pytest.fixture
def limited(monkeypatch):
    return lambda size: monkeypatch.setattr(metadata_guards, "_limits", LimitConfigs(deletes_max_bytes=size))


def peak_of(work):
    """The most memory of pyarrow's and of Python's that the work took, in bytes."""
    tracemalloc.start()
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        work()
        return (pool.max_memory() or 0) + tracemalloc.get_traced_memory()[1]
    finally:
        pa.set_memory_pool(usual)
        tracemalloc.stop()


POSITIONS_AT_0 = pa.array(np.zeros(4_000_000, np.int64))


def test_a_small_file_of_many_positions_is_refused_before_it_is_read(tmp_path, limited):
    path = bomb(tmp_path / "d.parquet", POSITIONS_AT_0, column_encoding={"pos": "DELTA_BINARY_PACKED"})
    assert os.path.getsize(path) < 200_000
    limited(20 * MIB)
    delete = [DeleteFile("a.parquet", path, POSITIONS, 4_000_000, 5)]

    def read():
        with pytest.raises(TableError, match=r"d.parquet has, or unpacks to, more than 20971520.*deletes\.max\.bytes"):
            lost_positions(PyArrowFileIO(), delete, 10)

    assert peak_of(read) < 8 * MIB


def test_positions_within_the_limit_take_the_memory_of_a_batch(tmp_path, limited):
    path = bomb(tmp_path / "d.parquet", POSITIONS_AT_0, column_encoding={"pos": "DELTA_BINARY_PACKED"})
    limited(80 * MIB)
    delete = [DeleteFile("a.parquet", path, POSITIONS, 4_000_000, 5)]
    found = []
    assert peak_of(lambda: found.extend(lost_positions(PyArrowFileIO(), delete, 10))) < 16 * MIB
    assert found == [0]


def test_a_footer_that_says_less_than_the_pages_have_hides_nothing(tmp_path, limited):
    """Of the file only the sizes in the footer are changed: pyarrow would allocate what the page says."""
    path = tmp_path / "d.parquet"
    bomb(
        path,
        pa.array(np.zeros(4_000_000, np.int64)),
        column_encoding={"pos": "PLAIN"},
        data_page_size=1 << 30,
        row_group_size=1 << 30,
    )
    file = pq.ParquetFile(path)
    real = file.metadata.row_group(0).column(1).total_uncompressed_size
    assert real > 30 * MIB
    content, said = path.read_bytes(), varint(real)
    at = content.rindex(said)
    path.write_bytes(content[:at] + varint(1 << 20, len(said)) + content[at + len(said) :])
    assert pq.ParquetFile(path).metadata.row_group(0).column(1).total_uncompressed_size == 1 << 20
    limited(33 * MIB)  # 8 bytes of each position fit
    with pytest.raises(TableError, match=r"deletes\.max\.bytes"):
        lost_positions(PyArrowFileIO(), [DeleteFile("a.parquet", str(path), POSITIONS, 1, 5)] * 2, 10)


def varint(number, length=None):
    """A number as Thrift writes it."""
    number, digits = number << 1, []
    while number >= 0x80 or (length and len(digits) < length - 1):
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_names_by_their_lengths_are_refused(tmp_path, encoding):
    path = bomb(tmp_path / "d.parquet", pa.array([1, 2]), use_dictionary=False, column_encoding={"file_path": encoding})
    with pytest.raises(
        TableError, match=f"d.parquet is not .*in the encoding {encoding}, which Cleantail does not read"
    ):
        lost_positions(PyArrowFileIO(), [DeleteFile("a.parquet", path, POSITIONS, 2, 5)], 10)


def test_a_position_behind_the_end_of_the_data_file_is_an_error(positions):
    with pytest.raises(TableError, match="5.parquet has position 7 of a.parquet, which has 7 records"):
        lost_positions(PyArrowFileIO(), [positions(5, 1, 7)], 7)


def test_more_positions_in_the_metadata_than_records_are_counted_in_the_file(positions):
    twice = replace(positions(5, 1, 1, 1), records=9)
    assert lost_records(PyArrowFileIO(), [twice], 2) == 1


@pytest.fixture
def written(tmp_path):
    def write(positions, records=None):
        content, [(start, length)] = puffin_file([("a.parquet", positions)])
        (tmp_path / "v.puffin").write_bytes(b"".join(content))
        count = len(positions) if records is None else records
        return DeleteFile("a.parquet", str(tmp_path / "v.puffin"), VECTORS, count, 5, start, length)

    return write


@pytest.mark.parametrize(
    ("positions", "said"),
    [([1, 7], 2), ([1, 1 << 40], 2), ([1], 2), ([], 1)],
    ids=["behind the end", "far behind", "too few", "none"],
)
def test_a_vector_that_is_not_its_data_files_is_an_error(written, positions, said):
    vector = written(BitMap64(positions), said)
    with pytest.raises(
        TableError, match=rf"v\.puffin at 4 has {len(positions)} positions?, but {said} by its metadata"
    ):
        lost_positions(PyArrowFileIO(), [vector], 7)


def test_a_vector_of_more_positions_than_records_is_an_error_by_its_metadata(written):
    with pytest.raises(TableError, match="has 3 positions, but 3 by its metadata, for a data file with 2 records"):
        lost_records(PyArrowFileIO(), [written(BitMap64([1, 2, 3]))], 2)


def test_a_vector_of_billions_of_positions_takes_no_memory(written):
    vector = written(BitMap64(range(1 << 33)))
    assert os.path.getsize(vector.path) < 2 * MIB

    def read():
        with pytest.raises(TableError, match="for a data file with 10 records"):
            lost_positions(PyArrowFileIO(), [replace(vector, records=5)], 10)

    assert peak_of(read) < 8 * MIB


def test_a_vector_longer_than_the_limit_is_not_read(written, limited):
    vector = written(BitMap64(range(0, 1 << 20, 3)))
    limited(vector.length - 1)
    with pytest.raises(TableError, match=r"v.puffin at 4 has.*deletes\.max\.bytes"):
        lost_positions(PyArrowFileIO(), [vector], 1 << 20)


def by_pyiceberg(path, kind):
    """What PyIceberg reads of a delete file, once it is bounded."""
    bound_deletes()
    file = SimpleNamespace(file_path=str(path), file_format=FileFormat(kind))
    return {
        name: found.to_pylist() for name, found in pyiceberg.io.pyarrow._read_deletes(PyArrowFileIO(), file).items()
    }


def test_pyiceberg_reads_delete_files_within_the_limit(written, tmp_path, limited):
    paths, pos = ["a", "b", "a", "c", "a"], [4, 1, 2, 9, 2]
    pq.write_table(pa.table({"file_path": paths, "pos": pa.array(pos, pa.int64())}), tmp_path / "d.parquet")
    assert by_pyiceberg(tmp_path / "d.parquet", POSITIONS) == {"a": [2, 4], "b": [1], "c": [9]}
    assert by_pyiceberg(written(BitMap64([2, 5])).path, VECTORS) == {"a.parquet": [2, 5]}
    limited(MIB)
    for path, kind in [
        (written(BitMap64(range(1 << 33))).path, VECTORS),
        (bomb(tmp_path / "e.parquet", POSITIONS_AT_0), POSITIONS),
    ]:
        with pytest.raises(TableError, match=r"deletes\.max\.bytes"):
            by_pyiceberg(path, kind)


def test_a_packed_vector_and_a_large_footer_are_refused(tmp_path, written):
    vector = written(BitMap64([1]))
    content = Path(vector.path).read_bytes()
    packed = content.replace(b'"length":', b'"compression-codec":"zstd","length":')
    grown = int.from_bytes(content[-12:-8], "little") + len(packed) - len(content)
    Path(vector.path).write_bytes(packed[:-12] + grown.to_bytes(4, "little") + packed[-8:])
    with pytest.raises(TableError, match="has a blob that is not a deletion vector, or is compressed"):
        by_pyiceberg(vector.path, VECTORS)
    Path(vector.path).write_bytes(content[:-12] + (1 << 30).to_bytes(4, "little") + content[-8:])
    for read in (lambda: by_pyiceberg(vector.path, VECTORS), lambda: puffin_problem(PyArrowFileIO(), vector.path)):
        with pytest.raises(TableError, match="v.puffin has a footer of 1073741824 bytes"):
            read()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_damaged_page_or_footer_is_an_error_that_names_the_file(tmp_path, cut):
    path = bomb(tmp_path / "d.parquet", pa.array([1, 2]))
    content = bytearray(Path(path).read_bytes())
    content[4 + cut] ^= 0xFF
    Path(path).write_bytes(content)
    try:
        lost_positions(PyArrowFileIO(), [DeleteFile("a.parquet", path, POSITIONS, 2, 5)], 10)
    except TableError as error:
        assert "d.parquet" in str(error)

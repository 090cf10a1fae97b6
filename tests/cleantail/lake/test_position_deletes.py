"""Delete files of one data file: how many of its records they hide, and which of them nobody can read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from cleantail.errors import TableError
from cleantail.lake.position_deletes import (
    POSITIONS,
    VECTORS,
    DeleteFile,
    lost_records,
    positions_of_file,
    vectors_by_file,
)


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
    assert lost_records(PyArrowFileIO(), deletes, arrived) == lost


def test_a_vector_has_all_that_its_file_has_lost():
    assert lost_records(PyArrowFileIO(), [vector(6)], 6) == 3


def test_two_vectors_of_a_file_are_refused_with_the_way_out():
    with pytest.raises(TableError, match="a.parquet has 2 deletion vectors, in v.puffin and w.puffin.*cleantail mend"):
        lost_records(PyArrowFileIO(), [vector(5), vector(6, path="w.puffin")], 1)


def test_a_vector_that_is_older_than_its_file_is_refused_with_the_way_out():
    with pytest.raises(TableError, match="registered .sequence number 7. after its deletion vector.*cleantail mend"):
        lost_records(PyArrowFileIO(), [vector(6)], 7)


def test_vectors_are_told_by_their_data_file():
    one, other = vector(5), DeleteFile("b.parquet", "p.parquet", POSITIONS, 1, 5)
    assert vectors_by_file([one, other, one]) == {"a.parquet": [one, one]}


def test_position_deletes_of_several_files_are_told_apart(tmp_path):
    place = tmp_path / "several.parquet"
    names = ["a.parquet", "b.parquet", "a.parquet"]
    pq.write_table(pa.table({"file_path": names, "pos": pa.array([1, 1, 4], pa.int64())}), place)
    found = {name: positions_of_file(place, name, "").tolist() for name in (*names, "c.parquet")}
    assert found == {"a.parquet": [1, 4], "b.parquet": [1], "c.parquet": []}

"""Files as tasks read them: by field ids, by their metadata, and never believed where the two differ."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyroaring import BitMap64

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.errors import TableError
from cleantail.lake.records.projection import ColumnPath, Field, Projection
from cleantail.log.work_units import PartitionWork
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.removals import find_removals
from spark_jobs.engine.shared_logs import KeyFilter
from spark_jobs.engine.tasks import FooterTask, read_footers
from spark_jobs.engine.violations import count_violations
from spark_jobs.iceberg.file_facts import DeletedPositions
from spark_jobs.iceberg.log_files import (
    LogFile,
    alive,
    column_batches,
    read_deletes_in_task,
    vector_blob,
    with_branch,
)


def path_of(number, kind, *names):
    return ColumnPath((Field(number, names[0], names, kind),))


LAYOUT = {"offset": path_of(2, "long", "offset"), "key": path_of(5, "binary", "key")}


def file_of(place, **more):
    facts = {
        "hash": 1, "path": str(place), "records": 4, "log": 0, "lower_offset": 10, "upper_offset": 13,
        "low_key": b"b", "high_key": b"d", "null_keys": 0, "null_values": 0, "marked": False, "before": (),
    }  # fmt: skip
    return LogFile(**facts | more)


def task_of(*files, tmp_path="/"):
    work = PartitionWork(0, 10, 14, 0, 14)
    return LogTask((work,), files, LAYOUT, KafkaConfigs(), 0, 1, 1 << 28, str(tmp_path))


@pytest.mark.parametrize(
    ("low", "end", "may", "lies"),
    [(0, 10, False, False), (0, 11, True, False), (13, 20, True, False), (14, 20, False, False), (10, 14, True, True)],
)
def test_a_file_is_skipped_by_its_offsets(low, end, may, lies):
    file = file_of("f")
    assert (file.may_hold(low, end), file.lies_in(low, end)) == (may, lies)
    silent = file_of("f", lower_offset=None, upper_offset=None)
    assert (silent.may_hold(low, end), silent.lies_in(low, end)) == (True, False)


@pytest.mark.parametrize(
    ("low", "high", "may"),
    [(b"a", b"az", False), (b"a", b"b", True), (b"d", b"z", True), (b"da", b"z", False), (None, None, False)],
)
def test_a_file_is_skipped_by_its_keys(low, high, may):
    assert file_of("f").may_hold_keys(low, high) == may
    assert file_of("f", low_key=None, high_key=None).may_hold_keys(low, high) == (low is not None)


def parquet(place, ids=(2, 5), names=("offset", "key")):
    fields = [
        pa.field(name, kind, metadata=None if i is None else {b"PARQUET:field_id": str(i).encode()})
        for name, kind, i in zip(names, (pa.int64(), pa.binary()), ids, strict=True)
    ]
    columns = [pa.array([10, 11, 12, 13], pa.int64()), pa.array([b"a", None, b"b", b"a"], pa.binary())]
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), place)
    return place


def offsets_of(place, layout=LAYOUT):
    io = load_file_io({}, str(place))
    return [
        n for _, arrays in column_batches(io, file_of(place), layout, ["offset"]) for n in arrays["offset"].to_pylist()
    ]


def test_columns_are_known_by_their_ids_whatever_they_are_called(tmp_path):
    renamed = parquet(tmp_path / "renamed.parquet", names=("o", "k"))
    assert offsets_of(renamed) == [10, 11, 12, 13]
    swapped = {"offset": LAYOUT["key"], "key": LAYOUT["offset"]}
    in_file = Projection(pq.read_schema(renamed), swapped, ["offset", "key"], (), "f")
    assert {name: in_file.path_in_file(name) for name in swapped} == {"offset": "k", "key": "o"}


def test_a_file_without_ids_is_read_by_the_tables_name_mapping(tmp_path):
    bare = parquet(tmp_path / "bare.parquet", (None, None), ("o", "k"))
    mapped = {"offset": path_of(2, "long", "offset", "o")}
    assert offsets_of(bare, mapped) == [10, 11, 12, 13]
    with pytest.raises(TableError, match="bare.parquet has no column for the offset"):
        find_removals({}, task_of(file_of(bare), tmp_path=tmp_path))


def test_a_field_of_a_struct_is_known_by_the_ids_on_the_way_to_it(tmp_path):
    def field(name, kind, number):
        return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})

    inner = pa.struct([field("offset", pa.int32(), 7)])
    rows = pa.array([{"offset": 10}, None, {"offset": 12}, {"offset": 13}], inner)
    place = tmp_path / "nested.parquet"
    pq.write_table(pa.Table.from_arrays([rows], schema=pa.schema([field("redpanda", inner, 3)])), place)
    assert offsets_of(
        place, {"offset": ColumnPath((Field(3, "redpanda", (), "struct"), Field(7, "offset", (), "int")))}
    ) == [10, None, 12, 13]


def test_a_file_whose_record_count_contradicts_its_metadata_is_an_error(tmp_path):
    file = file_of(parquet(tmp_path / "f.parquet"), records=5)
    with pytest.raises(TableError, match="has 4 records, but 5 by its metadata"):
        find_removals({}, task_of(file, tmp_path=tmp_path))


@pytest.mark.parametrize(
    ("positions", "count"), [([0, 9], 2), ([0], 2), ([0, 1, 2], 2)], ids=["behind the end", "too few", "too many"]
)
def test_a_vector_whose_position_count_contradicts_its_metadata_is_an_error_that_names_it(tmp_path, positions, count):
    blob = vector_blob(BitMap64(positions))
    (tmp_path / "v.puffin").write_bytes(b"PFA1" + blob)
    deletes = DeletedPositions(str(tmp_path / "v.puffin"), 4, len(blob), count)
    with pytest.raises(TableError, match=f"v.puffin at 4 has {len(positions)} positions?, but {count} by its metadata"):
        read_deletes_in_task(load_file_io({}, str(tmp_path)), (deletes,), file_of("f"))


@pytest.mark.parametrize("records", [1, 3, 4, 7, 100])
def test_the_pieces_of_a_file_have_each_of_its_records_once(tmp_path, records):
    """Whatever part of the file the row groups are."""
    rows = pa.table({"offset": pa.array(range(23), pa.int64())})
    pq.write_table(rows, tmp_path / "grouped.parquet", row_group_size=5)
    io = load_file_io({}, str(tmp_path))
    whole = file_of(str(tmp_path / "grouped.parquet"), records=23, row_groups=5)
    pieces = whole.split(records)
    assert len(pieces) == min(5, -(-23 // records))
    read = [
        (at, array)
        for piece in pieces
        for at, columns in column_batches(io, piece, LAYOUT, ["offset"])
        for array in columns.values()
    ]
    assert [at + place for at, array in read for place in range(len(array))] == list(range(23))
    assert [offset for _, array in read for offset in array.to_pylist()] == list(range(23))


def test_records_of_a_file_that_the_branch_lacks_count_as_missing_winners(tmp_path):
    files = with_branch([file_of(parquet(tmp_path / "f.parquet"), low_key=None, null_keys=1)], {})
    [log] = count_violations({}, task_of(*files, tmp_path=tmp_path), {})
    counts = log.counts
    assert (counts["records_in"], counts["records_out"], counts["missing_winners"]) == (4, 0, 2)


def test_footers_supply_the_bounds_that_the_metadata_lack(tmp_path):
    silent = {"lower_offset": None, "upper_offset": None, "low_key": None, "high_key": None, "null_keys": None}
    file = file_of(parquet(tmp_path / "f.parquet"), **silent)
    [told] = read_footers({}, FooterTask((file,), LAYOUT, str(tmp_path)))
    assert (told.lower_offset, told.upper_offset, told.low_key, told.high_key) == (10, 13, b"a", b"b")
    assert told.null_keys == 1


def test_a_key_filter_passes_every_key_that_was_added():
    keys = KeyFilter.for_keys(100)

    put_in = np.arange(1, 10_000, 111, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    others = np.arange(3, 100_000, 17, dtype=np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    keys.add(put_in)
    assert keys.lets_through(put_in).all()
    assert keys.lets_through(others).mean() < 0.2
    assert (keys | KeyFilter.for_keys(100)).lets_through(put_in).all()


def test_records_are_alive_if_no_delete_file_names_their_position():
    assert alive(4, BitMap64([1])).tolist() == [True, False, True, True]

"""Iceberg's JSON of files, parsed without a JVM."""

import json

import pytest

from spark_jobs.iceberg.file_facts import DeletedPositions, facts_of_file, facts_of_task

DATA = {
    "spec-id": 1, "content": "data", "file-path": "s3://b/a.parquet", "file-format": "parquet",
    "partition": {"1000": 3}, "file-size-in-bytes": 90, "record-count": 7,
}  # fmt: skip
METRICS = {
    "column-sizes": {"keys": [1, 2], "values": [40, 50]},
    "null-value-counts": {"keys": [1], "values": [0]},
    "lower-bounds": {"keys": [1, 2], "values": ["0a", "61"]},
    "upper-bounds": {"keys": [1], "values": ["0b"]},
    "split-offsets": [4, 40],
    "first-row-id": 0,
}
DELETES = DATA | {"content": "position-deletes", "referenced-data-file": "s3://b/a.parquet"}


def facts(described):
    return facts_of_file(json.dumps(described))


def test_metrics_are_asked_by_field_id():
    file = facts(DATA | METRICS)
    assert (file.records, file.size_bytes, file.row_groups, file.first_row_id) == (7, 90, 2, 0)
    assert (file.column_sizes, file.null_value_counts) == ({1: 40, 2: 50}, {1: 0})
    assert [file.bounds_of(number) for number in (1, 2, 3)] == [(b"\n", b"\x0b"), (b"a", None), (None, None)]
    assert file.bounds() == ({1: b"\n", 2: b"a"}, {1: b"\x0b"})


def test_a_file_without_optional_fields_has_one_row_group_and_no_metrics():
    file = facts(DATA)
    assert (file.row_groups, file.first_row_id, file.equality_ids, file.key_metadata) == (1, None, (), None)
    assert file.bounds() == ({}, {})


@pytest.mark.parametrize("partition", [{"1000": 3}, [3]], ids=["by field id", "in order"])
def test_partition_values_are_read_from_both_json_forms(partition):
    assert facts(DATA | {"partition": partition}).partition_values == [3]


def test_files_of_one_partition_have_one_key_whatever_the_order_of_its_fields():
    one, other = ({"1000": 3, "1001": "x"}, {"1001": "x", "1000": 3})
    assert facts(DATA | {"partition": one}).partition_key == facts(DATA | {"partition": other}).partition_key
    assert facts(DATA | {"spec-id": 2}).partition_key != facts(DATA).partition_key


@pytest.mark.parametrize(
    ("more", "where"),
    [
        pytest.param({}, DeletedPositions("s3://b/a.parquet", None, 90, 7), id="a whole Parquet file"),
        pytest.param({"content-offset": 0, "content-size-in-bytes": 30},
                     DeletedPositions("s3://b/a.parquet", 0, 30, 7), id="a vector at the beginning"),
    ],
)  # fmt: skip
def test_a_delete_file_has_the_same_deleted_positions_with_and_without_its_task(more, where):
    data, deletes = facts_of_task(json.dumps({"data-file": DATA, "delete-files": [DELETES | more]}))
    assert (data, deletes) == (facts(DATA), (where,))
    assert facts(DELETES | more).deleted_positions == where


def test_a_task_without_delete_files_has_no_deleted_positions():
    assert facts_of_task(json.dumps({"data-file": DATA}))[1] == ()


@pytest.mark.parametrize(
    "more",
    [
        {"lower-bounds": {"keys": [1, 2], "values": ["0a", "61"]}, "upper-bounds": {"keys": [1], "values": ["0b"]}},
        {"content-offset": 0, "content-size-in-bytes": 30},
    ],
    ids=["position deletes", "vector"],
)
def test_a_delete_file_is_written_as_it_was_read(more):
    assert facts(DELETES | more).as_delete_json() == DELETES | more

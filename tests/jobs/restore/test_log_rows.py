"""A log's files as rows in the order of offsets, each offset once, whatever the files are like (spark_jobs/restore)."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io

from cleantail.config.topic_table import COLUMNS
from cleantail.errors import ContradictionError, TableError
from cleantail.lake.records.projection import ColumnPath, Field
from spark_jobs.iceberg.file_columns import HEADER_LIST
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.restore_tasks import SnapshotLog, log_rows, once, overlapping, read_log_facts, rows_of

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADER_LIST),
    ]
)
LAYOUT = {name: ColumnPath((Field(n, name, (name,), ""),)) for n, name in enumerate(COLUMNS)}
AT = 1_600_000_000_000


def record(offset, partition=0, stamp_ms=AT, key=b"k", value=b"v", headers=(), kind=0):
    stamp = None if stamp_ms is None else stamp_ms * 1000 + 999
    pairs = None if headers is None else [{"key": k, "value": v} for k, v in headers]
    return dict(zip(SCHEMA.names, (partition, offset, stamp, kind, key, value, pairs), strict=True))


def file(folder, number, records, schema=SCHEMA, several=False, **facts):
    path = folder / f"{number}.parquet"
    pq.write_table(pa.Table.from_pylist(records, schema=schema), path, row_group_size=3)
    offsets = [r["offset"] for r in records]
    return LogFile(
        hash=number,
        path=f"file://{path}",
        records=len(records),
        log=None if several else 0,
        lower_offset=min(offsets),
        upper_offset=max(offsets),
        low_key=None,
        high_key=None,
        null_keys=None,
        null_values=None,
        marked=False,
        before=(),
        **facts,
    )


def source(*files, start=0, tombstones=True):
    return SnapshotLog(0, files, LAYOUT, start, tombstones, "file:///", 1 << 26)


def rows(source_):
    parts = log_rows(load_file_io({}), source_)
    return [
        (o, k, v, s, h)
        for p in parts
        for o, k, v, s, h in zip(p.offsets, p.keys, p.values, p.stamps_ms, p.headers, strict=True)
    ]


def offsets(source_):
    return [row[0] for row in rows(source_)]


def test_a_record_is_what_kafka_had(tmp_path):
    headers = [("h", b"1"), ("h", None), ("", b""), ("h", b"1")]
    records = [
        record(0, key=None, value=None, headers=None, stamp_ms=None),
        record(1, key=b"", value=b"", headers=headers),
        record(2, headers=[]),
        record(3, key=b"\xff\x00", headers=[("\u00e9", b"\xff")]),
    ]
    assert rows(source(file(tmp_path, 0, records))) == [
        (0, None, None, -1, None),
        (1, b"", b"", AT, headers),
        (2, b"k", b"v", AT, None),
        (3, b"\xff\x00", b"v", AT, [("\u00e9", b"\xff")]),
    ]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([[0, 1, 5], [6, 9], [12]], id="one after another"),
        pytest.param([[6, 9], [12], [0, 1, 5]], id="in any order of files"),
        pytest.param([[0, 5, 9], [1, 6, 12]], id="that overlap"),
        pytest.param([[9, 0, 5], [12, 6, 1]], id="in no order themselves"),
        pytest.param([[0, 1, 5, 6, 9], [9, 12], [5, 6]], id="with copies of each other"),
        pytest.param([[0, 1, 1, 5, 6, 9, 9, 12]], id="with copies in one file"),
        pytest.param([[0, 1, 5], [5, 6], [6, 9, 12]], id="with copies at the ends"),
    ],
)
def test_offsets_come_in_order_and_once(tmp_path, parts):
    files = [file(tmp_path, n, [record(o) for o in part]) for n, part in enumerate(parts)]
    assert offsets(source(*files)) == [0, 1, 5, 6, 9, 12]
    facts = read_log_facts({}, source(*files))
    assert (facts.records, facts.first_offset, facts.last_offset) == (6, 0, 12)


def test_files_are_grouped_by_the_offsets_that_they_can_have(tmp_path):
    spans = {0: (0, 3), 1: (10, 12), 2: (2, 5), 3: (6, 9), 4: (11, 20)}
    files = [file(tmp_path, n, [record(low), record(high)]) for n, (low, high) in spans.items()]
    assert [[f.hash for f in group] for group in overlapping(files)] == [[0, 2], [3], [1, 4]]


@pytest.mark.parametrize(
    "other", [{"value": b"w"}, {"value": None}, {"key": None}, {"stamp_ms": 1}, {"headers": [("h", b"")]}]
)
def test_two_different_records_at_one_offset_are_an_error_that_names_neither(tmp_path, other):
    files = [file(tmp_path, n, [record(0), each]) for n, each in enumerate([record(7), record(7, **other)])]
    with pytest.raises(ContradictionError, match="partition 0, offset 7: two different records"):
        offsets(source(*files))


def test_rows_below_the_log_start_or_of_another_log_are_left_out(tmp_path):
    records = [record(o, partition=o % 2) for o in range(10)]
    assert offsets(source(file(tmp_path, 0, records, several=True), start=3)) == [4, 6, 8]


def test_tombstones_are_left_out_where_the_latest_records_are_asked_for(tmp_path):
    some = file(tmp_path, 0, [record(o, value=None if o % 2 else b"") for o in range(6)])
    assert offsets(source(some, tombstones=False)) == [0, 2, 4]
    assert read_log_facts({}, source(some, tombstones=False)).records == 3
    assert read_log_facts({}, source(some)).records == 6


def test_log_facts_have_the_range_of_timestamps_and_count_special_ones(tmp_path):
    records = [record(0, stamp_ms=None), record(1, stamp_ms=0), record(2, stamp_ms=5, kind=1), record(3, stamp_ms=9)]
    facts = read_log_facts({}, source(file(tmp_path, 0, records)))
    assert (facts.oldest_ms, facts.newest_ms, facts.zero_stamps, facts.without_type) == (0, 9, 1, 1)
    assert read_log_facts({}, source()).oldest_ms is None


def test_a_value_column_that_is_not_bytes_is_refused(tmp_path):
    schema = pa.schema([pa.field(f.name, pa.int64() if f.name == "value" else f.type) for f in SCHEMA])
    some = file(tmp_path, 0, [record(0, value=7)], schema)
    with pytest.raises(TableError, match="column value of type int64. A restore needs the bytes that Kafka had"):
        offsets(source(some))


def test_keys_and_values_stored_as_text_are_restored_as_utf8_bytes(tmp_path):
    schema = pa.schema([pa.field(f.name, pa.string() if f.name in ("key", "value") else f.type) for f in SCHEMA])
    some = file(tmp_path, 0, [record(0, key="\u00e9", value="")], schema)
    assert rows(source(some))[0][1:3] == ("\u00e9".encode(), b"")


def test_batches_do_not_break_copies_apart():
    batch = pa.RecordBatch.from_pylist(
        [{"offset": o, "stamp": 1, "key": b"k", "value": b"v", "headers": []} for o in (1, 1)],
        schema=pa.schema(
            [
                ("offset", pa.int64()),
                ("stamp", pa.int64()),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", HEADER_LIST),
            ]
        ),
    )
    parts = [rows_of(batch.slice(0, 1)), rows_of(batch.slice(0, 0)), rows_of(batch.slice(1, 1))]
    assert [list(p.offsets) for p in once(parts, 0)] == [[1]]

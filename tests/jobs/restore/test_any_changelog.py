"""Changelog tables that no sink of Kafka's wrote: keys of several columns and of any type, deletes by a mark, values in many
columns. What is compared is what Spark's view, the command line and the rounds' tasks each make of the same table."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from cleantail.errors import TableError
from cleantail.lake.catalogs import open_catalog
from spark_jobs.restore_tasks import require_as_in_kafka
from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.round.intake.test_adopt import HOUR, NOW

COLUMNS = (
    "p int, o bigint, ms bigint, source struct<tenant: string, id: int>, op string, "
    "name string, amount decimal(9,2), note string"
)
SELECT = [
    "p",
    "o",
    "ms",
    "named_struct('tenant', nullif(split(k, '/')[0], ''), 'id', CAST(nullif(split(k, '/')[1], '') AS INT)) AS source",
    "IF(v IS NULL, 'd', 'u') AS op",
    "coalesce(v, 'before') AS name",
    "CAST(o AS DECIMAL(9,2)) AS amount",
    "CAST(NULL AS STRING) AS note",
]
MAPPED = ("partition=p", "offset=o", "timestamp=ms", "key=source.tenant,source.id", "value=name,amount,note")
KEYS = ("eu/1", "eu/", "/1", "e/11", "eu/11")


def rows(count=40):
    return [
        (p, o, NOW - 5 * HOUR + o, KEYS[(o * 3 + p) % 5], None if o % 9 in (4, 8) else f"v{o}")
        for p in range(2)
        for o in range(count)
    ]


def key(text):
    """The bytes of a key, written a second time."""
    return "".join("-" if part == "" else f"{len(part)}:{part}" for part in text.split("/"))


def winners(records):
    last = {}
    for p, o, _, k, v in records:
        last[p, k] = (p, o, key(k), v)
    return sorted(last.values())


def of(records):
    made = []
    for r in records:
        value = r["payload"]
        made.append((r["partition"], r["offset"], r["key"], None if value is None else json.loads(value)["name"]))
    return sorted(made)


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_keys_of_several_columns_deletes_by_a_mark_and_values_of_many(workshop, spark, lake, table_of, version):
    name, records = f"debezium{version}", rows()
    properties = f"'format-version'='{version}'"
    table = lake(name, COLUMNS, [records[:50], records[50:]], SELECT, "", properties)
    arguments = [x for pair in MAPPED for x in ("--column", pair)]
    found = workshop.json("adopt", table, "--topic", name, *arguments, "--deleted", "op=d", "--dry-run")
    assert found["tombstones"] == sum(v is None for *_, v in records)
    assert found["mapped"]["key"] == "source.tenant,source.id"
    workshop.ok("adopt", table, "--topic", name, *arguments, "--deleted", "op=d")
    settings(workshop, name)
    assert of(workshop.read(name)) == sorted((p, o, key(k), v) for p, o, _, k, v in records)
    result = workshop.json("compact", name, "--now", NOW, "--force")
    assert result["ok"], result
    assert of(workshop.read(name)) == winners(records)
    alive = [r for r in winners(records) if r[3] is not None]
    assert of(map(json.loads, workshop.ok("latest", name, "--now", NOW).splitlines())) == alive
    view = spark.table(f"cleantail.sinks.`{name}_latest`").collect()
    shown = sorted((r.partition, r.offset, bytes(r.key).decode(), json.loads(bytes(r.value))["name"]) for r in view)
    assert shown == alive
    read = table_of(name)
    layout = read.files_at(read.load().currentSnapshot().snapshotId()).layout
    with pytest.raises(TableError, match="needs the bytes that Kafka had, and the table does not store them"):
        require_as_in_kafka(layout, "a.parquet")
    # tombstones go at their horizon: the mark says which they are
    workshop.ok("compact", name, "--now", NOW + HOUR, "--force")
    assert of(workshop.read(name)) == alive


TYPES = {
    "float": "CAST(CAST(k AS INT) AS FLOAT) / 4 - 1",
    "double": "CAST(k AS DOUBLE) / 10 - 0.3",
    "decimal(38,10)": "CAST(k AS DECIMAL(38,10)) / 10000000000",
    "timestamp": "timestamp_micros(CAST(k AS BIGINT) * 1000001 - 3000000)",
    "timestamp_ntz": "CAST(timestamp_micros(CAST(k AS BIGINT) * 1000001 - 3000000) AS TIMESTAMP_NTZ)",
    "boolean": "k = '3'",
    "binary": "CAST(k AS BINARY)",
}


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([*TYPES], id="all in one key"),
        *(pytest.param([kind], id=kind, marks=pytest.mark.deep) for kind in TYPES),
    ],
)
def test_keys_of_every_type_have_the_same_bytes_in_spark_and_in_tasks(workshop, spark, lake, kinds):
    name = f"typed{len(kinds)}{list(TYPES).index(kinds[0])}"
    records = [(0, o, NOW - HOUR + o, str(o * 7 % 6), f"v{o}") for o in range(24)]
    columns = [f"k{n}" for n in range(len(kinds))]
    keys_of = [f"CAST({TYPES[kind]} AS {kind}) AS {column}" for column, kind in zip(columns, kinds, strict=True)]
    typed = ", ".join(f"{column} {kind}" for column, kind in zip(columns, kinds, strict=True))
    table = lake(name, f"p int, o bigint, ms bigint, {typed}, v string", [records], ["p", "o", "ms", *keys_of, "v"])
    pairs = ("partition=p", "offset=o", "timestamp=ms", f"key={','.join(columns)}", "value=v")
    workshop.ok("adopt", table, "--topic", name, *(f"--column={pair}" for pair in pairs))
    settings(workshop, name)
    stored = spark.table(full(table)).orderBy("o").collect()
    last = {tuple(map(hashable, (row[column] for column in columns))): row.o for row in stored}
    keys = {r["key"] for r in workshop.read(name)}
    assert len(keys) == len(last)
    workshop.ok("compact", name, "--now", NOW, "--force")
    assert [r["offset"] for r in workshop.read(name)] == sorted(last.values())
    view = spark.table(f"cleantail.sinks.`{name}_latest`").collect()
    assert {bytes(r.key).decode() for r in view} == keys


def hashable(value):
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--column", "key=source"], "name its fields, as --column key=STRUCT.FIELD,STRUCT.FIELD"),
        (["--column", "key=source.tenant,source.tenant"], "--column key: each column once"),
        (["--column", "key=source.tenant,nothing"], "key: the table has no column nothing"),
        (
            ["--column", "key=name", "--column", "value=name,note"],
            "several columns do not show that a record deletes its key",
        ),
        (["--column", "key=name", "--deleted", "amount=1"], "text, a boolean or a whole number is needed"),
        (["--column", "key=name", "--deleted", "gone=1"], "deleted: the table has no column gone"),
        (["--column", "key=name", "--deleted", "op='; x"], "1 to 64 of the characters"),
    ],
)
def test_a_contradictory_mapping_is_refused_before_any_change(workshop, spark, lake, arguments, message):
    if not spark.catalog.tableExists("cleantail.sinks.refused_map"):
        lake("refused_map", COLUMNS, [rows(2)], SELECT)
    code, _, err = workshop.run(
        "adopt", "sinks.refused_map", "--column", "partition=p", "--column", "offset=o", *arguments
    )
    assert code == 2 and message in err
    assert not list((workshop.config / "topics").iterdir())


@pytest.mark.deep
def test_a_timestamp_in_a_struct_of_which_the_metadata_have_no_bounds_is_that_of_the_footer(workshop, spark):
    """PyIceberg's writer tells bounds of the columns at the top alone: without a time the newest file would stay active.

    test_a_table_written_by_pyiceberg_is_upgraded_on_request_and_compacted cleans such a file."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS cleantail.sinks")
    meta = pa.struct([("at", pa.timestamp("us", "UTC"))])
    schema = pa.schema([("p", pa.int32()), ("o", pa.int64()), ("meta", meta), ("k", pa.string()), ("v", pa.string())])
    table = open_catalog(workshop.platform()).create_table("sinks.nested_time", schema)
    for first in (0, 6):
        made = [
            {"p": 0, "o": n, "meta": {"at": (NOW - HOUR + n) * 1000}, "k": f"k{n % 4}", "v": f"v{n}"}
            for n in range(first, first + 6)
        ]
        table.append(pa.Table.from_pylist(made, schema=schema))
    [file, _] = [task.file for task in table.scan().plan_files()]
    at, offset = (table.schema().find_field(name).field_id for name in ("meta.at", "o"))
    assert at not in file.lower_bounds and offset in file.lower_bounds
    mapped = ("partition=p", "offset=o", "timestamp=meta.at", "key=k", "value=v")
    workshop.ok(
        "adopt", "sinks.nested_time", *(x for pair in mapped for x in ("--column", pair)), "--topic", "nested-time"
    )
    settings(workshop, "nested-time")
    [log] = workshop.json("status", "nested-time", "--now", NOW)["topics"]["nested-time"]
    assert log["first_uncleanable_offset"] == 12
    workshop.ok("compact", "nested-time", "--now", NOW)
    assert [r["offset"] for r in workshop.read("nested-time")] == [8, 9, 10, 11]

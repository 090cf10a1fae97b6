"""Data files of Cleantail's own tables: few bytes, and readers find rows without opening the other files."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyiceberg.table
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from cleantail.lake.own_tables import FORMAT_VERSION, PROPERTIES, SNAPSHOTS_KEPT, append_to

NAMES = [f"number_{n}" for n in range(20)]
SCHEMA = pa.schema(
    [("topic", pa.string()), ("marks", pa.binary()), ("checks", pa.string()), *((name, pa.int64()) for name in NAMES)]
)
CHECKS = json.dumps([{"rule": random.Random(n).choice(["unique", "present"]), "offsets": [n] * 9} for n in range(25)])


def rows(topic, count=2):
    numbers = {name: list(range(count)) for name in NAMES}
    return pa.table({"topic": [topic] * count, "marks": [b"m" * 32, None], "checks": [CHECKS, "[]"]} | numbers, SCHEMA)


@pytest.fixture
def table(tmp_path):
    catalog = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    return catalog.create_table("n.evidence", SCHEMA, properties=FORMAT_VERSION | PROPERTIES)


def test_a_file_of_two_rows_takes_few_bytes(table):
    """PyIceberg's own writer makes a file of 13 KB of these: it writes the JSON again as its least and greatest."""
    append_to(table, rows("orders"))
    [size] = table.inspect.files()["file_size_in_bytes"].to_pylist()
    assert 1_000 < size < 6_000


def test_rows_are_read_back_and_files_of_other_topics_are_not_opened(table):
    append_to(table, rows("orders"))
    append_to(table, rows("customers"))
    scan = table.scan(row_filter=EqualTo("topic", "orders"))
    assert scan.to_arrow().cast(SCHEMA).equals(rows("orders"))
    assert (len(list(scan.plan_files())), len(list(table.scan().plan_files()))) == (1, 2)


def test_a_column_that_the_rows_lack_is_null(table):
    with table.update_schema() as update:
        update.add_column("later", StringType())
    append_to(table, rows("orders"))
    assert table.scan().to_arrow()["later"].to_pylist() == [None, None]


def test_only_short_texts_have_bounds(table):
    append_to(table, rows("orders"))
    [metrics] = table.inspect.files()["readable_metrics"].to_pylist()
    bounds = {name: metrics[name]["upper_bound"] for name in ("topic", "marks", "checks", "number_3")}
    assert bounds == {"topic": "orders", "marks": b"m" * 15 + b"n", "checks": None, "number_3": 1}


def test_an_append_makes_the_metadata_once_for_each_staged_change(table, monkeypatch):
    """Each time all metadata are copied."""
    staged, make = [], pyiceberg.table.update_table_metadata
    monkeypatch.setattr(
        pyiceberg.table,
        "update_table_metadata",
        lambda metadata, updates: staged.append(updates) or make(metadata, updates),
    )
    for _ in range(2 * SNAPSHOTS_KEPT + 1):  # the last one also expires snapshots
        staged.clear()
        append_to(table, rows("orders"))
    assert len(table.metadata.snapshots) == SNAPSHOTS_KEPT
    assert len(staged) == len({len(updates) for updates in staged}) > 1

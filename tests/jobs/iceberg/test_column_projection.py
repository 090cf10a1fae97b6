"""Tables of other writers are read as Iceberg reads them: what a data file lacks has the value of its identity partition,
its default, or null (Iceberg's specification, Column Projection). From adoption to the last check, every command."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.round.intake.test_adopt import HOUR, NOW

V3 = "'format-version'='3'"
PLAIN = "`partition` int, `offset` bigint, `timestamp` timestamp"
AGO = NOW - 5 * HOUR


def mapped(*columns):
    return [part for column in columns for part in ("--column", column)]


def stamps(count, micros=0):
    return pa.array([AGO * 1000 + micros] * count, pa.timestamp("us", "UTC"))


class Sink:
    """A table of another writer: made by Spark, filled by files and rows, adopted, compacted and read."""

    def __init__(self, workshop, spark, folder, name):
        self.workshop, self.spark, self.folder, self.name = workshop, spark, folder, name
        self.table = f"sinks.{name}"
        workshop.platform()
        spark.sql("CREATE NAMESPACE IF NOT EXISTS cleantail.sinks")

    def create(self, columns, by="", properties=V3):
        self.sql(f"CREATE TABLE {{}} ({columns}) USING iceberg {by} TBLPROPERTIES ({properties})")

    def sql(self, text):
        return self.spark.sql(text.format(full(self.table)))

    def alter(self, text):
        self.sql(f"ALTER TABLE {{}} {text}")

    def insert(self, *rows):
        self.sql(f"INSERT INTO {{}} VALUES {', '.join(rows)}")

    def add_files(self, **by_folder):
        """Registers plain Parquet files in folders as Hive's: `tenant=eu`. They have no field ids."""
        root = Path(str(self.java().location()).removeprefix("file:")) / "hive"
        for number, (place, rows) in enumerate(by_folder.items()):
            target = root / place.replace("__", "=").replace("___", "/") / f"f{number}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, target)
        self.spark.sql(
            f"CALL cleantail.system.add_files(table => 'sinks.`{self.name}`', source_table => '`parquet`.`{root}`')"
        )

    def java(self):
        return self.spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self.spark._jsparkSession, full(self.table)
        )

    def add_column(self, name, kind, default, parent=None):
        """Adds a column with an initial default, by Iceberg's Java API."""
        iceberg = self.spark._jvm.org.apache.iceberg
        literal = iceberg.expressions.Expressions.lit(default)
        of_kind = iceberg.types.Types.fromPrimitiveString(kind)
        update = self.java().updateSchema()
        if parent is None:
            update.addColumn(name, of_kind, None, literal).commit()
        else:
            update.addColumn(parent, name, of_kind, None, literal).commit()
        self.sql("REFRESH TABLE {}")

    def adopt(self, *columns, config=None):
        self.workshop.ok("adopt", self.table, *columns)
        settings(self.workshop, self.name, **(config or {}))

    def compact(self, now=NOW):
        result = self.workshop.json("compact", self.name, "--now", now, "--force")
        assert result["ok"], result
        assert self.workshop.json("check", self.name)["ok"]

    def offsets(self):
        rows = [json.loads(line) for line in self.workshop.ok("read", self.name).splitlines()]
        return sorted((r["partition"], r["offset"]) for r in rows)

    def latest(self, now=NOW):
        rows = [json.loads(line) for line in self.workshop.ok("latest", self.name, "--now", now).splitlines()]
        return sorted((r["partition"], r["offset"]) for r in rows)

    def view(self):
        rows = self.spark.table(f"cleantail.sinks.`{self.name}_latest`").select("partition", "offset").collect()
        return sorted((r[0], r[1]) for r in rows)

    def status(self, now=NOW):
        return self.workshop.json("status", self.name, "--now", now)["topics"][self.name]

    def require(self, read, latest=None, now=NOW):
        assert self.offsets() == read
        alive = read if latest is None else latest
        assert self.latest(now) == alive
        assert self.view() == alive


@pytest.fixture
def sink_of(workshop, spark, tmp_path):
    return lambda name: Sink(workshop, spark, Path(tmp_path), name)


def files_of(ids, first=0, more=None, value="v"):
    """One Parquet file of log 0 without the column of its folder."""
    count = len(ids)
    return pa.table(
        {
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": stamps(count),
            "id": pa.array(ids, pa.string()),
            "value": pa.array([value] * count, pa.string()),
        }
        | (more or {})
    )


def test_a_key_part_that_only_the_partition_has_tells_keys_apart(sink_of):
    """Finding 1.1."""
    sink = sink_of("proj-tenant")
    sink.create(f"{PLAIN}, id string, value string, tenant string", "PARTITIONED BY (tenant)")
    sink.add_files(tenant__eu=files_of(["1"]), tenant__us=files_of(["1", "1"], 1))
    sink.adopt(*mapped("key=tenant,id"))
    sink.compact()
    sink.require([(0, 0), (0, 2)])


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_a_key_that_only_the_partition_has_is_a_key(sink_of, policy):
    """Finding 1.1: with the policy `drop` all of the table went."""
    sink = sink_of(f"proj-only-{policy}")
    sink.create(f"{PLAIN}, id string, value string, tenant string", "PARTITIONED BY (tenant)")
    sink.add_files(tenant__eu=files_of(["1"]), tenant__us=files_of(["1", "1"], 1))
    sink.adopt(*mapped("key=tenant"), config={"cleantail.keyless.policy": policy})
    sink.compact()
    sink.require([(0, 0), (0, 2)])


def test_a_key_part_that_was_added_with_a_default_has_it_in_older_files(sink_of):
    """Finding 1.2, both ways."""
    sink = sink_of("proj-default")
    sink.create(f"{PLAIN}, id string, value string")
    row = "(0, {}, timestamp_millis({}), '{}', {})"
    sink.insert(row.format(0, AGO, "1", "'v'"), row.format(1, AGO, "2", "'v'"))
    sink.add_column("region", "string", "eu")
    row = "(0, {}, timestamp_millis({}), '{}', {}, {})"
    sink.insert(row.format(2, AGO, "1", "'v'", "NULL"), row.format(3, AGO, "2", "NULL", "'eu'"))
    sink.adopt(*mapped("key=region,id"))
    sink.compact()
    sink.require([(0, 0), (0, 2), (0, 3)], [(0, 0), (0, 2)])
    sink.compact(NOW + 2000)  # the horizon of the tombstone
    sink.require([(0, 0), (0, 2)], now=NOW + 2000)


def test_an_order_that_was_added_with_a_default_decides_in_older_files(sink_of):
    """Finding 1.3."""
    sink = sink_of("proj-order")
    sink.create("k string, v string, ts timestamp")
    sink.insert(f"('k', 'old', timestamp_millis({AGO}))")
    sink.add_column("version", "long", 5)
    sink.insert(f"('k', 'late', timestamp_millis({AGO}), 3)")
    sink.adopt(*mapped("order=version", "key=k", "value=v", "timestamp=ts"))
    sink.compact()
    assert [r.v for r in sink.sql("SELECT v FROM {}").collect()] == ["old"]
    assert [json.loads(r)["payload"] for r in sink.workshop.ok("latest", sink.name, "--now", NOW).splitlines()] == [
        "old"
    ]

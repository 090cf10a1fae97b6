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
from tests.jobs.source_tables import allow
from tests.jobs.upsert_sink import UPSERT, UpsertSink

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
            target = root / place.replace("__", "=", 1) / f"f{number}.parquet"
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
        """By every command that reads records."""
        assert self.workshop.json("check", self.name)["ok"]
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


@pytest.mark.deep
def test_a_key_part_added_later_has_its_default_in_older_files(sink_of):
    """Finding 1.2, both ways. test_an_order_column_added_later_has_its_default_in_older_files holds the rule."""
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


def test_an_order_column_added_later_has_its_default_in_older_files(sink_of):
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


def test_tombstones_marked_by_the_partition_alone_delete_their_key_and_expire(sink_of):
    """Finding 1.4."""
    sink = sink_of("proj-mark")
    sink.create(f"{PLAIN}, id string, value string, op string", "PARTITIONED BY (op)")
    sink.add_files(op__c=files_of(["1", "2"]), op__d=files_of(["1", "3"], 2))
    sink.adopt(*mapped("key=id"), "--deleted", "op=d")
    assert [log["pending_tombstones"] for log in sink.status()] == [2]
    sink.compact()
    assert sink.latest() == [(0, 1)]
    sink.compact(NOW + 2000)
    assert sink.offsets() == [(0, 1)]


@pytest.mark.deep
def test_a_delete_mark_added_later_has_its_default_in_older_files(sink_of):
    """Finding 1.4: all that is older deletes its key. The rules are those of
    test_tombstones_marked_by_the_partition_alone_delete_their_key_and_expire and
    test_an_order_column_added_later_has_its_default_in_older_files."""
    sink = sink_of("proj-mark-default")
    sink.create(f"{PLAIN}, id string, value string")
    sink.insert(f"(0, 0, timestamp_millis({AGO}), '1', 'v')", f"(0, 1, timestamp_millis({AGO}), '2', 'v')")
    sink.add_column("op", "string", "d")
    sink.insert(f"(0, 2, timestamp_millis({AGO}), '1', 'v', 'c')")
    sink.adopt(*mapped("key=id"), "--deleted", "op=d")
    assert [log["pending_tombstones"] for log in sink.status()] == [2]
    sink.compact()
    sink.require([(0, 1), (0, 2)], [(0, 2)])


def test_records_from_before_the_value_column_are_tombstones(sink_of):
    """Finding 1.4, in a file with metrics and in one without."""
    sink = sink_of("proj-value")
    sink.create(f"{PLAIN}, id string", properties=f"{V3}, 'write.metadata.metrics.default'='full'")
    sink.insert(f"(0, 0, timestamp_millis({AGO}), '1')")
    sink.alter("SET TBLPROPERTIES ('write.metadata.metrics.default'='none')")
    sink.insert(f"(0, 1, timestamp_millis({AGO}), '2')")
    sink.alter("ADD COLUMN value string")
    sink.insert(f"(0, 2, timestamp_millis({AGO}), '1', 'v')")
    sink.adopt(*mapped("key=id"))
    assert [log["pending_tombstones"] for log in sink.status()] == [2]
    sink.compact()
    assert [log["pending_tombstones"] for log in sink.status()] == [1]
    sink.require([(0, 1), (0, 2)], [(0, 2)])


def test_tombstones_are_counted_in_a_renamed_column_without_metrics(sink_of):
    """Finding 1.14."""
    sink = sink_of("proj-renamed")
    sink.create(f"{PLAIN}, id string, v string", properties=f"{V3}, 'write.metadata.metrics.default'='none'")
    sink.insert(f"(0, 0, timestamp_millis({AGO}), '1', NULL)", f"(0, 1, timestamp_millis({AGO}), '2', 'v')")
    sink.alter("RENAME COLUMN v TO value")
    sink.adopt(*mapped("key=id"))
    assert [log["pending_tombstones"] for log in sink.status()] == [1]


def test_the_log_number_may_come_from_the_table_partition_alone(sink_of):
    """Finding 1.4: the S3 sink's default layout, `partition=0/`. Later the sink writes the column, too."""
    sink = sink_of("proj-log")
    sink.create("`offset` bigint, `timestamp` timestamp, id string, value string, `partition` int",
                "PARTITIONED BY (`partition`)")  # fmt: skip
    bare = [files_of(ids, first).drop_columns("partition") for ids, first in ((["1", "1"], 0), (["1", "2", "2"], 0))]
    sink.add_files(partition__0=bare[0], partition__1=bare[1])
    sink.insert(f"(2, timestamp_millis({AGO}), '1', 'v', 0)")
    sink.adopt(*mapped("key=id"))
    sink.compact()
    sink.require([(0, 2), (1, 0), (1, 2)])
    assert {log["partition"]: log["records"] for log in sink.status()} == {0: 1, 1: 2}


@pytest.mark.deep
def test_a_field_of_a_struct_has_its_default_where_the_struct_is_not_null(sink_of):
    """A variant of finding 1.2: a key part inside of a struct, and structs that are null. For readers
    test_only_a_default_is_read_of_a_struct_whose_other_fields_no_column_maps holds the rule."""
    sink = sink_of("proj-inner")
    sink.create(f"{PLAIN}, s struct<id: string>, value string")
    row = "(0, {}, timestamp_millis({}), {}, 'v')"
    sink.insert(row.format(0, AGO, "named_struct('id', '1')"), row.format(1, AGO, "NULL"))
    sink.add_column("region", "string", "eu", "s")
    sink.insert(
        row.format(2, AGO, "named_struct('id', '1', 'region', NULL)"),
        row.format(3, AGO, "named_struct('id', '1', 'region', 'us')"),
        row.format(4, AGO, "NULL"),
    )
    sink.adopt(*mapped("key=s.region,s.id"), config={"cleantail.keyless.policy": "drop"})
    sink.compact()
    sink.require([(0, 0), (0, 2), (0, 3)])


def test_only_a_default_is_read_of_a_struct_whose_other_fields_no_column_maps(sink_of):
    """A variant of finding 1.2: nothing of the struct itself is wanted, and yet it has to be read where it is null. Spark
    alone reads such a field as its default there, unless it reads another field of the struct, too."""
    sink = sink_of("proj-inner-only")
    sink.create(f"{PLAIN}, s struct<id: string>, value string")
    row = "(0, {}, timestamp_millis({}), {}, 'v')"
    sink.insert(row.format(0, AGO, "named_struct('id', '1')"), row.format(1, AGO, "NULL"))
    sink.add_column("region", "string", "eu", "s")
    sink.insert(row.format(2, AGO, "named_struct('id', '1', 'region', 'us')"))
    sink.adopt(*mapped("key=s.region"), config={"cleantail.keyless.policy": "drop"})
    assert sink.latest() == [(0, 0), (0, 2)]
    assert [(r.offset, r.s and r.s.region) for r in sink.sql("SELECT * FROM {} ORDER BY offset").collect()] == [
        (0, "eu"), (1, None), (2, "us")]  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "eu", "us"),
    [
        pytest.param("date", "2024-02-29", "1969-12-31", id="date"),
        pytest.param("decimal(9,2)", "1.20", "-7.00", id="decimal"),
        pytest.param("bigint", "1099511627776", "-1", id="long"),
        pytest.param("boolean", "true", "false", id="boolean"),
    ],
)
def test_a_key_read_from_the_partition_equals_the_same_key_read_from_the_column(sink_of, kind, eu, us):
    """A variant of finding 1.1: the sink goes on with the column in its files, and the spec loses the field.

    test_the_log_number_may_come_from_the_table_partition_alone holds the rule, and of types
    test_a_default_and_a_partition_have_one_value_in_json_and_as_pyiceberg_has_it."""
    sink = sink_of(f"proj-typed-{kind[:4]}")
    sink.create(f"{PLAIN}, id string, value string, tenant {kind}", "PARTITIONED BY (tenant)")
    sink.add_files(**{f"tenant__{eu}": files_of(["1", "2"]), f"tenant__{us}": files_of(["1", "2"], 2)})
    sink.alter("DROP PARTITION FIELD tenant")
    sink.alter("RENAME COLUMN tenant TO house")
    sink.insert(f"(0, 4, timestamp_millis({AGO}), '1', 'v', CAST('{us}' AS {kind}))")
    sink.adopt(*mapped("key=house,id"))
    sink.compact()
    sink.require([(0, 0), (0, 1), (0, 3), (0, 4)])


@pytest.mark.deep
def test_bucket_and_truncate_partitions_supply_no_column_value(sink_of):
    """Of such a partition nothing says what a column is that the file lacks: it is null. Tables of
    test_a_task_reads_what_sparks_iceberg_reads have buckets, too."""
    sink = sink_of("proj-bucket")
    sink.create(f"{PLAIN}, id string, value string", "PARTITIONED BY (bucket(4, id), truncate(1, id))")
    sink.insert(f"(0, 0, timestamp_millis({AGO}), '12', 'v')", f"(0, 1, timestamp_millis({AGO}), '13', 'v')")
    sink.insert(f"(0, 2, timestamp_millis({AGO}), '12', 'v')")
    sink.adopt(*mapped("key=id"))
    sink.compact()
    assert sink.offsets() == sink.latest() == [(0, 1), (0, 2)]


@pytest.mark.deep
def test_equal_numbers_are_equal_keys_from_before_a_promotion(sink_of):
    """test_a_narrower_type_of_the_file_becomes_the_tables holds the rule."""
    sink = sink_of("proj-promoted")
    sink.create(f"{PLAIN}, n int, f float, d decimal(9,2), value string")
    row = "(0, {}, timestamp_millis({}), 7, CAST(0.5 AS FLOAT), 1.20, 'v')"
    sink.insert(row.format(0, AGO))
    for name, kind in (("n", "bigint"), ("f", "double"), ("d", "decimal(18,2)"), ("`partition`", "bigint")):
        sink.alter(f"ALTER COLUMN {name} TYPE {kind}")
    sink.insert(row.format(1, AGO))
    sink.adopt(*mapped("key=n,f,d"))
    sink.compact()
    assert sink.offsets() == sink.latest() == [(0, 1)]


@pytest.mark.deep
def test_a_column_dropped_and_added_again_is_null_in_older_files(sink_of):
    """test_a_column_is_found_by_its_id_or_has_what_stands_for_it holds the rule."""
    sink = sink_of("proj-again")
    sink.create(f"{PLAIN}, id string, region string, value string")
    sink.insert(f"(0, 0, timestamp_millis({AGO}), '1', 'eu', 'v')")
    sink.alter("DROP COLUMN region")
    sink.alter("ADD COLUMN region string AFTER id")
    sink.insert(f"(0, 1, timestamp_millis({AGO}), '1', 'eu', 'v')", f"(0, 2, timestamp_millis({AGO}), '1', NULL, 'v')")
    sink.adopt(*mapped("key=region,id"))
    sink.compact()
    assert sink.offsets() == sink.latest() == [(0, 1), (0, 2)]


def test_a_file_without_ids_in_a_table_without_name_mapping_is_refused(sink_of):
    sink = sink_of("proj-unmapped")
    sink.create(f"{PLAIN}, id string, value string")
    sink.add_files(**{".": files_of(["1"])})
    sink.alter("UNSET TBLPROPERTIES ('schema.name-mapping.default')")
    code, _, err = sink.workshop.run("adopt", sink.table, *mapped("key=id"))
    assert code == 2 and "has no field ids, and the table has no name mapping" in err


def test_a_deletion_is_remembered_in_microseconds(sink_of):
    """Finding 1.8: what came a microsecond earlier does not come back, what came later does."""
    sink = sink_of("proj-micros-late")
    sink.create(f"{PLAIN}, id string, value string")
    at = f"timestamp_micros({AGO * 1000} + {{}})"
    sink.insert(f"(0, 0, {at.format(900)}, '0', 'v')", f"(0, 1, {at.format(100)}, '0', 'v')",
                f"(0, 2, {at.format(500)}, '1', NULL)", f"(0, 3, {at.format(500)}, '2', NULL)")  # fmt: skip
    config = {"compaction.strategy": "timestamp", "cleantail.tombstone.lateness.ms": HOUR}
    sink.adopt(*mapped("key=id"), config=config)
    sink.compact()
    sink.compact(NOW + 2000)
    assert sink.offsets() == [(0, 0)]
    sink.insert(f"(0, 4, {at.format(499)}, '1', 'v')", f"(0, 5, {at.format(501)}, '2', 'v')")
    assert sink.latest(NOW + 3000) == [(0, 0), (0, 5)]
    sink.compact(NOW + 3000)
    assert sink.offsets() == [(0, 0), (0, 5)]


def test_a_version_column_out_of_range_is_refused_as_a_timestamp(sink_of):
    """Finding 1.8."""
    sink = sink_of("proj-no-time")
    sink.create("`partition` int, `offset` bigint, version bigint, id string, value string")
    sink.insert("(0, 0, 1700000000000000000, '1', 'v')")
    code, _, err = sink.workshop.run("adopt", sink.table, *mapped("key=id", "timestamp=version"))
    assert code == 2
    assert "column version, mapped to timestamp, has numbers beyond 9223372036854775" in err
    sink.sql("DELETE FROM {}")
    sink.insert("(0, 0, 1700000000000, '1', 'v')")
    sink.adopt(*mapped("key=id", "timestamp=version"))
    sink.insert("(0, 1, 1700000000000000000, '1', 'v')")
    for command in (("status",), ("latest",), ("compact",), ("check",)):
        code, out, err = sink.workshop.run(*command, sink.name)
        assert (code, "ArrowInvalid" in out + err, "17000000000" in err) == (2, False, False), (command, out, err)


@pytest.mark.deep
def test_the_files_of_a_table_that_spark_took_a_snapshot_of_are_read_by_their_folders(sink_of):
    """A variant of finding 1.1: a table of Hive's layout, taken over by the procedure `snapshot`. The rule is that of
    test_a_key_part_read_from_the_partition_distinguishes_keys_and_may_be_null, and of files elsewhere that of
    test_an_adopted_table_with_a_file_of_another_topic_is_refused_unless_the_platform_imports_its_folder."""
    sink = sink_of("proj-snapshot")
    conf, source = "spark.sql.parquet.outputTimestampType", "spark_catalog.default.proj_snapshot"
    sink.spark.conf.set(conf, "TIMESTAMP_MICROS")
    rows = ", ".join(f"(0, {o}L, timestamp_millis({AGO}), '1', 'v', '{t}', {d})" for o, t, d in
                     ((0, "eu", 1), (1, "us", 1), (2, "us", 2), (3, "us", 1)))  # fmt: skip
    sink.spark.sql(f"CREATE TABLE {source} USING parquet PARTITIONED BY (tenant, day) LOCATION '{sink.folder}/hive' "
                   f"AS SELECT * FROM VALUES {rows} "
                   "AS t(`partition`, `offset`, `timestamp`, id, value, tenant, day)")  # fmt: skip
    sink.spark.conf.unset(conf)
    sink.spark.sql(
        f"CALL cleantail.system.snapshot(source_table => '{source}', table => 'cleantail.sinks.`{sink.name}`')"
    )
    code, _, err = sink.workshop.run("adopt", sink.table, *mapped("key=tenant,day,id"))
    assert code == 2 and "outside its location" in err
    allow(sink.workshop, imported_folders=[f"{sink.folder}/hive"])
    sink.adopt(*mapped("key=tenant,day,id"))
    sink.compact()
    assert sink.offsets() == [(0, 0), (0, 2), (0, 3)]
    sink.spark.sql(f"DROP TABLE {source}")


def test_a_key_part_read_from_the_partition_distinguishes_keys_and_may_be_null(sink_of):
    """Finding 1.1. Hive's default partition is null, which is a value: the default of a column that was added later
    does not replace it. Only where every part is null a record has no key. A reclaim writes what the partition and the
    defaults say into the new files."""
    sink = sink_of("proj-keyless")
    sink.create(f"{PLAIN}, id string, value string")
    sink.add_column("tenant", "string", "eu")
    sink.alter("ADD PARTITION FIELD tenant")
    nulls = files_of([None, "1", None, "1"], 3)
    sink.add_files(tenant__eu=files_of([None, "1", None]), tenant____HIVE_DEFAULT_PARTITION__=nulls)
    sink.add_column("region", "string", "north")
    sink.adopt(*mapped("key=tenant,id"), config={"cleantail.keyless.policy": "quarantine"})
    sink.compact()
    sink.require([(0, 1), (0, 2), (0, 6)])
    assert sorted(r.offset for r in sink.spark.table(f"cleantail.sinks.`{sink.name}_keyless`").collect()) == [3, 5]
    before = sink.sql("SELECT * FROM {} ORDER BY offset").collect()
    files = {r.file_path for r in sink.sql("SELECT file_path FROM {}.data_files").collect()}
    sink.workshop.ok("reclaim", sink.name, "--now", NOW + HOUR)
    after = {r.file_path for r in sink.sql("SELECT file_path FROM {}.data_files").collect()}
    assert not files & after  # they were rewritten, with the columns
    assert sink.sql("SELECT * FROM {} ORDER BY offset").collect() == before
    assert [(r.tenant, r.region) for r in before] == [("eu", "north"), ("eu", "north"), (None, "north")]
    assert sink.offsets() == [(0, 1), (0, 2), (0, 6)]


@pytest.mark.deep
def test_retention_uses_timestamps_that_only_the_partition_has(sink_of):
    """test_the_log_number_may_come_from_the_table_partition_alone holds the rule of a column that only the partition
    has."""
    sink = sink_of("proj-retention")
    sink.create("`partition` int, `offset` bigint, ts bigint, id string, value string", "PARTITIONED BY (ts)")
    bare = [files_of(ids, first).drop_columns("timestamp") for ids, first in ((["1", "2"], 0), (["3"], 2), (["4"], 3))]
    ages = (48, 30, 2)
    sink.add_files(**{f"ts__{NOW - age * HOUR}": rows for age, rows in zip(ages, bare, strict=True)})
    config = {"cleanup.policy": "compact,delete", "retention.ms": 24 * HOUR}
    sink.adopt(*mapped("key=id", "timestamp=ts"), config=config)
    sink.compact()
    assert sink.offsets() == [(0, 3)]


def test_a_file_with_two_columns_that_the_name_mapping_has_for_one_field_is_refused(sink_of):
    """Spark takes the last of them; nothing says which is meant."""
    sink = sink_of("proj-two-names")
    sink.create(f"{PLAIN}, id string, value string")
    sink.add_files(**{".": files_of(["2"] * 2, 1, {"ident": pa.array(["1"] * 2)})})
    mapping = json.loads(str(sink.java().properties().get("schema.name-mapping.default")))
    names = next(entry["names"] for entry in mapping if "id" in entry["names"])
    names.append("ident")
    properties = sink.java().updateProperties()
    properties.set("schema.name-mapping.default", json.dumps(mapping)).commit()
    code, _, err = sink.workshop.run("adopt", sink.table, *mapped("key=id"))
    assert code == 2 and "has several columns that the table's name mapping lists for id: id, ident." in err
    names.remove("ident")
    properties = sink.java().updateProperties()
    properties.set("schema.name-mapping.default", json.dumps(mapping)).commit()
    sink.adopt(*mapped("key=id"))
    names.append("ident")
    properties = sink.java().updateProperties()
    properties.set("schema.name-mapping.default", json.dumps(mapping)).commit()
    for command in (("compact", "--force"), ("latest",)):
        code, out, err = sink.workshop.run(*command, sink.name, "--now", NOW)
        assert code == 2 and "has several columns" in out + err, (command, out, err)


def test_equality_deletes_on_partition_values_and_defaults_are_converted(sink_of):
    """Which convert-deletes refused: such a file has another value than null there."""
    sink = sink_of("proj-upserts")
    sink.create(f"{PLAIN}, id string, value string, tenant string", "PARTITIONED BY (tenant)")
    sink.add_files(tenant__eu=files_of(["1", "2"]), tenant__us=files_of(["1", "2"], 2))
    sink.add_column("region", "string", "north")
    row = {"partition": 0, "timestamp": None, "id": "1", "value": "new", "tenant": "eu"}
    writer = UpsertSink(sink.spark, full(sink.table), ["id", "tenant", "region"])
    writer.commit((UPSERT, row | {"offset": 4, "region": "north"}), (UPSERT, row | {"offset": 5, "region": "south"}))
    expected = sorted(r.offset for r in sink.sql("SELECT * FROM {}").collect())
    assert expected == [1, 2, 3, 4, 5]
    sink.workshop.ok("convert-deletes", sink.table)
    assert sorted(r.offset for r in sink.sql("SELECT * FROM {}").collect()) == expected

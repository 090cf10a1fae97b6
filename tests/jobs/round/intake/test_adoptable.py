"""Which tables `adopt` takes: those that every later command handles, and no other. Each refusal has a way out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from spark_jobs.iceberg.iceberg_reads import iceberg_table
from tests.jobs.conftest import settings

NOW = 1_800_000_000_000
LONG_MAX = 2**63 - 1
PLAIN = {
    "partition": ("int", "p"),
    "offset": ("bigint", "o"),
    "timestamp": ("timestamp", "timestamp_millis(ms)"),
    "key": ("string", "k"),
    "value": ("string", "v"),
}
HEADERS = ("map<string, binary>", "map('h', X'01')")


@dataclass
class Table:
    """A table of a sink: its columns (type, SQL over p, o, ms, k, v), its offsets, and how it is adopted."""

    columns: dict = field(default_factory=dict)
    offsets: tuple = tuple(range(6))
    partition: int = 0
    version: int = 2
    arguments: tuple = ()
    without: tuple = ()

    def make(self, spark, lake, name):
        columns = {n: c for n, c in (PLAIN | self.columns).items() if n not in self.without}
        rows = [
            (self.partition, o, NOW - 3_600_000, f"k{n % 2}", None if n == 4 else f"v{n}")
            for n, o in enumerate(self.offsets)
        ]
        declared = ", ".join(f"`{n}` {kind}" for n, (kind, _) in columns.items())
        select = [f"{sql} AS `{n}`" for n, (_, sql) in columns.items()]
        spark.conf.set("spark.sql.caseSensitive", "true")
        try:  # files whose offsets overlap, so that `reclaim` needs Spark's reader and writer
            return lake(name, declared, [rows[::2], rows[1::2]], select, "", f"'format-version'='{self.version}'")
        finally:
            spark.conf.set("spark.sql.caseSensitive", "false")


def later_commands(name, table, now=NOW):
    """All that may be done with an adopted table."""
    return [
        ("check-config",),
        ("status", name),
        ("plan", name, "--now", now),
        ("latest", name, "--now", now),
        ("read", name),
        ("compact", name, "--now", now, "--force"),
        ("check", name),
        ("compact", name, "--now", now + 5_000, "--force"),
        ("reclaim", name, "--now", now + 6_000),
        ("latest", name, "--now", now + 6_000),
        ("convert-deletes", table),
        ("mend", table),
        ("adopt", table),
    ]


def require_working(workshop, name, table, now=NOW, only=("compact",)):
    """`only`: names of commands; of all of them if it is empty."""
    settings(workshop, name, **{"cleantail.reclaim.deleted.ratio": 0.01, "cleantail.reclaim.min.merge.files": 2})
    for command in (c for c in later_commands(name, table, now) if not only or c[0] in only):
        code, _, err = workshop.run(*command)
        assert code == 0, (command, err)


FITS = Table(
    version=3,
    partition=2**31 - 1,
    offsets=tuple(range(LONG_MAX - 6, LONG_MAX)),
    columns={
        "partition": ("bigint", "CAST(p AS BIGINT)"),
        "timestamp": ("bigint", "ms"),
        "a.b": ("string", "'x'"),
        "kafka.headers": HEADERS,
        "grün und so": ("string", "'x'"),
        "s": ("struct<`x.y`: int>", "named_struct('x.y', 1)"),
        "m": ("map<string, array<date>>", "map('a', array(DATE '2020-01-01'))"),
    },
)
"""The last partition and the last offsets that Kafka gives, whole numbers as times; and, not mapped, names with dots,
names that YAML does not take, and unusual types."""


def test_a_table_that_is_adopted_is_handled_by_every_later_command(workshop, spark, lake):
    table = FITS.make(spark, lake, "fits")
    workshop.ok("adopt", table)
    require_working(workshop, "fits", table, only=())
    kept = [(r["offset"], r["payload"]) for r in workshop.read("fits") if r["payload"] is not None]
    assert kept == [(FITS.offsets[5], "v5")]


@dataclass
class Refused:
    """`says`: what the error names. `way_out`: SQL statements, or arguments of `adopt`, after which it is adopted."""

    table: Table
    says: tuple
    way_out: tuple = ()
    arguments: tuple = ()


RENAME = "ALTER TABLE {} RENAME COLUMN {} TO {}"
NO_VARIANT = (
    "ALTER TABLE {0} DROP COLUMN extra",
    "CALL cleantail.system.rewrite_data_files(table => '{1}', options => map('rewrite-all', 'true'))",
    "CALL cleantail.system.expire_snapshots(table => '{1}', older_than => now(), retain_last => 1, "
    "clean_expired_metadata => true)",
)
REFUSED = {  # partitions and offsets that Kafka cannot have: tests/cleantail/adopt/test_adoption.py
    "names with a dot, names that differ by case, headers that a person has mapped to a map": Refused(
        Table(
            without=("partition", "offset", "key"),
            columns={
                "kafka.partition": ("int", "p"),
                "kafka.offset": ("bigint", "o"),
                "my.key": ("string", "k"),
                "Value": ("string", "'x'"),
                "s": ("struct<a: int, A: int>", "named_struct('a', 1, 'A', 2)"),
                "headers": HEADERS,
            },
            arguments=("--column", "key=my.key", "--column", "headers=headers"),
        ),
        (
            "offset: kafka.offset cannot be mapped",
            "RENAME COLUMN `kafka.offset` TO kafka_offset",
            "key: my.key cannot be mapped",
            "RENAME COLUMN `my.key` TO my_key",
            "columns value and Value differ by case only",
            "RENAME COLUMN Value TO",
            "columns s.a and s.A differ by case only",
            "headers: headers is map<string, binary>: a list of structs of key and value is needed",
        ),
        (
            "SET spark.sql.caseSensitive=true",
            RENAME.format("{0}", "`kafka.partition`", "kafka_partition"),
            RENAME.format("{0}", "`kafka.offset`", "kafka_offset"),
            RENAME.format("{0}", "`my.key`", "my_key"),
            RENAME.format("{0}", "Value", "other"),
            "ALTER TABLE {0} DROP COLUMN s",
            "RESET spark.sql.caseSensitive",
        ),
        ("--column", "key=my_key", "--column", "headers="),
    ),
    "a VARIANT": Refused(
        Table(version=3, columns={"extra": ("variant", "parse_json('1')")}),
        ("has, or had, a column of type variant", "clean_expired_metadata"),
        NO_VARIANT,
    ),
    "times in nanoseconds, and types of times beyond Kafka's, that a person has mapped": Refused(
        Table(
            columns={"t": ("bigint", "ms * 1000000"), "kind": ("bigint", "o + 9000000000")},
            arguments=("--column", "timestamp=t", "--column", "timestamp_type=kind"),
        ),
        (
            "timestamp: column t, mapped to timestamp, has numbers beyond 9223372036854775, the last Unix ms",
            "--column timestamp=",
            "timestamp_type: kind has numbers that are not timestamp types",
        ),
        arguments=("--column", "timestamp=timestamp", "--column", "timestamp_type="),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case.startswith("names") else pytest.mark.deep) for case in REFUSED]
)
def test_what_a_later_command_could_not_handle_is_refused_and_the_error_has_the_way_out(workshop, spark, lake, case):
    refused, name = REFUSED[case], f"refused_{list(REFUSED).index(case)}"
    table = refused.table.make(spark, lake, name)
    code, _, err = workshop.run("adopt", table, *refused.table.arguments)
    assert code == 2
    for text in refused.says:
        assert text in err
    assert not list((workshop.config / "topics").iterdir())
    for statement in refused.way_out:
        spark.sql(statement.format(f"cleantail.sinks.`{name}`", table))
    workshop.ok("adopt", table, *refused.arguments)
    require_working(workshop, name, table)


def test_a_column_with_which_spark_reads_no_table_is_refused(workshop, spark, lake):
    table, full = Table(version=3).make(spark, lake, "odd_types"), "cleantail.sinks.odd_types"
    types = spark._jvm.org.apache.iceberg.types.Types
    kinds = {
        "time": types.TimeType.get(),
        "timestamptz_ns": types.TimestampNanoType.withZone(),
        "geometry": types.GeometryType.crs84(),
    }
    for name, kind in kinds.items():
        iceberg_table(spark, full).updateSchema().addColumn("odd", kind).commit()
        code, _, err = workshop.run("adopt", table)
        assert code == 2 and f"column odd is {name}" in err and "drop the column" in err
        iceberg_table(spark, full).updateSchema().deleteColumn("odd").commit()
    workshop.ok("adopt", table)
    require_working(workshop, "odd_types", table, only=("compact", "latest"))
    iceberg_table(spark, full).updateSchema().addColumn("odd", kinds["time"]).commit()
    code, _, err = workshop.run("compact", "odd_types", "--now", NOW + 9_000, "--force")
    assert code in (0, 4) and "may quote" not in err


def test_a_variant_that_comes_after_adoption_is_reported_by_every_command_alike(workshop, spark, lake):
    table = Table(version=3).make(spark, lake, "later_variant")
    workshop.ok("adopt", table)
    settings(workshop, "later_variant")
    spark.sql("ALTER TABLE cleantail.sinks.later_variant ADD COLUMN extra variant")
    for command in later_commands("later_variant", table):
        code, _, err = workshop.run(*command)
        assert command == ("check-config",) or (code == 2 and "a column of type variant" in err), (command, err)


GUESSES = {
    "Flink's, times as text": (
        {
            "headers": HEADERS,
            "timestamp_type": ("string", "'CreateTime'"),
            "timestamp": ("string", "'2020-01-01'"),
        },
        [
            "headers is left out: headers is map<string, binary>",
            "timestamp_type is left out: timestamp_type is string",
            "timestamp is left out: timestamp is string: a timestamp, or a long of Unix ms is needed",
        ],
    ),
    "times in nanoseconds": (
        {"timestamp": ("bigint", "ms * 1000000")},
        ["timestamp is left out: column timestamp, mapped to timestamp, has numbers beyond"],
    ),
}


@pytest.mark.parametrize("case", [list(GUESSES)[0], pytest.param(list(GUESSES)[1], marks=pytest.mark.deep)])
def test_a_guessed_column_that_does_not_fit_is_left_out_with_a_note(workshop, spark, lake, case):
    columns, notes = GUESSES[case]
    name = f"guessed_{list(GUESSES).index(case)}"
    table = Table(columns=columns).make(spark, lake, name)
    out = workshop.ok("adopt", table)
    for note in notes:
        assert f"note: {note}" in out
    yaml = (workshop.config / "topics" / f"{name}.yaml").read_text()
    assert not any(f"{column}:" in yaml for column in columns)
    require_working(workshop, name, table)


# test_a_guessed_column_that_does_not_fit_is_left_out_with_a_note holds the rule; here in Snowflake's layout
@pytest.mark.deep
def test_snowflakes_layout_is_adopted_without_its_map_of_headers(workshop, spark, lake):
    metadata = (
        "struct<`offset`: bigint, `partition`: int, key: string, CreateTime: bigint, headers: map<string, string>>"
    )
    row = "named_struct('offset', o, 'partition', p, 'key', k, 'CreateTime', ms, 'headers', map('a', 'b'))"
    columns = {"RECORD_METADATA": (metadata, row), "RECORD_CONTENT": ("string", "v")}
    table = Table(columns=columns, without=tuple(PLAIN)).make(spark, lake, "snowflake")
    named = ("value=RECORD_CONTENT", "timestamp=RECORD_METADATA.CreateTime")
    out = workshop.ok("adopt", table, *(part for one in named for part in ("--column", one)))
    assert "note: headers is left out: RECORD_METADATA.headers is map<string, string>" in out
    require_working(workshop, "snowflake", table)


def test_a_column_left_out_of_an_adoption_stays_unmapped(workshop, spark, lake):
    """Also if the YAML was lost."""
    name = "left_out"
    headers = ("array<struct<key: string, value: binary>>", "array(named_struct('key', 'h', 'value', X'01'))")
    table = Table(columns={"headers": headers}).make(spark, lake, name)
    out = workshop.ok("adopt", table, "--column", "headers=", "--column", "timestamp=")
    assert "not mapped: timestamp, headers" in out
    file = workshop.config / "topics" / f"{name}.yaml"
    assert "headers" not in file.read_text() and "timestamp" not in file.read_text()
    assert "nothing, because the table was already adopted" in workshop.ok("adopt", table)
    file.unlink()
    workshop.ok("adopt", table)
    assert "headers" not in file.read_text() and "timestamp" not in file.read_text()
    require_working(workshop, name, table)
    assert all(not record.get("headers") and record["ts"] == -1 for record in workshop.read(name))


def test_a_column_that_every_record_needs_cannot_be_left_out(workshop, spark, lake):
    table = Table().make(spark, lake, "needed")
    for column in ("partition", "offset", "key"):
        code, _, err = workshop.run("adopt", table, "--column", f"{column}=")
        assert code == 2 and f"no column for the {column} was found" in err
    code, _, err = workshop.run("adopt", table, "--column", "header=")
    assert code == 2 and "NAME= for none; NAME is one of partition, offset" in err


@pytest.mark.parametrize("kind", ["orc", pytest.param("avro", marks=pytest.mark.deep)])
def test_every_command_refuses_data_files_of_another_format_that_come_after_adoption(workshop, spark, lake, kind):
    name, version = f"later_{kind}", 2 if kind == "orc" else 3
    table = Table(version=version).make(spark, lake, name)
    workshop.ok("adopt", table)
    settings(workshop, name)
    workshop.ok("compact", name, "--now", NOW, "--force")
    full = f"cleantail.sinks.`{name}`"
    rows = spark.table(full).selectExpr("partition", "offset + 10 AS offset", "timestamp", "key", "value")
    rows.coalesce(1).writeTo(full).option("write-format", kind).append()
    commands = [c for c in later_commands(name, table, NOW + 9_000) if c[0] not in ("check-config", "mend")]
    assert {c[0] for c in commands} > {"status", "plan", "compact", "latest", "read", "check", "reclaim", "adopt"}
    for command in commands:
        code, out, err = workshop.run(*command)
        told = out + err
        assert code == 2, (command, told)
        assert f"is {kind.upper()}, but only Parquet can be read. Let Iceberg rewrite the files" in told, command
        assert "may quote" not in told
    spark.sql(f"CALL cleantail.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    workshop.ok("compact", name, "--now", NOW + 9_000, "--force")
    assert [r["offset"] for r in workshop.read(name) if r["payload"] is not None] == [15]


@pytest.mark.parametrize("mapped", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["mapped", "not mapped"])
@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_int96_is_refused_if_it_is_mapped(workshop, spark, lake, version, mapped):
    """pyarrow lets times after 2262 wrap around there."""
    name = f"int96_{version}_{mapped}"
    table = Table(version=version, columns={"ts": ("timestamp", "timestamp_millis(ms)")}).make(spark, lake, name)
    full = f"cleantail.sinks.`{name}`"
    rows = spark.table(full).collect()
    location = spark.sql(f"DESCRIBE EXTENDED {full}").where("col_name = 'Location'").collect()[0].data_type
    folder = f"{location}/data/of-spark"
    frame = spark.createDataFrame(rows, spark.table(full).schema).selectExpr(
        "partition", "offset + 10 AS offset", "key", "value", "TIMESTAMP '9999-12-31 00:00:00' AS ts"
    )
    frame.coalesce(1).write.option("outputTimestampType", "INT96").parquet(folder)
    spark.sql(f"CALL cleantail.system.add_files(table => '{table}', source_table => '`parquet`.`{folder}`')")
    arguments = ("--column", "timestamp=ts") if mapped else ()
    if mapped:
        code, _, err = workshop.run("adopt", table, *arguments)
        assert code == 2 and "has timestamps as INT96 (ts), which is not read. Let Iceberg rewrite the files" in err
        spark.sql(
            f"CALL cleantail.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
        )
    workshop.ok("adopt", table, *arguments)
    require_working(workshop, name, table, only=("compact",) if mapped else ("read", "compact", "check", "reclaim"))
    latest = [json.loads(line) for line in workshop.ok("latest", name, "--now", NOW).splitlines()]
    assert [r["offset"] for r in latest] == [15]

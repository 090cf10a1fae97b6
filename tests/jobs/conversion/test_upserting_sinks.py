"""Tables of sinks in upsert mode: their equality deletes become deletes of one data file each, and nothing else changes.

What Spark reads before and after is the model; the sink's own is a dictionary.
"""

from __future__ import annotations

import datetime
import itertools
import json
import random
import time
from decimal import Decimal

import pytest

from cleantail.errors import TableError
from spark_jobs import convert, run_station
from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import full
from tests.jobs.round.intake.test_adopt import HOUR, NOW, delete_files_of
from tests.jobs.upsert_sink import DELETE, UPSERT, UpsertSink

COLUMNS = "p int, o bigint, ms bigint, id bigint, region string, v string"
MAPPED = ("partition=p", "offset=o", "timestamp=ms", "key=id", "value=v")


def rows_of(spark, table):
    return rows_and_offsets(spark, table)[0]


def rows_and_offsets(spark, table):
    """What readers see, each row as a text, so that 0.0 is not -0.0; and the offsets alone."""
    rows = spark.table(full(table)).collect()
    return sorted(map(repr, rows)), sorted(row.o for row in rows)


def empty(lake, name, columns=COLUMNS, by="", version=2):
    return lake(name, columns, [], [], by, f"'format-version'='{version}'")


def change(o, number, region="a", kind=UPSERT, v=None):
    return kind, {"p": 0, "o": o, "ms": NOW - HOUR + o, "id": number, "region": region, "v": v or f"v{o}"}


def history(commits=3, size=9, keys=7, seed=1):
    """Commits of a sink: upserts of few keys, so that most replace one of this commit or of an earlier one."""
    chance, o = random.Random(seed), 0
    for _ in range(commits):
        made = []
        for _ in range(size):
            made.append(change(o, chance.randrange(keys), chance.choice("ab"), chance.choice([UPSERT] * 4 + [DELETE])))
            o += 1
        yield made


def state(commits, key):
    """What the sink means: the last row of each key."""
    rows = {}
    for kind, row in (one for made in commits for one in made):
        rows.pop(tuple(row[name] for name in key), None)
        if kind == UPSERT:
            rows[tuple(row[name] for name in key)] = row["o"]
    return sorted(rows.values())


def require_converted(spark, table, version):
    """Every delete file is of one data file, and of the kind of the version."""
    deletes = delete_files_of(spark, table)
    assert {(f.content, f.file_format) for f in deletes} <= {(1, "PUFFIN" if version == 3 else "PARQUET")}
    named = [f.referenced_data_file for f in deletes]
    assert None not in named and len(named) == len(set(named))


@pytest.mark.parametrize(
    ("by", "key", "version"),
    [
        pytest.param("", ["id"], 2, id="unpartitioned-2"),
        pytest.param("PARTITIONED BY (region)", ["id", "region"], 3, id="partitioned-3", marks=pytest.mark.deep),
        pytest.param("", ["id"], 3, id="unpartitioned-3", marks=pytest.mark.deep),
        pytest.param("PARTITIONED BY (region)", ["id", "region"], 2, id="partitioned-2", marks=pytest.mark.deep),
    ],
)
def test_the_table_of_an_upserting_sink_is_converted_adopted_and_compacted(workshop, spark, lake, version, by, key):
    name = f"upserts{version}{len(key)}"
    table = empty(lake, name, by=by, version=version)
    commits = list(history())
    for made in commits:
        UpsertSink(spark, full(table), key).commit(*made, files=2)
    before, offsets = rows_and_offsets(spark, table)
    assert offsets == state(commits, key)
    code, _, err = workshop.run("adopt", table, *(x for pair in MAPPED for x in ("--column", pair)))
    assert code == 2 and f"`cleantail convert-deletes {table}` converts them" in err

    dry = workshop.json("convert-deletes", table, "--dry-run")
    assert (dry["converted"], dry["found_equality_deletes"] > 0) == (False, True)
    assert (dry["found_shared_position_deletes"] > 0) == (version == 2)
    done = workshop.json("convert-deletes", table)
    assert done["converted"] and done["equality_deletes"] == dry["found_equality_deletes"]
    assert done["live_records"] == len(before) and done["hidden_records"] > 0
    assert rows_of(spark, table) == before
    require_converted(spark, table, version)
    assert list(spark.sql(f"SELECT name FROM {full(table)}.refs").collect()) == [("main",)]
    assert "nothing was changed" in workshop.ok("convert-deletes", table)

    workshop.ok("adopt", table, "--topic", name, *(x for pair in MAPPED for x in ("--column", pair)))
    settings(workshop, name)
    workshop.ok("compact", name, "--now", NOW, "--force")
    last = {row.id: row.o for row in sorted(spark.table(full(table)).collect(), key=lambda row: row.o)}
    assert [r["offset"] for r in workshop.read(name)] == sorted(last.values())


def test_the_job_of_the_dags_task_converts_what_the_sink_has_written_since_the_table_was_adopted(workshop, spark, lake):
    table = empty(lake, "in-dag", version=3)
    sink = UpsertSink(spark, full(table), ["id"])
    sink.commit(change(0, 1), change(1, 2))
    workshop.ok("convert-deletes", table)
    workshop.ok("adopt", table, "--topic", "in-dag", *(x for pair in MAPPED for x in ("--column", pair)))
    sink.commit(change(2, 1), change(3, 1))
    code, _, err = workshop.run("compact", "in-dag", "--now", NOW, "--force")
    assert code == 2 and f"`cleantail convert-deletes {table}`" in err
    before, result = rows_of(spark, table), workshop.config / "result.json"
    argv = ["--config", str(workshop.config), "--topic", "in-dag", "--result", str(result)]
    assert run_station.main(["convert_deletes", *argv]) == 0
    done = json.loads(result.read_text())
    assert (done["ok"], done["equality_deletes"], done["live_records"]) == (True, 1, len(before))
    assert rows_of(spark, table) == before
    require_converted(spark, table, 3)


DAY = datetime.date(2026, 11, 23)
AT = datetime.datetime(2026, 11, 23, 12, 0, 0, 123456)
VALUES = {
    "boolean": [True, False, None],
    "int": [1, -5, None],
    "bigint": [1, 1 << 40, None],
    "float": [0.5, -0.0, 0.0, None],
    "double": [0.1, -0.0, 0.0, None],
    "decimal(9,2)": [Decimal("1.50"), Decimal("-0.05"), None],
    "decimal(38,10)": [Decimal("1.5000000000"), Decimal("12345678901234567890.0000000001"), None],
    "string": ["", "ä", "b", None],
    "binary": [b"", b"\x00", b"b", None],
    "date": [DAY, datetime.date(1969, 12, 31), None],
    "timestamp_ntz": [AT, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), None],
}


def test_a_conversion_compares_values_of_every_type_as_icebergs_readers_do(workshop, spark, lake):
    """Each value is in a record of its own, beside nulls in the columns of the other types. Which values are equal is
    one rule for both versions of tables; what is written for them differs, and is tested of both."""
    names = {kind: f"k{number}" for number, kind in enumerate(VALUES)}
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    table = empty(lake, "equal", f"o bigint, kind string, {columns}, other string", version=3)
    sink = UpsertSink(spark, full(table), ["kind", *names.values(), "other"])
    numbers, blank = itertools.count(), dict.fromkeys(names.values())
    rows = [
        [blank | {"kind": kind, "o": next(numbers), names[kind]: value, "other": "x"} for value in values]
        for kind, values in VALUES.items()
    ]
    sink.commit(*((UPSERT, row) for of_kind in rows for row in of_kind))
    sink.commit(*((UPSERT, row | {"o": row["o"] + 100, "other": None}) for of_kind in rows for row in of_kind))
    for n in range(max(map(len, rows))):  # each value goes alone: what is taken for equal to another shows
        pairs = [(of_kind[n], of_kind[n - 1]) for of_kind in rows if n < len(of_kind)]
        gone, back = ((DELETE, row) for row, _ in pairs), ((UPSERT, row | {"o": n + 200}) for _, row in pairs)
        sink.commit(*gone, *back)
    sink.commit(*((DELETE, row | {"other": None}) for of_kind in rows for row in of_kind[1:]))
    before = rows_of(spark, table)
    assert all(any(f"kind='{kind}'" in row for row in before) for kind in VALUES)
    workshop.ok("convert-deletes", table)
    assert rows_of(spark, table) == before
    require_converted(spark, table, 3)


@pytest.mark.deep
def test_deletes_by_several_sets_of_columns_added_renamed_and_widened_ones(workshop, spark, lake):
    """test_a_conversion_compares_values_of_every_type_as_icebergs_readers_do holds the rule for one set of many
    columns."""
    table = empty(lake, "evolved", "o bigint, id int, name string", version=2)
    sink = UpsertSink(spark, full(table), ["id"])
    sink.commit(*((UPSERT, {"o": n, "id": n, "name": f"n{n % 3}"}) for n in range(6)))
    UpsertSink(spark, full(table), ["name"]).commit((DELETE, {"o": 0, "id": 0, "name": "n1"}))
    spark.sql(f"ALTER TABLE {full(table)} ADD COLUMN tag string")
    spark.sql(f"ALTER TABLE {full(table)} ALTER COLUMN id TYPE bigint")
    spark.sql(f"ALTER TABLE {full(table)} RENAME COLUMN name TO label")
    wide = UpsertSink(spark, full(table), ["id", "tag"])
    wide.commit(*((UPSERT, {"o": 10 + n, "id": n, "label": "x", "tag": "t" * (n % 2)}) for n in range(4)))
    # the files from before have no tag: it is null there
    UpsertSink(spark, full(table), ["tag"]).commit((DELETE, {"tag": "t"}))
    wide.commit((DELETE, {"id": 2, "tag": None}), (DELETE, {"id": 3, "tag": None}))
    UpsertSink(spark, full(table), ["label", "id"]).commit((DELETE, {"id": 5, "label": "n2"}))
    before, offsets = rows_and_offsets(spark, table)
    assert offsets == [0, 10, 12]
    workshop.ok("convert-deletes", table)
    assert rows_of(spark, table) == before
    require_converted(spark, table, 2)


def test_a_delete_of_an_unpartitioned_spec_applies_to_all_partitions(workshop, spark, lake):
    table = empty(lake, "global", version=3)
    sink = UpsertSink(spark, full(table), ["id"])
    sink.commit(change(0, 1, "a"), change(1, 2, "b"))
    plain = sink.load().spec()
    spark.sql(f"ALTER TABLE {full(table)} ADD PARTITION FIELD region")
    sink.commit(change(2, 3, "a"), change(3, 3, "b"))
    sink.commit(change(4, 1, "a", DELETE), change(5, 3, "a", DELETE))  # of one partition, and of no older file
    assert rows_and_offsets(spark, table)[1] == [0, 1, 3]
    sink.commit(change(6, 2, "a", DELETE), change(7, 3, "a", DELETE), spec=plain)
    before, offsets = rows_and_offsets(spark, table)
    assert offsets == [0]
    workshop.ok("convert-deletes", table)
    assert rows_of(spark, table) == before
    require_converted(spark, table, 3)


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.deep), 3])
def test_a_conversion_keeps_rows_and_deletes_that_were_committed_meanwhile(workshop, spark, lake, version, monkeypatch):
    table = empty(lake, f"busy{version}", version=version)
    sink = UpsertSink(spark, full(table), ["id"])
    for made in history():
        sink.commit(*made)
    stage, tries = convert.stage_deletes, []

    def slow(*arguments):
        stage(*arguments)
        tries.append(arguments)
        sink.commit(change(200 + len(tries), 1), change(300 + len(tries), 77))
        if len(tries) == 1:  # in a data file of which the conversion has deleted records, too
            spark.sql(f"ALTER TABLE {full(table)} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
            first = rows_and_offsets(spark, table)[1][0]
            spark.sql(f"DELETE FROM {full(table)} WHERE o = {first}")
        tries.append(rows_of(spark, table))

    monkeypatch.setattr(convert, "stage_deletes", slow)
    done = workshop.json("convert-deletes", table)
    assert done["converted"] and len(tries) == 4
    assert rows_of(spark, table) == tries[-1]
    assert [f.content for f in delete_files_of(spark, table)].count(2) == 1  # the last commit's own
    assert len(spark.sql(f"SELECT name FROM {full(table)}.refs").collect()) == 1


@pytest.mark.deep
def test_a_conversion_killed_before_its_commit_changes_nothing_and_the_next_one_completes(
    workshop, spark, lake, monkeypatch
):
    """Before its one commit nothing is seen: test_a_conversion_changes_nothing_if_spark_finds_other_records_deleted."""
    table = empty(lake, "killed-conversion", version=3)
    for made in history():
        UpsertSink(spark, full(table), ["id"]).commit(*made)
    before, snapshot = rows_of(spark, table), spark.sql(f"SELECT * FROM {full(table)}.snapshots").count()

    def dies(*_):
        raise SystemExit(137)

    with monkeypatch.context() as patch:
        patch.setattr(convert, "_publish", dies)
        patch.setattr(convert, "drop_branches", lambda *_: None)
        with pytest.raises(SystemExit):
            workshop.run("convert-deletes", table)
    assert rows_of(spark, table) == before
    assert spark.sql(f"SELECT * FROM {full(table)}.snapshots").count() == snapshot + 1
    assert [f.content for f in delete_files_of(spark, table)].count(2) == 3
    later = time.time() + 100_000
    monkeypatch.setattr("spark_jobs.convert.time.time", lambda: later)
    workshop.ok("convert-deletes", table)
    assert rows_of(spark, table) == before
    assert list(spark.sql(f"SELECT name FROM {full(table)}.refs").collect()) == [("main",)]
    require_converted(spark, table, 3)


def test_a_conversion_changes_nothing_if_spark_finds_other_records_deleted(workshop, spark, lake, monkeypatch):
    table = empty(lake, "miscounted", version=3)
    for made in history(2):
        UpsertSink(spark, full(table), ["id"]).commit(*made)
    before = rows_of(spark, table)
    monkeypatch.setattr(convert, "searches", lambda *_: [])
    code, _, err = workshop.run("convert-deletes", table)
    assert code == TableError.exit_code and "Cleantail and Spark find different records deleted" in err
    assert rows_of(spark, table) == before
    assert list(spark.sql(f"SELECT name FROM {full(table)}.refs").collect()) == [("main",)]

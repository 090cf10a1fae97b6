"""Adopted tables that stay in format version 2: rounds write position deletes, and every engine reads the same."""

from __future__ import annotations

import json
import os
import random
from io import BytesIO

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyroaring import BitMap64

from cleantail.errors import TableError
from cleantail.lake.position_deletes import positions_of_file
from spark_jobs.iceberg import log_files
from spark_jobs.round.check_and_publish import publish_or_start_over
from spark_jobs.round.publish import side_table
from spark_jobs.round.run import Run
from tests.jobs.conftest import REDPANDA, SINK, places, settings
from tests.jobs.round.intake.test_adopt import HOUR, NOW, changes, delete_files_of, expected, files_of, read
from tests.jobs.round.test_held_rounds import checked_round

SAME = ("log_start_offset", "checkpoint", "first_dirty_offset", "pending_tombstones", "horizons", "records")
"""What `status` reports about a log in either version."""


def append(spark, table, rows):
    frame = spark.createDataFrame(rows, "p int, o bigint, ms bigint, k string, v string").coalesce(1)
    frame.selectExpr(*SINK).writeTo(full(table)).append()


def full(table):
    namespace, name = table.split(".")
    return f"cleantail.{namespace}.`{name}`"


def by_spark(spark, table):
    columns = "redpanda.`partition` AS p, redpanda.`offset` AS o, string(redpanda.key) AS k, string(value) AS v"
    rows = [tuple(row) for row in spark.sql(f"SELECT {columns} FROM {full(table)}").collect()]
    return sorted(rows, key=lambda row: row[:2])


def places_in(spark, table):
    return places(spark, full(table), "redpanda.`offset`", "redpanda.`partition`")


def test_rounds_and_a_rollback_by_position_deletes_of_one_file_each(workshop, spark, adopted):
    """Of a reclaim test_reclaim_writes_parquet_whatever_other_format_the_table_names holds the rule, of tombstones at
    their horizon test_keys_of_several_columns_deletes_by_a_mark_and_values_of_many."""
    records = list(changes(partitions=1, count=20))
    topic, table = adopted("plain2", records)
    before = files_of(spark, table)
    workshop.ok("compact", topic, "--now", NOW)
    first = by_spark(spark, table)
    assert first == read(workshop, topic) == expected(records)
    more = [(0, 20, NOW, "k0", "new")]
    append(spark, table, more)
    workshop.ok("compact", topic, "--now", NOW + 500, "--force")
    assert by_spark(spark, table) == expected([*records, *more])
    deletes = delete_files_of(spark, table)
    assert {(f.content, f.file_format) for f in deletes} == {(1, "PARQUET")}
    # what a file has lost is in one delete file, however many rounds it took
    named = [f.referenced_data_file for f in deletes]
    assert len(named) == len(set(named)) and set(named) <= set(files_of(spark, table))
    assert sum(f.record_count for f in deletes) == len(records) + len(more) - len(expected([*records, *more]))
    assert set(before) <= set(files_of(spark, table))

    undone = workshop.json("rollback", topic)
    assert undone["ok"]
    assert by_spark(spark, table) == sorted([*first, *((p, o, k, v) for p, o, _, k, v in more)])


def test_what_another_engine_has_deleted_file_by_file_stays_deleted(workshop, spark, redpanda):
    records = list(changes(partitions=1))
    table = redpanda("others2", records, 2)
    spark.sql(
        f"ALTER TABLE {full(table)} SET TBLPROPERTIES "
        "('write.delete.mode'='merge-on-read', 'write.delete.granularity'='file')"
    )
    spark.sql(f"DELETE FROM {full(table)} WHERE redpanda.`offset` IN (38, 39)")
    assert delete_files_of(spark, table)
    workshop.ok("adopt", table)
    settings(workshop, "others2")
    workshop.ok("compact", "others2", "--now", NOW)
    assert by_spark(spark, table) == read(workshop, "others2") == expected([r for r in records if r[1] < 38])
    named = [f.referenced_data_file for f in delete_files_of(spark, table)]
    assert len(named) == len(set(named))


def test_deletes_of_several_files_are_refused_by_name_before_anything_is_changed(workshop, spark, redpanda):
    table = redpanda("wide2", list(changes(partitions=1)), 2)
    append(spark, table, [(0, 40, NOW - 5 * 3_600_000, "k0", "late")])  # a second file of the first hour
    properties = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"
    spark.sql(f"ALTER TABLE {full(table)} SET TBLPROPERTIES ({properties}, 'write.delete.distribution-mode'='none')")
    spark.conf.set("spark.sql.iceberg.distribution-mode", "hash")
    try:
        spark.sql(f"DELETE FROM {full(table)} WHERE redpanda.`offset` IN (1, 40)")
    finally:
        spark.conf.unset("spark.sql.iceberg.distribution-mode")
    assert [f.record_count for f in delete_files_of(spark, table)] == [2]
    code, _, err = workshop.run("adopt", table)
    assert code == 2 and "deletes rows of more than one data file" in err
    assert "map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')" in err
    assert not list((workshop.config / "topics").iterdir())


def test_a_delete_of_another_engine_between_check_and_publish_starts_the_round_over(workshop, spark, adopted, table_of):
    records = list(changes(partitions=1))
    topic, name = adopted("between2", records)
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    properties = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file'"
    spark.sql(f"ALTER TABLE {full(name)} SET TBLPROPERTIES ({properties})")
    # in a file in which the round deletes: it would take that delete's place
    spark.sql(f"DELETE FROM {full(name)} WHERE redpanda.`offset` = 39")
    done = publish_or_start_over(Run(table), checked)
    assert done.published == (0,)
    assert by_spark(spark, name) == read(workshop, topic) == expected([r for r in records if r[1] != 39])


@pytest.mark.deep
def test_appends_between_check_and_publish_do_not_matter(workshop, spark, adopted, table_of):
    """test_an_approved_round_is_published_and_keeps_records_appended_meanwhile in test_held_rounds.py holds the
    rule."""
    records = list(changes(partitions=1))
    topic, name = adopted("append2", records)
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    append(spark, name, [(0, 40, NOW, "k0", "late")])
    assert publish_or_start_over(Run(table), checked).round == checked.round
    assert by_spark(spark, name) == [*expected(records), (0, 40, "k0", "late")]


def test_a_table_that_is_upgraded_later_goes_on_with_deletion_vectors(workshop, spark, adopted):
    records = list(changes(partitions=1, count=20))
    topic, table = adopted("later2", records)
    workshop.ok("compact", topic, "--now", NOW)
    assert "format version 2 -> 3" in workshop.ok("adopt", table, "--upgrade")
    assert by_spark(spark, table) == expected(records)
    more = [(0, 20, NOW, "k0", "new")]
    append(spark, table, more)
    workshop.ok("compact", topic, "--now", NOW + 500, "--force")
    assert by_spark(spark, table) == read(workshop, topic) == expected([*records, *more])
    deletes = delete_files_of(spark, table)
    named = [f.referenced_data_file for f in deletes]
    assert len(named) == len(set(named))
    assert "PUFFIN" in {f.file_format for f in deletes}


def test_a_round_and_latest_keep_the_earliest_copy_of_a_record(workshop, spark, adopted):
    """A view shows the same: test_round_view_and_latest_choose_the_same_of_the_copies_in_one_commit."""
    topic, table = adopted("copies2", records := [(0, 0, NOW - 1000, "a", "a"), (0, 1, NOW - 1000, "b", "b")])
    first = places_in(spark, table)
    append(spark, table, records)
    latest = [json.loads(line) for line in workshop.ok("latest", topic, "--now", NOW).splitlines()]
    assert [row["payload"] for row in latest] == ["a", "b"]
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert places_in(spark, table) == first


@pytest.mark.deep
def test_a_round_that_waits_for_approval_lists_records_that_it_would_remove(workshop, adopted, table_of):
    """test_a_round_above_the_limit_is_published_only_with_an_approval in test_held_rounds.py holds the rule."""
    records = list(changes(partitions=1, count=20))
    topic, _ = adopted("held2", records, **{"cleantail.max.drop.ratio": 0.1})
    checked = checked_round(workshop, table_of(topic))
    assert checked.holds
    gone = sorted({(r[0], r[1]) for r in records} - {r[:2] for r in expected(records)})
    assert [(record.partition, record.offset) for record in checked.sample] == gone[: len(checked.sample)]
    assert checked.sample


def positions_of(content, data_file):
    return positions_of_file(BytesIO(content), data_file, "d-1.parquet", 1 << 20)


def test_a_position_delete_file_is_read_as_it_was_written_and_a_damaged_one_is_an_error(tmp_path):
    positions = BitMap64([0, 3, 2**33])
    content = log_files.position_file("s3://bucket/a.parquet", positions)
    assert positions_of(content, "s3://bucket/a.parquet") == positions
    assert not positions_of(content, "s3://bucket/b.parquet")
    with pytest.raises(TableError, match="d-1.parquet is not a position delete file, or is damaged"):
        positions_of(content[:-9], "s3://bucket/a.parquet")
    # Iceberg's readers know the columns by their ids
    (tmp_path / "d.parquet").write_bytes(content)
    with PyArrowFileIO().new_input(str(tmp_path / "d.parquet")).open() as file:
        ids = [f.metadata[b"PARQUET:field_id"] for f in log_files.pq.read_schema(file)]
    assert ids == [b"2147483546", b"2147483545"]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(int(os.environ.get("CLEANTAIL_HISTORIES", "1"))))
def test_the_same_history_leaves_the_same_records_in_both_versions(workshop, spark, redpanda, seed):
    """Each version against the model: test_rounds_and_a_rollback_by_position_deletes_of_one_file_each here,
    test_redpandas_iceberg_topic_is_adopted_and_compacted_in_place in test_adopt.py, which upgrades to 3."""
    chance = random.Random(seed)
    start = [(p, o, NOW - HOUR, f"k{o % 4}", None if o == 7 else f"v{o}") for p in range(2) for o in range(10)]
    tables = {v: redpanda(f"history-{seed}-{v}", start, 2) for v in (2, 3)}
    names = {v: table.partition(".")[2] for v, table in tables.items()}
    strategy = chance.choice([{}, {"compaction.strategy": "timestamp"}])
    for version, table in tables.items():
        workshop.ok("adopt", table, *(["--upgrade"] if version == 3 else []))
        settings(workshop, names[version], **strategy, **{"cleantail.reclaim.deleted.ratio": 0.3})
    ends, now, there = [10, 10], NOW, {(p, o): row for p, o, *row in start}
    for step in range(2):
        rows = []
        for _ in range(chance.randrange(1, 12)):
            p, key = chance.randrange(2), f"k{chance.randrange(5)}"
            again = chance.random() < 0.2
            offset = chance.randrange(ends[p]) if again else ends[p]  # what a sink writes twice may come in any order
            ends[p] += not again
            value = None if chance.random() < 0.3 else f"v{chance.randrange(100)}"
            row = there.setdefault((p, offset), [now - chance.randrange(HOUR), key, value])
            rows.append((p, offset, *row))
        now += chance.choice([300, 2000])
        for version, table in tables.items():
            append(spark, table, rows)
            workshop.ok("compact", names[version], "--now", now, "--force")
            if step == 1:
                workshop.ok("reclaim", names[version], "--now", now)
        assert by_spark(spark, tables[2]) == by_spark(spark, tables[3])
        assert read(workshop, names[2]) == read(workshop, names[3]) == by_spark(spark, tables[2])
        states = [workshop.ok("latest", name, "--now", now).replace(name, "") for name in names.values()]
        assert states[0] == states[1]
    logs = [workshop.json("status", name, "--now", now)["topics"][name] for name in names.values()]
    for mine, other in zip(*logs, strict=True):
        assert {k: mine[k] for k in SAME} == {k: other[k] for k in SAME}


@pytest.mark.deep
def test_copies_of_a_record_without_a_key_are_set_aside_once(workshop, spark, adopted, table_of):
    """test_a_round_and_latest_keep_the_earliest_copy_of_a_record holds the rule for records with a key."""
    rows = [(0, 0, NOW - HOUR, None, "lost"), (0, 1, NOW - HOUR, "a", "x")]
    topic, table = adopted("keyless2", rows, **{"cleantail.keyless.policy": "quarantine"})
    append(spark, table, rows)
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert by_spark(spark, table) == read(workshop, topic) == [(0, 1, "a", "x")]
    aside = spark.table(side_table(table_of(topic))).collect()
    assert [(row["offset"], bytes(row["value"]).decode()) for row in aside] == [(0, "lost")]


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_files_that_are_partitioned_by_a_dropped_column_are_an_error_with_a_way_out(workshop, spark, lake, version):
    topic = f"once_partitioned_{version}"
    columns = f"redpanda {REDPANDA}, value binary, region string"
    records = [(0, o, NOW - HOUR + o, f"k{o % 3}", f"v{o}") for o in range(9)]
    table = lake(topic, columns, [records], [*SINK, "'north' AS region"], "PARTITIONED BY (region)",
                 f"'format-version'='{version}'")  # fmt: skip
    for change in (
        "DROP PARTITION FIELD region",
        "DROP COLUMN region",
        "ADD PARTITION FIELD hours(redpanda.timestamp)",
    ):
        spark.sql(f"ALTER TABLE {full(table)} {change}")
    workshop.ok("adopt", table)
    settings(workshop, topic)
    code, _, err = workshop.run("compact", topic, "--now", NOW, "--force")
    assert (code, "partitioned by a dropped column" in err, "rewrite_data_files" in err) == (2, True, True)
    rewrite = "CALL cleantail.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))"
    spark.sql(rewrite.format(table))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert by_spark(spark, table) == [(0, 6, "k0", "v6"), (0, 7, "k1", "v7"), (0, 8, "k2", "v8")]

"""Other engines during a round: what they delete, copy or upgrade is neither lost nor counted twice."""

from __future__ import annotations

import json
import os
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cleantail.errors import ConflictError, HeldError, TableError
from cleantail.lake.evaluate import evaluate_topic, read_facts
from spark_jobs.iceberg.iceberg_reads import added_by
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.round import run as rounds
from spark_jobs.round.check import check_round
from spark_jobs.round.check_and_publish import publish_or_start_over
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_approved
from spark_jobs.round.reclaim import rewrite_groups
from spark_jobs.round.run import Run
from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import append, by_spark, full, places_in
from tests.jobs.round.intake.test_adopt import HOUR, NOW, changes, delete_files_of, expected, read
from tests.jobs.round.test_held_rounds import branches, checked_round

BY_FILE = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file'"
WIDE = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"
ALL_GOES = {"cleantail.reclaim.deleted.ratio": 0.01}


def delete(spark, table, condition, properties=BY_FILE):
    """A DELETE of Spark's own; WIDE is one file of position deletes for all data files of a partition."""
    spark.sql(f"ALTER TABLE {full(table)} SET TBLPROPERTIES ({properties}, 'write.delete.distribution-mode'='none')")
    spark.conf.set("spark.sql.iceberg.distribution-mode", "hash")
    try:
        spark.sql(f"DELETE FROM {full(table)} WHERE {condition}")
    finally:
        spark.conf.unset("spark.sql.iceberg.distribution-mode")


def delete_by_value(spark, table, column, field, values, place):
    """An equality delete, as a sink in upsert mode writes it."""
    jvm, path = spark._jvm, str(place / "equality.parquet")
    kind = pa.field(column, pa.int64(), metadata={b"PARQUET:field_id": str(field).encode()})
    pq.write_table(pa.table([pa.array(values, pa.int64())], schema=pa.schema([kind])), path)
    iceberg = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, full(table))
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = field
    builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(iceberg.spec()).ofEqualityDeletes(ids)
    builder = builder.withFormat(jvm.org.apache.iceberg.FileFormat.PARQUET).withPath(path)
    builder = builder.withFileSizeInBytes(os.path.getsize(path)).withRecordCount(len(values))
    iceberg.newRowDelta().addDeletes(builder.build()).commit()


def take_deletes_in(spark, table, said):
    """Does what the error says."""
    options = "map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')"
    assert f"CALL system.rewrite_data_files(table => …, options => {options}), twice" in said
    for _ in range(2):
        spark.sql(f"CALL cleantail.system.rewrite_data_files(table => '{table}', options => {options})")


def live_records(workshop, topic):
    return [log["records"] for log in workshop.json("status", topic, "--now", NOW)["topics"][topic]]


def test_reclaim_skips_files_whose_delete_file_covers_other_files(workshop, spark, adopted, table_of):
    rows = [(0, o, NOW - 5 * HOUR + o, f"k{o}", "v") for o in range(20)]
    topic, name = adopted("wide-meanwhile", rows[:5], **ALL_GOES)
    for first in (5, 10, 15):
        append(spark, name, rows[first : first + 5])
    table = table_of(topic)
    group = [f for f in read_facts(table.topic).files if f.lower_offset >= 10]
    delete(spark, name, "redpanda.`offset` IN (2, 7)", WIDE)
    before = by_spark(spark, name)
    assert len(before) == 18
    assert list(rewrite_groups(table, [group])) == []
    assert (by_spark(spark, name), branches(table)) == (before, [])


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.deep)])
def test_equality_deletes_after_adoption_stop_all_commands_and_no_row_reappears(
    workshop, spark, lake, table_of, tmp_path, version
):
    name, names = f"upsert{version}", ("p", "o", "ms", "k", "v")
    groups = [[(0, o, NOW - HOUR + o, f"k{o}", "v") for o in range(i, i + 5)] for i in (0, 5, 10, 15)]
    columns = "p int, o bigint, ms bigint, k string, v string"
    table = lake(name, columns, groups, ["*"], "", f"'format-version'='{version}'")
    mapped = [f"{x}={y}" for x, y in zip(("partition", "offset", "timestamp", "key", "value"), names, strict=True)]
    workshop.ok("adopt", table, "--topic", name, *(x for pair in mapped for x in ("--column", pair)))
    settings(workshop, name, **ALL_GOES)
    group = [f for f in read_facts(table_of(name).topic).files if f.lower_offset >= 10]
    delete_by_value(spark, table, "o", 2, [2, 7], tmp_path)
    assert spark.table(full(table)).count() == 18
    for command in ("status", "plan", "compact", "read", "latest", "reclaim"):
        code, _, err = workshop.run(command, name)
        assert code == 2 and "or by values of columns" in err and "rewrite_data_files" in err
    assert list(rewrite_groups(table_of(name), [group])) == []
    assert spark.table(full(table)).count() == 18
    take_deletes_in(spark, table, err)
    workshop.ok("compact", name, "--now", NOW, "--force")
    assert read(workshop, name) == expected([r for rows in groups for r in rows if r[1] not in (2, 7)])


@pytest.mark.deep
def test_an_expiry_is_refused_if_a_delete_file_covers_several_data_files(
    workshop, spark, adopted, table_of, monkeypatch
):
    """test_reclaim_skips_files_whose_delete_file_covers_other_files holds the rule."""
    rows = [(0, 0, NOW - HOUR, "a", "1"), (0, 1, NOW - HOUR, "t", None)]
    topic, name = adopted("wide-expiry", rows)
    append(spark, name, [(0, 2, NOW - HOUR, "b", "2"), (0, 3, NOW - HOUR, "c", "3")])
    workshop.ok("compact", topic, "--now", NOW, "--force")
    evaluate = rounds.evaluate_topic

    def late(*arguments, **more):
        plan = evaluate(*arguments, **more)
        delete(spark, name, "redpanda.`offset` IN (0, 2)", WIDE)
        return plan

    monkeypatch.setattr(rounds, "evaluate_topic", late)
    with pytest.raises(TableError, match="deletes rows of more than one data file.*rewrite_data_files"):
        rounds.expire_round(Run(table_of(topic)), NOW + 5000, [0])
    assert ([r[1] for r in by_spark(spark, name)], branches(table_of(topic))) == ([1, 3], [])


def test_deletes_that_two_engines_wrote_at_once_are_counted_once(workshop, spark, adopted, tmp_path):
    records = [(0, o, NOW - HOUR + o, f"k{o % 6}", f"v{o}") for o in range(40)]
    topic, table = adopted("at-once2", records, **ALL_GOES)
    workshop.ok("compact", topic, "--now", NOW)
    append(spark, table, [(0, 40, NOW, "k0", "new"), (0, 41, NOW, "k1", "new")])
    spark.sql(f"ALTER TABLE {full(table)} SET TBLPROPERTIES ({BY_FILE}, 'write.delete.isolation-level'='snapshot')")
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"

    def slow(offset):  # the DELETE has planned its files, and is held while a round publishes
        if offset == 39:
            begun.touch()
            while not go_on.exists():
                time.sleep(0.1)
        return offset in (38, 39)

    spark.udf.register("slow", slow, "boolean")
    held = threading.Thread(target=spark.sql, args=[f"DELETE FROM {full(table)} WHERE slow(redpanda.`offset`)"])
    held.start()
    while not begun.exists():
        time.sleep(0.1)
    workshop.ok("compact", topic, "--now", NOW + 500, "--force")
    go_on.touch()
    held.join()
    left = by_spark(spark, table)
    # both are there, and have positions in common
    assert sum(f.record_count for f in delete_files_of(spark, table)) > 42 - len(left)
    assert live_records(workshop, topic) == [len(left)]


@pytest.mark.deep
def test_an_approval_outlives_the_rounds_of_other_logs(workshop, adopted, table_of):
    """test_an_approved_round_is_published_and_keeps_records_appended_meanwhile in test_held_rounds.py holds the rule
    for appends."""
    records = list(changes(partitions=2, count=20))
    topic, _ = adopted("patient2", records, **{"cleantail.max.drop.ratio": 0.1})
    table, _platform = table_of(topic), workshop.platform()
    plan = evaluate_topic(table.topic, now_ms=NOW, force=True, partition=0)
    checked = check_round(table, plan.round, [compact_unit(table, u) for u in plan.units])
    assert checked.holds
    workshop.ok("compact", topic, "--now", NOW, "--force", "--partition", 1, "--approve")
    assert publish_approved(table, checked, "anna").published == (0,)
    assert read(workshop, topic) == expected(records)


@pytest.mark.deep
def test_an_upgrade_of_the_table_voids_the_approval_of_a_waiting_round(workshop, spark, adopted, table_of):
    """test_an_upgrade_while_a_unit_is_compacted_leaves_no_branch holds the rule for a round that is being made, and
    test_an_answer_is_void_once_its_round_was_made_again in test_forged_xcoms.py for an approval."""
    records = list(changes(partitions=1, count=20))
    topic, name = adopted("midway", records, **{"cleantail.max.drop.ratio": 0.1})
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    workshop.ok("adopt", name, "--upgrade")
    with pytest.raises(HeldError, match="what anna approved cannot be published as it was shown.*was upgraded after"):
        publish_approved(table, checked, "anna")
    assert (branches(table), len(by_spark(spark, name))) == ([], 20)
    workshop.ok("compact", topic, "--now", NOW, "--force", "--approve")
    assert by_spark(spark, name) == read(workshop, topic) == expected(records)


@pytest.mark.deep
def test_an_upgrade_by_another_engine_between_check_and_publish_changes_no_result(workshop, spark, adopted, table_of):
    """test_a_table_that_is_upgraded_later_goes_on_with_deletion_vectors and
    test_an_upgrade_while_a_unit_is_compacted_leaves_no_branch hold the rules."""
    records = [(0, 0, NOW - HOUR, "a", "a"), (0, 1, NOW - HOUR, "b", "b")]
    topic, name = adopted("upgraded-by-others", records)
    first = places_in(spark, name)
    append(spark, name, records)
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    spark.sql(f"ALTER TABLE {full(name)} SET TBLPROPERTIES ('format-version'='3')")
    assert publish_or_start_over(Run(table), checked).published == (0,)
    assert by_spark(spark, name) == read(workshop, topic) == [(0, 0, "a", "a"), (0, 1, "b", "b")]
    assert places_in(spark, name) == first


def test_round_view_and_latest_choose_the_same_of_the_copies_in_one_commit(workshop, spark, adopted, table_of):
    topic, name = adopted("together2", [(0, 0, NOW - 1000, "a", "x")])
    for _ in range(2):
        append(spark, name, [(0, 1, NOW - 1000, "c", "y")])
    table = table_of(topic)
    iceberg = table.load()
    snapshots = [
        row.snapshot_id for row in spark.sql(f"SELECT * FROM {full(name)}.snapshots ORDER BY committed_at").collect()
    ]
    files = [file for snapshot in snapshots[-2:] for file in added_by(iceberg, snapshot)]
    spark.sql(f"CALL cleantail.system.rollback_to_snapshot('{name}', {snapshots[-3]})")
    append_both = table.load().newAppend()
    for file in sorted(files, key=lambda f: str(f.location()), reverse=True):
        append_both.appendFile(file)
    append_both.commit()
    ensure_latest_view(table)
    [view] = spark.sql(f"SELECT string(value) AS v FROM {full(name)[:-1]}_latest` WHERE offset = 1").collect()
    latest = [json.loads(line)["payload"] for line in workshop.ok("latest", topic, "--now", NOW).splitlines()]
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert view.v == latest[1] == read(workshop, topic)[1][3] == "y"
    assert places_in(spark, name)[0, 1] == [min(str(file.location()) for file in files)]


def test_position_deletes_in_another_format_are_refused_by_every_command(workshop, spark, redpanda):
    table = redpanda("orc2", list(changes(partitions=1)), 2)
    delete(spark, table, "redpanda.`offset` = 39", f"{BY_FILE}, 'write.delete.format.default'='orc'")
    code, _, err = workshop.run("adopt", table)
    assert code == 2 and "has position deletes as ORC, and only Parquet can be read" in err
    assert not list((workshop.config / "topics").iterdir())
    take_deletes_in(spark, table, err)
    workshop.ok("adopt", table)
    assert len(read(workshop, "orc2")) == 39


@pytest.mark.deep
def test_columns_of_the_sink_may_have_any_names(workshop, spark, lake):
    """test_keys_of_several_columns_deletes_by_a_mark_and_values_of_many holds the rule for names of a struct's fields."""
    columns = "status int, path bigint, ct_came bigint, ct_path string, sequence_number string"
    rows = [(0, o, NOW - HOUR + o, f"k{o % 3}", f"v{o}") for o in range(9)]
    select = ["p AS status", "o AS path", "ms AS ct_came", "k AS ct_path", "v AS sequence_number"]
    table = lake("named2", columns, [rows], select)
    mapped = ["partition=status", "offset=path", "timestamp=ct_came", "key=ct_path", "value=sequence_number"]
    workshop.ok("adopt", table, "--topic", "named2", *(x for pair in mapped for x in ("--column", pair)))
    settings(workshop, "named2")
    workshop.ok("compact", "named2", "--now", NOW, "--force")
    view = spark.table("cleantail.sinks.`named2_latest`").orderBy("offset").collect()
    assert [(row.partition, row.offset, bytes(row.value).decode()) for row in view] == [
        (p, o, v) for p, o, _, v in expected(rows)
    ]


@pytest.mark.deep
def test_a_failed_check_quarantines_the_log_even_if_rows_were_deleted_meanwhile(workshop, spark, adopted, table_of):
    """test_a_delete_of_another_engine_between_check_and_publish_starts_the_round_over holds what becomes of others."""
    check = {
        "expectation": "expect_column_values_to_not_be_in_set",
        "kwargs": {"column": "value", "value_set": ["v39"]},
    }
    topic, name = adopted("red2", list(changes(partitions=1)))
    file = workshop.config / "topics" / f"{topic}.yaml"
    file.write_text(f"{file.read_text()}\nchecks: [{json.dumps(check)}]\n")
    table, _platform = table_of(topic), workshop.platform()
    checked = checked_round(workshop, table)
    delete(spark, name, "redpanda.`offset` = 38")
    assert publish_or_start_over(Run(table), checked).held_back == (0,)
    [log] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert log["state"]["quarantine"]["attempts"] == 1


def test_an_upgrade_while_a_unit_is_compacted_leaves_no_branch(workshop, spark, adopted, table_of, monkeypatch):
    records = list(changes(partitions=1, count=20))
    topic, name = adopted("mid-compact", records)
    table, _platform = table_of(topic), workshop.platform()
    [unit] = evaluate_topic(table.topic, now_ms=NOW, force=True).units
    write = SnapshotFiles.write

    def upgraded(*arguments):
        change = write(*arguments)
        spark.sql(f"ALTER TABLE {full(name)} SET TBLPROPERTIES ('format-version'='3')")
        return change

    with monkeypatch.context() as patch, pytest.raises(ConflictError, match="was upgraded after the round had begun"):
        patch.setattr(SnapshotFiles, "write", upgraded)
        compact_unit(table, unit)
    assert branches(table) == []
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert by_spark(spark, name) == read(workshop, topic) == expected(records)

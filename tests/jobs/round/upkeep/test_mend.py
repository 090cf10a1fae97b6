"""Deletion vectors for which no engine reads a table: every command says so, and `mend` makes it readable."""

from __future__ import annotations

import re

import pytest
from pyroaring import BitMap64

from spark_jobs.iceberg import log_files
from spark_jobs.iceberg.java_calls import described_file
from spark_jobs.iceberg.log_files import puffin_file, vector_blob, write_deletes
from tests.jobs.conftest import settings
from tests.jobs.iceberg.test_format_2 import by_spark, full
from tests.jobs.iceberg.test_registered_twice import Twice, measures
from tests.jobs.round.intake.test_adopt import NOW, changes, expected, read
from tests.jobs.round.test_rounds import offsets, record

SEEN_BY = ("status", "plan", "compact", "reclaim", "latest")


def add_vector(sink, file, *positions):
    """A vector that its writer has not looked for: Iceberg's own check begins at the snapshot that is there now."""
    table = sink.load()
    [vector] = write_deletes(sink.jvm, table, [(described_file(sink.jvm, table, file), BitMap64(positions))])
    delta = table.newRowDelta().validateFromSnapshot(table.currentSnapshot().snapshotId())
    delta.addDeletes(vector).commit()


def with_two_vectors(sink, file):
    add_vector(sink, file, 0)
    add_vector(sink, file, 1)


def with_an_older_vector(sink, file):
    add_vector(sink, file, 0, 1)
    sink.in_another_manifest([file])


DAMAGES = {
    "two": (with_two_vectors, "has 2 deletion vectors, in .* and .*: a data file may have only one"),
    "older": (with_an_older_vector, "was registered .* after its deletion vector in"),
}


@pytest.mark.parametrize("damage", [pytest.param("two", marks=pytest.mark.deep), "older"])
def test_every_command_reports_damaged_vectors_and_mend_repairs_them_without_loss(workshop, spark, redpanda, damage):
    spoil, message = DAMAGES[damage]
    records, name = list(changes(partitions=1)), f"vectors-{damage}"
    table = redpanda(name, records, 3)
    sink = Twice(spark, full(table))
    file = min(sink.files(), key=lambda f: str(f.location()))
    path = str(file.location())
    workshop.ok("adopt", table)
    settings(workshop, name)
    gone = sorted(
        row.o
        for row in spark.sql(
            f"SELECT redpanda.`offset` AS o FROM {full(table)} WHERE _file = '{path}' AND _pos < 2"
        ).collect()
    )
    spoil(sink, file)
    left = [r for r in records if r[1] not in gone]
    with pytest.raises(Exception, match="DV"):
        by_spark(spark, table)
    for command in SEEN_BY:
        code, _, err = workshop.run(command, name)
        assert code == 2 and "`cleantail mend TABLE`" in err, (command, err)
        assert re.search(message, err) and path in err
    code, _, err = workshop.run("adopt", table)
    assert code == 2 and "`cleantail mend TABLE`" in err
    before = workshop.json("mend", table, "--dry-run")
    assert (before["mended"], list(before["unreadable"]), before["gone"]) == (False, [path], [])
    assert workshop.run("plan", name)[0] == 2

    assert "the deletion vectors of 1 data file were rewritten" in workshop.ok("mend", table)
    assert "nothing was changed" in workshop.ok("mend", table)
    seen = by_spark(spark, table)
    assert sorted(set(seen)) == [(p, o, k, v) for p, o, _, k, v in left]
    result = workshop.json("compact", name, "--now", NOW)
    assert result["ok"], result
    assert by_spark(spark, table) == read(workshop, name) == expected(left)
    again = measures(result)[0]["deleted"].get("registered_twice", 0)
    assert again == (len(seen) - len(left)) and bool(again) == (damage == "older")
    code, _, err = workshop.run("rollback", name, "--to", sink.load().snapshots().iterator().next().snapshotId())
    assert code == 2 and "repaired deletion vectors" in err


def bare(vectors):
    """Deletion vectors one after another, and nothing else."""
    blobs = [vector_blob(positions) for _, positions in vectors]
    places = [(sum(map(len, blobs[:n])), len(blob)) for n, blob in enumerate(blobs)]
    return [b"".join(blobs)], places


def without_footer(vectors):
    content, places = puffin_file(vectors)
    return [b"".join(content)[: places[-1][0] + places[-1][1]]], places


@pytest.mark.parametrize(
    ("write", "in_one"),
    [
        pytest.param(bare, False, id="no magic, a file each", marks=pytest.mark.deep),
        pytest.param(without_footer, True, id="no footer, two in one file"),
        pytest.param(bare, True, id="no magic, two in one file", marks=pytest.mark.deep),
        pytest.param(without_footer, False, id="no footer, a file each", marks=pytest.mark.deep),
    ],
)
def test_a_vector_in_no_puffin_file_is_written_into_one(workshop, spark, redpanda, monkeypatch, write, in_one):
    """Spark reads it by its place. PyIceberg does not, and adopt, latest and read need PyIceberg."""
    records, name = list(changes(partitions=1)), f"bare-{write.__name__}-{in_one}"
    table = redpanda(name, records[:20], 3)
    sink = Twice(spark, full(table))
    workshop.ok("adopt", table)
    settings(workshop, name)
    iceberg, files = sink.load(), sorted(sink.files(), key=lambda f: str(f.location()))[: 2 if in_one else 1]
    with monkeypatch.context() as patch:
        patch.setattr(log_files, "puffin_file", write)
        lost = [(described_file(sink.jvm, iceberg, file), BitMap64([0])) for file in files]
        delta = iceberg.newRowDelta()
        for vector in write_deletes(sink.jvm, iceberg, lost):
            delta.addDeletes(vector)
        delta.commit()
    left = by_spark(spark, table)
    assert len(left) == 20 - len(files)
    for command in ("latest", "read"):
        code, _, err = workshop.run(command, name)
        assert code == 2 and "is not a Puffin file" in err and "`cleantail mend TABLE`" in err, (command, err)
    code, _, err = workshop.run("adopt", table)
    assert code == 2 and "is not a Puffin file" in err
    before = workshop.json("mend", table, "--dry-run")
    assert (before["mended"], len(before["unreadable"])) == (False, len(files))
    workshop.ok("mend", table)
    assert "nothing was changed" in workshop.ok("mend", table)
    assert by_spark(spark, table) == read(workshop, name) == left
    workshop.ok("adopt", table)
    workshop.ok("compact", name, "--now", NOW)
    assert by_spark(spark, table) == read(workshop, name)


def test_a_vector_of_a_missing_file_is_reported_and_removed_before_the_file_returns(workshop, spark, redpanda):
    records, name = list(changes(partitions=1)), "vectors-gone"
    table = redpanda(name, records, 3)
    sink = Twice(spark, full(table))
    file = sink.files()[0]
    path = str(file.location())
    before = sink.load()
    [orphan] = write_deletes(sink.jvm, before, [(described_file(sink.jvm, before, file), BitMap64([0]))])
    sink.load().newDelete().deleteFile(file).commit()
    table_now = sink.load()
    now = table_now.currentSnapshot().snapshotId()
    table_now.newRowDelta().validateFromSnapshot(now).addDeletes(orphan).commit()
    left = by_spark(spark, table)
    out = workshop.ok("adopt", table)
    assert "note: deletion vectors of data files that no longer exist: 1" in out and f"`cleantail mend {table}`" in out
    settings(workshop, name)
    workshop.ok("plan", name, "--now", NOW)
    told = workshop.ok("mend", table)
    assert f"{path} no longer exists, but still has a deletion vector" in told and "those of 1 file dropped" in told
    sink.in_another_manifest([file])
    assert len(by_spark(spark, table)) == len(records) > len(left)
    workshop.ok("compact", name, "--now", NOW)
    assert by_spark(spark, table) == read(workshop, name) == expected(records)


def test_a_file_registered_again_after_a_round_is_reported_and_mended_in_an_own_table(workshop, table_of, spark):
    topic = workshop.topic("mended-own")
    lines = [record(0, "a", "1"), record(1, "a", "2"), record(2, "b", "1")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    workshop.ok("compact", topic, "--now", NOW)
    table = table_of(topic)
    sink = Twice(spark, table.name)
    [file] = sink.files()
    sink.in_another_manifest([file])
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 2 and "`cleantail mend TABLE`" in err
    workshop.ok("mend", table.topic.table)
    result = workshop.json("compact", topic, "--now", NOW + 1)
    assert measures(result)[0]["deleted"]["registered_twice"] == 2
    assert offsets(workshop.read(topic)) == [1, 2]


def test_mend_refuses_a_missing_table_and_an_invalid_table_name(workshop):
    code, _, err = workshop.run("mend", "sinks.no-such-table")
    assert code == 2 and "has no table sinks.no-such-table" in err
    code, _, err = workshop.run("mend", "nothing")
    assert code == 2 and "is not a table: namespace.name" in err


def test_an_ingestion_next_to_records_with_an_older_vector_names_mend(workshop, table_of):
    topic = workshop.topic("vectors-ingest")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(n, "a", "v") for n in (0, 1, 4)]))
    workshop.ok("compact", topic, "--now", NOW)
    table = table_of(topic).load()
    tasks = table.newScan().includeColumnStats().planFiles().iterator()
    table.newFastAppend().appendFile(tasks.next().file()).commit()
    late = workshop.file("b.jsonl", [record(2, "b", "v")])
    code, _, err = workshop.run("ingest", topic, "--file", late)
    assert code == 2 and "`cleantail mend TABLE`" in err
    workshop.ok("mend", f"cleantail.{table_of(topic).load().name().split('.')[-1]}")
    workshop.ok("ingest", topic, "--file", late)
    workshop.ok("compact", topic, "--now", NOW)
    assert offsets(workshop.read(topic)) == [2, 4]

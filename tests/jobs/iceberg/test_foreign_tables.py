"""A table of another catalog keeps its files, whatever an adopted table says of them: with real tables and Spark."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from cleantail.config.loading import load_platform
from cleantail.config.topic_table import EVIDENCE
from cleantail.errors import TableError
from cleantail.lake.evaluate import read_facts
from cleantail.rounds.pack_results import PackRequest
from cleantail.rounds.past_ingestions import SourceFile, Sources
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.java_calls import each
from spark_jobs.run.pack_run import run_pack
from tests.jobs.conversion.test_upserting_sinks import MAPPED, change, empty
from tests.jobs.iceberg.test_format_2 import append
from tests.jobs.round.test_rounds import record
from tests.jobs.upsert_sink import UpsertSink

AHEAD = int(time.time() * 1000) + 10 * 86_400_000
"""Snapshots are past their retention, and the evidence is not."""
DELETES_OLD = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}
ORPHANS = "cleantail.adopted.orphans"


@pytest.fixture
def victim(tmp_path):
    """A table of a catalog that the platform does not know, all of whose files are old."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file:{tmp_path}/lake")
    catalog.create_namespace("sinks")
    table = catalog.create_table("sinks.victim", Schema(NestedField(1, "offset", LongType())))
    table.append(pa.table({"offset": [1]}))
    return table


def files_of(table):
    return {file for file in local(table.location()).rglob("*") if file.is_file()}


def local(uri):
    return Path(str(uri).removeprefix("file://").removeprefix("file:"))


def made_old(files):
    for file in files:
        os.utime(file, (1, 1))


@pytest.fixture
def taken_over(workshop, adopted, table_of):
    """taken_over(name, **config): the topic of an adopted table with a round, in a trial with a clock of its own."""
    (workshop.config / "defaults.yaml").write_text("platform: {allow_clock: true}")

    def make(name, **config):
        topic, _ = adopted(name, [(0, offset, 1, "k", "v") for offset in range(3)], **config)
        workshop.ok("compact", topic, "--force")
        return topic

    return make


def test_a_table_at_the_place_of_another_catalogs_table_is_neither_adopted_nor_reclaimed(
    workshop, spark, redpanda, taken_over, victim
):
    there = files_of(victim)
    made_old(there)
    # 1. after it was adopted it is set to the place
    topic = taken_over("squatter", **{ORPHANS: "remove"})
    [(file,), *_] = spark.sql("SELECT file_path FROM cleantail.sinks.squatter.files").collect()
    spark.sql(f"ALTER TABLE cleantail.sinks.squatter SET LOCATION '{victim.location()}'")
    code, _, err = workshop.run("reclaim", topic, "--now", AHEAD)
    assert code == 2 and "has a file outside its location" in err, err
    own = {"platform": {"allow_clock": True, "imported_folders": [file.partition("/data/")[0]]}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(own))
    code, _, err = workshop.run("reclaim", topic, "--now", AHEAD)
    assert code == 2 and "is metadata of another table" in err, err
    spark.sql("DROP TABLE cleantail.sinks.squatter")
    # 2. before it is adopted
    redpanda("beside_it", [(0, 0, 1, "k", "v")])
    spark.sql(f"ALTER TABLE cleantail.sinks.beside_it SET LOCATION '{victim.location()}/data'")
    code, _, err = workshop.run("adopt", "sinks.beside_it")
    assert code == 2 and "is metadata of another table" in err, err
    assert there <= files_of(victim) and victim.refresh().scan().to_arrow().num_rows == 1
    spark.sql("DROP TABLE cleantail.sinks.beside_it")


def test_orphans_of_an_adopted_table_stay_unless_the_topic_sets_remove(workshop, spark, taken_over, table_of):
    topic = taken_over("orphaned")
    place = local(table_of(topic).load().location())
    own, raw = place / "data" / "own.parquet", place / "data" / "raw.parquet"
    for file, at_s in ((own, 10), (raw, 1)):
        file.write_text("x")
        os.utime(file, (at_s, at_s))
    os.utime(min(place.glob("metadata/*.metadata.json")), (5, 5))
    done = workshop.json("reclaim", topic, "--now", AHEAD)
    assert (done["expired_snapshots"] > 0, done["orphans_removed"], own.exists()) == (True, 0, True)
    assert any(f"{ORPHANS} is keep" in reason for reason in done["reasons"])
    file = workshop.config / "topics" / f"{topic}.yaml"
    file.write_text(file.read_text().replace("config: {", f'config: {{"{ORPHANS}": "remove", '))
    append(spark, f"sinks.{topic}", [(0, 3, 1, "k", "v")])  # there is a snapshot to expire again
    done = workshop.json("reclaim", topic, "--now", AHEAD)
    assert (done["expired_snapshots"] > 0, done["orphans_removed"], own.exists()) == (True, 1, False)
    assert not any(f"{ORPHANS} is keep" in reason for reason in done["reasons"])
    assert raw.exists(), "a file from before the table was made is not the table's"


@pytest.fixture
def forge(workshop, spark, victim):
    """forge(table): its log of metadata names files of another table, which a commit by Iceberg would delete, and it
    says that it lies where that one does."""
    made = []

    def make(table, moved=False):
        name = table.partition(".")[2]
        full = f"cleantail.{table.partition('.')[0]}.`{name}`"
        loaded = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, full)
        metadata = local(loaded.operations().current().metadataFileLocation())
        document = json.loads(metadata.read_text())
        document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": victim.metadata_location}]
        document["properties"] |= DELETES_OLD
        if moved:
            document["location"], document["table-uuid"] = victim.location(), str(victim.metadata.table_uuid)
        forged = metadata.with_name(f"00099-{uuid.uuid4()}.metadata.json")
        forged.write_text(json.dumps(document))
        with sqlite3.connect(load_platform(workshop.config).home / "catalog.db") as database:
            changed = database.execute(
                "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (f"file:{forged}", name)
            )
            assert changed.rowcount == 1
        made.append(name)

    yield make
    with sqlite3.connect(load_platform(workshop.config).home / "catalog.db") as database:
        for name in made:
            database.execute("DELETE FROM iceberg_tables WHERE table_name = ?", (name,))


@pytest.fixture
def forge_at_commit(forge, monkeypatch):
    """forge_at_commit(table): the same, by the time that the first commit to it is sent, with the location and the
    UUID of the other table. Returns what counts the forgeries."""

    def at_commit(table):
        done = []

        def before_commit(iceberg, metadata):
            if not done:
                done.append(table)
                forge(table, moved=True)

        monkeypatch.setattr(commits, "before_commit", before_commit)
        return done

    return at_commit


COMMANDS = {
    "compact": ("--force",),
    "rollback": (),
    "reclaim": ("--now", AHEAD),
}


@pytest.mark.parametrize("command", [("compact", "--force"), ("rollback",)])
def test_no_command_commits_where_the_commit_would_delete_another_tables_metadata(
    workshop, adopted, victim, forge, command
):
    topic, table = adopted(f"logged_{command[0]}", [(0, offset, 1, "k", "v") for offset in range(3)])
    if command[0] == "rollback":
        workshop.ok("compact", topic, "--force")
    forge(table)
    code, _, err = workshop.run(command[0], topic, *command[1:])
    assert code == 2 and "a commit would delete it; nothing was changed" in err, err
    assert local(victim.metadata_location).exists()


@pytest.mark.parametrize(
    "command", [*(pytest.param(command, marks=pytest.mark.deep) for command in ("compact", "rollback")), "reclaim"]
)
def test_a_commit_deletes_no_file_that_the_metadata_log_names_only_since_the_table_was_loaded(
    workshop, adopted, victim, forge_at_commit, command
):
    topic, table = adopted(f"swapped_{command}", [(0, offset, 1, "k", "v") for offset in range(3)])
    (workshop.config / "defaults.yaml").write_text("platform: {allow_clock: true}")
    if command != "compact":
        workshop.ok("compact", topic, "--force")
    done = forge_at_commit(table)
    workshop.run(command, topic, *COMMANDS[command])
    assert done and local(victim.metadata_location).exists()


@pytest.fixture
def forged_ingestion(spark, adopted):
    """forged_ingestion(name, sources): the topic of an adopted table, and its last snapshot, which says that it is an
    ingestion of ours with these sources."""

    def make(name, sources):
        topic, table = adopted(name, [(0, offset, 1, "k", "v") for offset in range(3)])
        full = f"cleantail.{table.partition('.')[0]}.`{table.partition('.')[2]}`"
        claims = {"cleantail.operation": "ingest", "cleantail.sources": sources}
        rows = spark.table(full).limit(1).writeTo(full)
        for claim, value in claims.items():
            rows = rows.option(f"snapshot-property.{claim}", value)
        rows.append()
        return topic, table, full

    return make


def own_of(workshop, spark, topic):
    """All that is kept of a topic: its records, its state, what it has ingested, and its rows of evidence."""
    facts = read_facts(workshop.find(topic))
    evidence = spark.sql(f"SELECT count(*) FROM cleantail.cleantail.{EVIDENCE} WHERE topic = '{topic}'").collect()
    return workshop.read(topic), dict(facts.states), facts.ingested, evidence[0][0]


def test_a_forged_ingestion_cannot_undo_records_of_another_topic(workshop, spark, table_of, forged_ingestion):
    owner = workshop.topic("log-owner")
    workshop.ok("ingest", owner, "--file", workshop.file("owned.jsonl", [record(n, "a", "x") for n in range(3)]))
    workshop.ok("compact", owner, "--force")
    sources = str(table_of(owner).load().snapshots().iterator().next().summary()["cleantail.sources"])
    before = own_of(workshop, spark, owner)
    assert before[2] and before[3]
    # its summary says what the owner's says, and its property that it is the owner's
    topic, _, full = forged_ingestion("log-claimer", sources)
    spark.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('cleantail.topic'='{owner}')")
    snapshots = spark.table(f"{full}.snapshots").count()
    code, _, err = workshop.run("rollback", topic, "--ingestion", "last")
    assert code == 2 and f"belongs to topic {owner}; nothing was changed" in err, err
    assert spark.table(f"{full}.snapshots").count() == snapshots
    assert own_of(workshop, spark, owner) == before


@pytest.mark.parametrize(
    "sources",
    [
        pytest.param("x", id="text", marks=pytest.mark.deep),
        pytest.param('{"a":1}', id="object", marks=pytest.mark.deep),
        pytest.param("[[],{},{}]", id="list"),
    ],
)
def test_forged_sources_of_an_ingestion_are_an_error_and_change_nothing(
    workshop, spark, forged_ingestion, sources, request
):
    topic, _, full = forged_ingestion(f"sources-{request.node.callspec.id}", sources)
    code, _, err = workshop.run("rollback", topic, "--ingestion", "last")
    assert code == 2 and "cleantail.sources of snapshot" in err, err
    assert spark.table(full).count() == 4


def test_no_ingestion_is_taken_back_where_the_commit_would_delete_another_tables_metadata(
    workshop, spark, victim, forge, forged_ingestion
):
    sources = Sources((SourceFile("a" * 64, "f"),), {0: None}).packed()
    topic, table, full = forged_ingestion("logged_undo", sources)
    forge(table)
    code, _, err = workshop.run("rollback", topic, "--ingestion", "last")
    assert code == 2 and "a commit would delete it; nothing was changed" in err, err
    assert local(victim.metadata_location).exists()


@pytest.mark.parametrize("by", ["command", pytest.param("command before adopt", marks=pytest.mark.deep), "pack"])
def test_no_conversion_commits_where_the_commit_would_delete_another_tables_metadata(
    workshop, spark, lake, victim, forge, by
):
    topic = f"logged-{by.replace(' ', '-')}"
    table = empty(lake, topic, version=3)
    sink = UpsertSink(spark, f"cleantail.{table.partition('.')[0]}.`{topic}`", ["id"])
    sink.commit(change(0, 1))
    workshop.ok("convert-deletes", table)
    if by != "command before adopt":
        workshop.ok("adopt", table, "--topic", topic, *(x for pair in MAPPED for x in ("--column", pair)))
    sink.commit(change(1, 1))
    forge(table)
    if by == "pack":
        request = PackRequest((topic,), int(time.time() * 1000), force=True)
        [outcome] = run_pack(spark, workshop.platform(), request).topics
        code, err = 0 if outcome.ok else 2, outcome.error
    else:
        code, _, err = workshop.run("convert-deletes", table)
    assert code == 2 and "a commit would delete it; nothing was changed" in err, err
    assert local(victim.metadata_location).exists()


def test_an_adopted_table_with_a_file_of_another_topic_is_refused_unless_the_platform_imports_its_folder(
    workshop, adopted, table_of
):
    victim, _ = adopted("file-owner", [(0, 7, 1, "anna", "secret")])
    thief, _ = adopted("file-thief", [(0, offset, 1, "k", "v") for offset in range(3)])
    [foreign] = [task.file() for task in each(table_of(victim).load().newScan().includeColumnStats().planFiles())]
    append = table_of(thief).load().newAppend()
    append.appendFile(foreign)
    append.commit()
    with pytest.raises(TableError, match=r"table sinks\.file-thief has a file outside its location"):
        table_of(thief).files_at(int(table_of(thief).load().currentSnapshot().snapshotId()))
    for command in (
        ("read", thief),
        ("latest", thief),
        ("status", thief),
        ("compact", thief, "--force"),
        ("reclaim", thief, "--now", AHEAD),
        ("check", thief),
    ):
        code, out, err = workshop.run(*command)
        assert (code, "secret" in out + err) == (2, False), (command, out, err)
        assert "has a file outside its location" in err, command
    place = str(table_of(victim).load().location())
    (workshop.config / "defaults.yaml").write_text(
        json.dumps({"platform": {"allow_clock": True, "imported_folders": [place]}})
    )
    assert [r["offset"] for r in workshop.read(thief)] == [0, 1, 2, 7]
    workshop.ok("compact", thief, "--force")
    code, _, err = workshop.run("reclaim", thief, "--now", AHEAD)
    assert (code, "would be deleted with the snapshots" in err) == (2, True), err
    table_of(thief).set_properties({"gc.enabled": "false"})
    workshop.ok("reclaim", thief, "--now", AHEAD)
    assert [r["offset"] for r in workshop.read(victim)] == [7]

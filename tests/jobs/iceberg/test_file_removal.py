"""What Cleantail deletes is the table's own, whatever the table's metadata says: with real tables, files and Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from cleantail.config.topic_table import table_properties
from cleantail.errors import TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.evaluate import read_facts
from cleantail.lake.storage_locations import oldest_own_file_ms
from spark_jobs.iceberg.file_removal import expire_snapshots, remove_orphans
from spark_jobs.iceberg.java_calls import each

DAY_MS = 86_400_000
AHEAD = int(time.time() * 1000) + 10 * DAY_MS
"""Snapshots are past their retention, and the evidence is not."""


def record(offset, key="k", value="v"):
    return {"partition": 0, "offset": offset, "ts": 1, "key": key, "payload": value}


@pytest.fixture
def filled(workshop):
    """A topic of three records in so many appends, in a trial where snapshots expire by the clock that is given."""
    (workshop.config / "defaults.yaml").write_text("platform: {allow_clock: true}")

    def make(name, appends=3, **config):
        topic = workshop.topic(name, config)
        for n in range(appends):
            some = [record(offset) for offset in range(n, 3, appends)]
            workshop.ok("ingest", topic, "--file", workshop.file(f"{name}-{n}.jsonl", some))
        return topic

    return make


def folder(table):
    return Path(str(table.load().location()).removeprefix("file:"))


def old_file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (1, 1))
    return path


def aged(path, days):
    old_file(path)
    os.utime(path, (time.time() - days * DAY_MS / 1000,) * 2)
    return path


def files_below(place):
    return {file for file in place.rglob("*") if file.is_file()}


def test_reclaim_of_a_table_around_another_deletes_nothing(workshop, spark, filled, table_of):
    victim, attacker = filled("rm-victim", 1), filled("rm-attacker", 2)
    place = folder(table_of(victim))
    for file in files_below(place):
        os.utime(file, (1, 1))
    before = files_below(place)
    for location in (place.parent, f"{place}/data"):
        spark.sql(f"ALTER TABLE {table_of(attacker).name} SET LOCATION 'file://{location}'")
        code, _, err = workshop.run("reclaim", attacker, "--now", AHEAD)
        assert code == 2 and "table cleantail.rm_attacker lies at" in err and "and table cleantail." in err
    assert "table cleantail.rm_victim at" in err
    assert before <= files_below(place)  # ALTER TABLE has written metadata there
    assert [r["offset"] for r in workshop.read(victim)] == [0, 1, 2]
    # out of the way again, for the tests that share the catalog
    spark.sql(f"DROP TABLE {table_of(attacker).name}")


def test_a_table_moved_after_its_location_was_read_deletes_no_file_of_another_table(workshop, spark, filled, table_of):
    """Its owner may move it at any time, as between the look and the deletion."""
    victim, attacker = filled("moved-victim", 1), filled("moved-attacker", 2)
    table, place = table_of(attacker), folder(table_of(victim))
    looked_at = str(table.load().location())
    for file in files_below(place):
        os.utime(file, (1, 1))
    before = files_below(place)
    spark.sql(f"ALTER TABLE {table.name} SET LOCATION 'file://{place}'")
    moved = table.load()
    assert remove_orphans(spark, moved, AHEAD - 110 * DAY_MS, looked_at, 0) == 0
    expire_snapshots(spark, table.load, AHEAD, looked_at)
    with pytest.raises(TableError, match=r"its metadata log names .* which is outside its location"):
        table.set_properties({"a": "b"})  # a commit to a table of Cleantail's own, which deletes old metadata
    assert before <= files_below(place)
    assert [r["offset"] for r in workshop.read(victim)] == [0, 1, 2]
    spark.sql(f"DROP TABLE {table.name}")


def test_an_expired_snapshot_never_takes_a_file_of_another_table_with_it(workshop, spark, filled, table_of):
    """add_files takes a file in without a copy, and a delete leaves it to the snapshots that expire."""
    victim, attacker = filled("add-victim", 1), filled("add-attacker", 1)
    [foreign, *_] = [r.file_path for r in spark.sql(f"SELECT file_path FROM {table_of(victim).name}.files").collect()]
    held = spark.sql(f"SELECT * FROM {table_of(attacker).name}").count()
    name = table_of(attacker).name
    java = table_of(attacker).load()
    victims = table_of(victim).load().newScan().includeColumnStats().planFiles()
    [file] = [t.file() for t in each(victims) if str(t.file().location()) == foreign]
    append = java.newAppend()
    append.appendFile(file)
    append.commit()
    assert spark.sql(f"SELECT * FROM {name}").count() == held + 3
    delete = java.newDelete()
    delete.deleteFile(foreign)
    delete.commit()

    there = files_below(folder(table_of(victim)))
    code, _, err = workshop.run("reclaim", attacker, "--now", AHEAD)
    assert (code, "names files outside its location" in err, foreign in err) == (2, True, True), err
    assert files_below(folder(table_of(victim))) == there
    snapshots = spark.sql(f"SELECT * FROM {name}.snapshots").count()

    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled'='false')")
    workshop.ok("reclaim", attacker, "--now", AHEAD)
    assert spark.sql(f"SELECT * FROM {name}.snapshots").count() == snapshots
    assert files_below(folder(table_of(victim))) == there


def test_snapshots_expire_with_their_files_and_only_orphans_of_the_tables_own_folders_go(workshop, filled, table_of):
    """An orphan goes at the age that the topic says."""
    topic = filled("own-files", **{"cleantail.orphan.retention.ms": "3d", "cleantail.reclaim.min.merge.files": 2})
    place = folder(table_of(topic))
    data = place / "data" / "partition=0"
    orphans = [aged(data / "orphan.parquet", 4), old_file(place / "metadata" / "orphan.avro")]
    others = [old_file(place / "notes.txt"), old_file(place / "exports" / "x.parquet")]
    young = aged(data / "young.parquet", 2)
    os.utime(min((place / "metadata").glob("*.metadata.json")), (1, 1))  # the table is as old as they are
    workshop.ok("compact", topic, "--force")
    before = {file for file in files_below(place / "data") if file.suffix == ".parquet"}
    done = workshop.json("reclaim", topic, "--now", AHEAD)
    assert (done["rewritten_files"], done["orphans_removed"]) == (3, 2)
    stored = read_facts(workshop.find(topic)).stored
    assert stored is not None and stored.data > sum(file.stat().st_size for file in others)
    assert min(stored.metadata, stored.data_docs, stored.evidence) > 1_000
    assert done["expired_snapshots"] > 3
    assert not any(file.exists() for file in orphans) and all(file.exists() for file in others)
    assert before & files_below(place) == {young}
    assert [r["offset"] for r in workshop.read(topic)] == [2]


@pytest.mark.deep
def test_metadata_of_a_refused_creation_blocks_reclaim_only_once_its_table_has_records(
    workshop, filled, table_of, tmp_path
):
    """Two machines create the topic's table at the same moment. The refused file may even be known elsewhere.

    test_only_the_file_of_a_refused_creation_of_the_same_table_blocks_nothing in test_table_folder.py holds the rule."""
    topic = filled("created-twice", 2, **{"cleantail.reclaim.min.merge.files": 2})
    table, place = table_of(topic), folder(table_of(topic))
    elsewhere = SqlCatalog("elsewhere", uri=f"sqlite:///{tmp_path}/elsewhere.db", warehouse=f"file:{tmp_path}/none")
    elsewhere.create_namespace("cleantail")
    properties = table_properties(topic, table.topic.config) | {"format-version": "2"}  # as PyIceberg can write it
    schema = Schema(NestedField(1, "offset", LongType()))
    twin = elsewhere.create_table("cleantail.twin", schema, location=f"file:{place}", properties=properties)
    left = Path(twin.metadata_location.removeprefix("file:"))
    orphan = old_file(place / "metadata" / "orphan.avro")
    os.utime(min((place / "metadata").glob("*.metadata.json"), key=lambda f: f == left), (1, 1))
    os.utime(left, (2, 2))
    done = workshop.json("reclaim", topic, "--now", AHEAD)
    assert (done["orphans_removed"], orphan.exists(), left.exists()) == (1, False, True)
    twin.append(pa.table({"offset": [1]}))  # its catalog still has it
    with pytest.raises(TableError, match="is metadata of another table"):
        oldest_own_file_ms(load_table(open_catalog(table.platform), table.topic))


def test_an_orphan_retention_of_zero_removes_orphans_after_a_day(workshop, filled, table_of):
    """Also one that is older than the metadata that commits have kept. Iceberg refuses to remove younger ones. Of a
    later age test_snapshots_expire_with_their_files_and_only_orphans_of_the_tables_own_folders_go holds the rule."""
    config = {"cleantail.orphan.retention.ms": "0ms", "cleantail.reclaim.min.merge.files": 2}
    topic = filled("orphan-of-days", **config)
    table, place = table_of(topic), folder(table_of(topic))
    table.set_properties({"write.metadata.previous-versions-max": "1"})
    [first] = [file for file in (place / "metadata").glob("*.metadata.json") if file.name.startswith("00000-")]
    os.utime(first, (time.time() - 5 * DAY_MS / 1000,) * 2)
    young, old = (aged(place / "data" / "partition=0" / f"{days}.parquet", days) for days in (0.5, 2))
    done = workshop.json("reclaim", topic, "--now", AHEAD)
    assert done["expired_snapshots"] > 0
    assert (done["orphans_removed"], young.exists(), old.exists()) == (1, True, False)
    assert first.exists()
    assert len(list((place / "metadata").glob("*.metadata.json"))) == 3  # the first, the current, and one before it


def test_a_clock_in_the_future_expires_nothing_unless_the_platform_allows_it(workshop, filled, table_of):
    topic = filled("clock-ahead")
    (workshop.config / "defaults.yaml").unlink()
    done = workshop.json("reclaim", topic, "--now", AHEAD)
    assert (done["expired_snapshots"], done["reasons"]) == (
        0,
        ["no file is over the deleted share, nothing to merge, no snapshot to expire"],
    )


def test_a_table_in_another_ones_folder_is_not_adopted(workshop, spark, redpanda, filled, table_of):
    topic = filled("adopt-victim", 1)
    name = redpanda("beside", [(0, 0, 1, "k", "v")])
    spark.sql(f"ALTER TABLE cleantail.sinks.beside SET LOCATION '{folder(table_of(topic))}/'")
    for dry in ([], ["--dry-run"]):
        code, _, err = workshop.run("adopt", name, *dry)
        assert code == 2 and "table sinks.beside lies at" in err and "table cleantail.adopt_victim at" in err
    assert not (workshop.config / "topics" / "beside.yaml").exists()
    spark.sql("DROP TABLE cleantail.sinks.beside")

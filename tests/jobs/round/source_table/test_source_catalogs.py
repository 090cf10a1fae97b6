"""Source tables in catalogs that Cleantail only reads: opened by a login of their own, and as they were afterwards."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from cleantail.lake.client_properties import spark_secrets
from spark_jobs.round.intake.source_frames import REDACTION, _register
from tests.jobs.catalog_sites import SECRET, site
from tests.jobs.source_tables import FLAT, PLAIN, Sink

pytestmark = pytest.mark.integration


def everything_in(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def configured(workshop, name, catalog):
    """The platform with one more catalog, which the session knows as well: in a test it is the sink, too."""
    platform = {"source_catalogs": {name: catalog}, "source_tables": [f"{name}.sinks.*"]}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    return workshop.platform()


def filled(spark, platform, name, table):
    _register(spark, platform.reading(name))
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.sinks")
    spark.sql(f"CREATE TABLE {name}.sinks.{table} ({FLAT}) USING iceberg")
    return Sink(spark, f"{name}.sinks.{table}", f"sinks.{table}", FLAT)


def offsets(table_of, topic):
    return [r.offset for r in table_of(topic).current().orderBy("partition", "offset").collect()]


def test_two_topics_read_a_table_of_another_catalog_which_stays_as_it_is(workshop, spark, table_of, tmp_path):
    database, lake_folder = tmp_path / "lake" / "catalog.db", tmp_path / "lake"
    lake_folder.mkdir()
    SqlCatalog("elsewhere", uri=f"sqlite:///{database}", warehouse=f"file://{lake_folder}/wh").create_namespace("sinks")
    catalog = {"type": "sqlite", "uri": f"sqlite:///{database}", "warehouse": f"file:{lake_folder}/wh"}
    lake = filled(spark, configured(workshop, "elsewhere", catalog), "elsewhere", "orders")
    lake.append((0, 0, 5, "a", "x"), (0, 1, 5, "a", "y"))
    lake.append((0, 2, 5, "b", "x"))
    before = everything_in(lake_folder)
    source = {"table": {"name": lake.name, "catalog": "elsewhere", "columns": PLAIN}}
    topics = [workshop.topic(name, source=source) for name in ("elsewhere-one", "elsewhere-two")]
    for topic in topics:
        workshop.ok("ingest", topic)
        if topic == topics[0]:
            workshop.ok("rollback", topic, "--ingestion", "last")
            workshop.ok("ingest", topic)
        assert workshop.json("ingest", topic)["commits"] == 0
        assert offsets(table_of, topic) == [0, 1, 2]
        position = json.loads(table_of(topic).load().properties().get("cleantail.source.table"))
        assert (position["catalog"], position["table"]) == ("elsewhere", "sinks.orders")
    assert everything_in(lake_folder) == before


# test_a_secret_of_any_name_comes_from_... in tests/cleantail/lake/test_client_properties.py holds the rule; here with a
# REST catalog
@pytest.mark.deep
def test_a_rest_catalog_is_opened_by_its_own_login_and_never_by_the_platforms(workshop, spark, table_of, monkeypatch):
    with site("rest") as started:
        monkeypatch.setenv("CLEANTAIL_CATALOG_LAKE", started.env["CLEANTAIL_CATALOG_CREDENTIAL"])
        monkeypatch.setenv("CLEANTAIL_CATALOG_CREDENTIAL", "somebody:else")
        catalog = started.catalog | {"secrets": {"credential": "CLEANTAIL_CATALOG_LAKE"}}
        platform = configured(workshop, "by_rest", catalog)
        lake = filled(spark, platform, "by_rest", "orders")
        lake.append((0, 0, 5, "a", "x"))
        source = {"table": {"name": lake.name, "catalog": "by_rest", "columns": PLAIN}}
        topic = workshop.topic("by-rest", source=source)
        workshop.ok("ingest", topic)
        lake.append((0, 1, 5, "a", "y"))
        workshop.ok("ingest", topic)
        assert offsets(table_of, topic) == [0, 1]
        hidden = re.compile(spark.conf.get(REDACTION))
        assert hidden.search("spark.sql.catalog.by_rest.credential")
        assert "somebody" not in json.dumps(spark_secrets(platform.reading("by_rest")))
        monkeypatch.setenv("CLEANTAIL_CATALOG_LAKE", "nobody:knows")
        code, _, err = workshop.run("ingest", topic)
        assert code == 4 and "catalog by_rest (rest) at http://127.0.0.1" in err and SECRET not in err


def test_a_command_exits_with_code_4_if_its_source_catalog_is_unreachable(workshop):
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9"}
    configured(workshop, "away", catalog)
    topic = workshop.topic("catalog-away", source={"table": {"name": "sinks.x", "catalog": "away", "columns": PLAIN}})
    code, _, err = workshop.run("ingest", topic)
    assert code == 4 and "catalog away (rest) at http://127.0.0.1:9 cannot be reached" in err


def test_no_client_makes_tables_in_a_database_that_is_only_read(workshop, tmp_path):
    """A database that is not a catalog stays empty."""
    database = tmp_path / "empty.db"
    database.touch()
    configured(workshop, "empty_db", {"type": "sqlite", "uri": f"sqlite:///{database}"})
    topic = workshop.topic("empty-db", source={"table": {"name": "sinks.x", "catalog": "empty_db", "columns": PLAIN}})
    assert workshop.run("ingest", topic)[0] in (2, 4)
    assert database.read_bytes() == b""

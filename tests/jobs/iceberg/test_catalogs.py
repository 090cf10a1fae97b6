"""The main job on each supported catalog: the tables and the side tables are the same."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyiceberg.io
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from cleantail.config.catalog import Catalog
from cleantail.config.platform import Platform
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.neighbours import require_separate_folder
from cleantail.lake.releases import current_releases
from cleantail.watch.metadata_cache import MetadataCache
from tests.jobs.catalog_sites import SECRET, site
from tests.jobs.round.test_held_rounds import SHORT
from tests.jobs.round.test_rounds import NOW, offsets, record

pytestmark = pytest.mark.integration

LONG = "far too long"
DAY = 86_400_000
CATALOGS = ["rest", "postgres", "rest-s3", "mysql", "glue"]


@pytest.fixture(scope="module", params=CATALOGS)
def catalog(request):
    with site(request.param) as started:
        yield started


@pytest.fixture
def shop(catalog, workshop, spark, monkeypatch):
    """A workshop on that catalog, which has a separate name in Spark: the session is shared by all tests."""
    for name, value in catalog.env.items():
        monkeypatch.setenv(name, value)
    if catalog.kind == "glue":  # the JVM runs already, and takes these settings in another way
        system = spark._jvm.java.lang.System
        system.setProperty("aws.accessKeyId", catalog.env["AWS_ACCESS_KEY_ID"])
        system.setProperty("aws.secretAccessKey", catalog.env["AWS_SECRET_ACCESS_KEY"])
    name = catalog.kind.replace("-", "_")
    platform = {"allow_clock": True, "spark": {"master": "local[2]"}, "catalog": {"name": name, **catalog.catalog}}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    return workshop


def keys(shop, topic):
    return [r["key"] for r in sorted(shop.read(topic), key=lambda r: (r["partition"], r["offset"]))]


def test_the_main_job_from_ingestion_to_reclaim(shop, catalog, spark):
    topic = shop.topic(f"catalog-{catalog.kind}", checks=[SHORT])
    lines = [record(o, f"k{o % 3}", f"v{o}") for o in range(9)] + [record(o, LONG, "x", partition=1) for o in range(3)]
    # 1. ingest, and register a reader next to the table
    shop.ok("ingest", topic, "--file", shop.file("a.jsonl", lines))
    shop.ok("reader", "set", topic, "index", "--partition", 0, "--offset", 4)
    # 2. evaluate, compact, check: one log is published, the other is blocked, released and published
    assert shop.run("compact", topic, "--now", NOW)[0] == 1
    logs = shop.json("status", topic, "--now", NOW)["topics"][topic]
    assert (logs[0]["checkpoint"], logs[1]["state"]["quarantine"]["attempts"]) == (9, 1)
    shop.ok("release", topic, "1")
    platform = shop.platform()
    assert sorted(current_releases(open_catalog(platform.with_env({**catalog.env})), shop.find(topic))) == [1]
    shop.topic(f"catalog-{catalog.kind}")
    shop.ok("compact", topic, "--now", NOW + 1, "--force")
    assert offsets(shop.read(topic)) == [6, 7, 8, 2]
    # 3. commands that show the state
    cache = MetadataCache(platform)
    seen = cache.with_namespaces([shop.find(topic)], cache.observe([shop.find(topic)], within_s=30))[topic]
    assert seen.error == "" and set(seen.facts.states) == {0, 1}
    assert [r.name for r in seen.facts.readers] == ["index"]
    assert len(cache.rounds(shop.find(topic))) == 2 and cache.totals(within_s=30)
    # 4. undo, repeat, and reclaim
    shop.ok("rollback", topic, "--to", "last")
    shop.ok("compact", topic, "--now", NOW + DAY, "--force")
    assert shop.json("reclaim", topic, "--now", int(time.time() * 1000) + 30 * DAY)
    assert offsets(shop.read(topic)) == [6, 7, 8, 2]
    # 5. other tables of the catalog are listed
    opened = open_catalog(platform.with_env(catalog.env))
    assert require_separate_folder(opened, platform, opened.load_table(shop.find(topic).table)) == ""
    view = f"{platform.catalog.name}.cleantail.`{shop.find(topic).table.partition('.')[2]}_latest`"
    if catalog.has_views:
        assert spark.sql(f"SELECT count(*) AS n FROM {view}").collect()[0].n == 4
    if catalog.door:  # both clients used tokens for their credential, and requested those of the store
        assert {"PyIceberg"} < catalog.door.agents.keys() and catalog.door.delegations == {"vended-credentials"}


def test_first_clients_of_a_new_database_open_it_at_once(tmp_path):
    """Each client creates the missing tables of the catalog."""
    with site("postgres") as started, ThreadPoolExecutor(6) as clients:
        platform = Platform(catalog=Catalog(**started.catalog), home=tmp_path, config_dir=tmp_path)
        platform = platform.with_env(started.env)
        for _ in range(3):
            open_catalog(platform).destroy_tables()
            together = Barrier(6)

            def first(_, together=together):
                together.wait()
                return open_catalog(platform).list_namespaces()

            assert [*clients.map(first, range(6))] == [[]] * 6


def test_no_property_of_a_table_reaches_its_file_io(shop, catalog):
    opened = open_catalog(shop.platform().with_env(catalog.env))
    evil = dict.fromkeys((v for k, v in vars(pyiceberg.io).items() if k.isupper() and isinstance(v, str)), "evil")
    schema = Schema(NestedField(1, "a", LongType()))
    opened.create_namespace_if_not_exists("named")
    made = opened.create_table("named.evil", schema, properties=evil)
    for table in (made, opened.load_table("named.evil"), made.refresh()):
        assert table.properties["py-io-impl"] == table.properties["s3.endpoint"] == "evil"
        assert "evil" not in table.io.properties.values() and type(table.io).__name__ == "PyArrowFileIO"
    opened.drop_table("named.evil")


def test_a_refused_login_is_reported_without_its_secret(shop, catalog, monkeypatch):
    topic = shop.topic(f"catalog-refused-{catalog.kind}")
    if catalog.kind == "glue":
        pytest.skip("moto lets everybody in")
    for name in catalog.env:
        monkeypatch.setenv(name, f"wrong:{'x' * 12}" if "CREDENTIAL" in name else "wrong")
    code, out, err = shop.run("status", topic)
    assert code == 4 and "the login was refused" in err
    assert SECRET not in out + err and "Traceback" not in err

"""What a topic's YAML may say of a table that it reads, and what the platform lets it name."""

from __future__ import annotations

import json

import pytest

from cleantail.config.catalog import Catalog
from cleantail.config.claims import Claim, problem_of_new
from cleantail.config.loading import load_platform, load_topic, scan_topics
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError
from cleantail.lake.client_properties import pyiceberg_properties, spark_catalog, spark_secrets
from cleantail.lake.spark_settings import needs_s3

COLUMNS = "columns: {partition: p, offset: o, key: k}"
LAKE = '{type: rest, uri: "https://lake:8181", secrets: {token: CLEANTAIL_CATALOG_LAKE_TOKEN}}'
PLATFORM = f"platform: {{source_catalogs: {{lake: {LAKE}}}, source_tables: [lake.sinks.*, cleantail.sinks.orders]}}\n"


@pytest.fixture
def load(tmp_path):
    (tmp_path / "topics").mkdir()

    def made(source, platform=PLATFORM, more=""):
        (tmp_path / "defaults.yaml").write_text(platform)
        file = tmp_path / "topics" / "orders.yaml"
        file.write_text(f"topic: orders\nsource: {source}\n{more}")
        return load_topic(file, tmp_path)

    return made


def test_a_table_is_named_with_its_columns_and_nothing_else_is_needed(load):
    topic = load(f"{{table: {{name: sinks.orders, {COLUMNS}}}}}")
    assert (topic.source.type, topic.source.table.catalog, topic.source.table.on_change) == ("table", None, "fail")
    assert (topic.source.table.branch, topic.columns) == ("main", None)
    assert load(f"{{table: {{name: sinks.any, catalog: lake, {COLUMNS}}}}}").source.table.catalog == "lake"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{table: {name: sinks.orders}}", "source.table.columns: missing"),
        (f"{{table: {{name: orders, {COLUMNS}}}}}", "namespace.name, each of the characters"),
        (f"{{table: {{name: 'sinks.`orders', {COLUMNS}}}}}", "namespace.name, each of the characters"),
        (f"{{table: {{name: sinks.orders, {COLUMNS}}}, path: x}}", "path or table, not both"),
        (f"{{table: {{name: sinks.orders, {COLUMNS}}}, kafka: {{}}}}", "kafka or table, not both"),
        (f"{{table: {{name: sinks.orders, {COLUMNS}}}, type: files}}", "source.type: \"files\" is not allowed"),
        ("{type: table}", 'source.type: "table" is not allowed'),
        (f"{{table: {{name: sinks.orders, {COLUMNS}, on_change: ignore}}}}", "fail or continue"),
        (f"{{table: {{name: sinks.orders, {COLUMNS}, branch: 'a b'}}}}", "the name of a branch"),
        (f"{{table: {{name: sinks.orders, catalog: other, {COLUMNS}}}}}", "platform.source_catalogs in defaults.yaml has: lake"),
        (f"{{table: {{name: sinks.payroll, {COLUMNS}}}}}", "lists: lake.sinks.*, cleantail.sinks.orders; list cleantail.sinks.payroll there"),
        (f"{{table: {{name: hr.payroll, catalog: lake, {COLUMNS}}}}}", "list lake.hr.payroll there"),
    ],
)  # fmt: skip
def test_an_invalid_table_source_is_refused_with_the_allowed_values(load, text, says):
    with pytest.raises(ConfigError, match="source") as caught:
        load(text)
    assert says in str(caught.value)


def test_no_table_may_be_read_unless_the_platform_lists_it(load):
    with pytest.raises(
        ConfigError, match="platform.source_tables in defaults.yaml lists: none; list cleantail.a.b there"
    ):
        load(f"{{table: {{name: a.b, {COLUMNS}}}}}", platform="")


def test_an_adopted_table_may_not_have_a_source(load):
    with pytest.raises(ConfigError, match="has a table that its sink fills"):
        load(f"{{table: {{name: sinks.orders, {COLUMNS}}}}}", more="columns: {partition: p, offset: o, key: k}\n")


@pytest.mark.parametrize(
    ("platform", "says"),
    [
        ("{source_catalogs: {cleantail: {type: rest, uri: 'http://x'}}}", "names other than platform.catalog.name"),
        ("{source_catalogs: {lake: {type: sqlite}}}", "the address of the catalog, such as sqlite:////srv/catalog.db"),
        ("{source_catalogs: {lake: {type: rest}}}", "the address of the rest catalog"),
        ("{source_catalogs: {lake: {type: rest, uri: 'http://x', name: y}}}", "a table is named with its namespace"),
        ("{source_catalogs: {lake: {type: rest, uri: 'http://x', properties: {token: abc}}}}", "secrets are not allowed in YAML"),
        ("{source_catalogs: {lake: {type: rest, uri: 'http://x', secrets: {token: hunter2}}}}", "not the name of such a variable"),
        ("{source_catalogs: {'la ke': {type: rest, uri: 'http://x'}}}", "la ke"),
        ("{source_tables: ['*']}", "catalog.namespace.name of a table"),
        ("{source_tables: ['lake.*']}", "catalog.namespace.name of a table"),
    ],
)  # fmt: skip
def test_invalid_platform_settings_for_table_sources_are_refused(tmp_path, platform, says):
    (tmp_path / "defaults.yaml").write_text(f"platform: {platform}\n")
    with pytest.raises(ConfigError, match="defaults") as caught:
        load_platform(tmp_path)
    assert says in str(caught.value) and "hunter2" not in str(caught.value)


def test_a_catalog_that_is_read_gets_the_login_that_it_names_and_none_of_the_platforms_own(tmp_path):
    database = "{type: postgres, uri: 'postgresql://db/x', warehouse: 's3://b/w', secrets: {jdbc.user: CLEANTAIL_CATALOG_LAKE_USER}}"
    (tmp_path / "defaults.yaml").write_text(f"platform: {{source_catalogs: {{lake: {LAKE}, db: {database}}}}}\n")
    env = {
        "CLEANTAIL_CATALOG_TOKEN": "own", "CLEANTAIL_CATALOG_USER": "own", "CLEANTAIL_S3_ACCESS_KEY_ID": "own",
        "CLEANTAIL_S3_SECRET_ACCESS_KEY": "own", "CLEANTAIL_CATALOG_LAKE_TOKEN": "lakes", "CLEANTAIL_CATALOG_LAKE_USER": "reader",
    }  # fmt: skip
    platform = load_platform(tmp_path, env)
    lake, database = platform.reading("lake"), platform.reading("db")
    told = json.dumps([pyiceberg_properties(lake), spark_secrets(lake), spark_catalog(lake)])
    assert "lakes" in told and "own" not in told
    told = json.dumps([pyiceberg_properties(database), spark_secrets(database), spark_catalog(database)])
    assert "reader" in told and "own" not in told
    assert pyiceberg_properties(database)["init_catalog_tables"] == "false"
    assert "jdbc.schema-version" not in spark_catalog(database) and "jdbc.schema-version" in spark_catalog(platform)
    assert platform.reading(None) is platform and needs_s3(platform)


@pytest.fixture
def scanned(tmp_path):
    (tmp_path / "topics").mkdir()
    (tmp_path / "defaults.yaml").write_text("platform: {source_tables: [cleantail.cleantail.*, cleantail.sinks.*]}\n")

    def scan(**tables):
        for name, table in tables.items():
            source = f"source: {{table: {{name: {table}, {COLUMNS}}}}}\n" if table else ""
            (tmp_path / "topics" / f"{name}.yaml").write_text(f"topic: {name}\n{source}")
        return {f.stem: "" if isinstance(t, Topic) else str(t) for f, t in scan_topics(tmp_path)}

    return scan


def test_two_topics_may_read_one_table(scanned):
    assert scanned(a="sinks.orders", b="sinks.orders") == {"a": "", "b": ""}


@pytest.mark.parametrize(
    ("table", "whose"),
    [
        ("cleantail.a", "it is the topic's own"),
        ("cleantail.A", "it is the topic's own"),
        ("cleantail.b", "it is the table of b.yaml"),
        ("cleantail.b_latest", "it is the view of the current state of b.yaml"),
        ("cleantail.b_keyless", "it is the side table of records without a key of b.yaml"),
        ("cleantail.cleantail_evidence", "it is the evidence of all topics"),
        ("cleantail.cleantail_erasures", "it is the erasures of all topics"),
        ("cleantail.cleantail_erased_keys", "it is the erased keys of all topics"),
    ],
)
def test_no_topic_reads_what_cleantail_has_made(scanned, table, whose):
    found = scanned(a=table, b="")
    assert found["b"] == "" and "a.yaml:2: source.table.name" in found["a"] and whose in found["a"]


def test_no_new_topic_takes_a_table_that_another_one_reads(tmp_path):
    reader = Claim(tmp_path / "a.yaml", "cleantail.a", "sinks.orders")
    problem = problem_of_new(Claim(tmp_path / "b.yaml", "sinks.Orders"), [reader], Catalog())
    assert "a table that no topic reads: a.yaml does (source.table)" in str(problem)
    assert problem_of_new(Claim(tmp_path / "b.yaml", "sinks.other"), [reader], Catalog()) is None

"""Iceberg's catalog creates the tables of topics in one atomic step."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from py4j.protocol import Py4JJavaError

from cleantail.config.platform import Catalog
from cleantail.config.topic_table import COLUMNS, OFFSET, PARTITION, TOMBSTONE, table_properties
from cleantail.errors import TableError
from cleantail.lake import client_properties
from cleantail.retries import COMMITS
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.java_calls import each, texts
from spark_jobs.iceberg.tables import NewTable


@pytest.fixture
def new_table(workshop, table_of):
    """The table of a topic, which does not exist yet."""
    return lambda name, **described: table_of(workshop.topic(name, **described))


def test_a_new_table_has_its_columns_partitions_order_and_properties_from_its_first_metadata_on(new_table):
    table = new_table("made-at-once")
    assert not table.exists()
    table.ensure()
    iceberg = table.load()
    assert list(each(iceberg.operations().current().previousFiles())) == []
    assert [str(column.name()) for column in each(iceberg.schema().columns())] == [*COLUMNS, TOMBSTONE]
    assert str(iceberg.spec().toString()).count(PARTITION) == 1
    ((field, kind),) = [(f.sourceId(), str(f.transform())) for f in each(iceberg.spec().fields())]
    assert (iceberg.schema().findColumnName(field), kind) == (PARTITION, "identity")
    [order] = each(iceberg.sortOrder().fields())
    assert (iceberg.schema().findColumnName(order.sourceId()), str(order.direction())) == (OFFSET, "ASC")
    expected = table_properties(table.topic.topic, table.topic.config)
    assert int(iceberg.operations().current().formatVersion()) == int(expected.pop("format-version"))
    assert texts(iceberg.properties()) == expected


def test_an_existing_table_is_not_created_again(new_table):
    table = new_table("made-once")
    table.ensure()
    table.ensure()
    of_another = NewTable("a int, b int", "a", "b", {})
    assert table.in_catalog.create(of_another) is False  # another process, which checked before the creation
    assert str(table.load().schema().findColumnName(1)) == PARTITION


def test_a_creation_is_retried_if_the_catalog_wrongly_reports_that_the_table_exists(new_table, monkeypatch):
    table, answers = new_table("made-after-409"), [False]
    create = type(table.in_catalog).create
    monkeypatch.setattr(type(table.in_catalog), "create", lambda *args: answers.pop() if answers else create(*args))
    table.ensure()
    assert table.exists() and not answers


def test_a_namespace_is_made_with_its_first_table(new_table):
    table = new_table("made-first", table="made_namespace.made_first")
    assert not table.in_catalog.namespace_exists()
    table.ensure()
    assert table.in_catalog.namespace_exists() and table.exists()


def test_a_namespace_is_created_again_if_the_first_statement_did_not_create_it(new_table, spark, monkeypatch):
    table, sent = new_table("made-late", table="late_namespace.made_late"), []
    real = type(spark).sql

    def sql(session, statement):
        sent.append(statement)
        return real(session, statement) if len(sent) > 1 else None  # IF NOT EXISTS hides the refusal

    monkeypatch.setattr(type(spark), "sql", sql)
    table.ensure()
    assert table.in_catalog.namespace_exists()
    assert "CREATE NAMESPACE" in sent[0] and sent[0] == sent[1]


def test_a_view_of_the_topics_name_is_an_error(new_table, spark, monkeypatch):
    monkeypatch.setattr(commits, "COMMITS", replace(COMMITS, tries=2, pause_s=(0, 0)))
    table = new_table("made-as-view")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.name.rpartition('.')[0]}")
    spark.sql(f"CREATE VIEW {table.name} AS SELECT 1 AS one")
    with pytest.raises(TableError, match="made_as_view cannot be loaded"):
        table.ensure()


def test_java_does_not_wait_for_ever_for_a_database_that_never_answers(spark, workshop, monkeypatch):
    monkeypatch.setitem(client_properties._DATABASES, "postgres", ("1", ""))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/iceberg"
        catalog = Catalog(type="postgres", uri=uri, warehouse="s3://w")
        properties = client_properties.spark_catalog(workshop.platform().model_copy(update={"catalog": catalog}))
        with pytest.raises(Py4JJavaError, match="Failed to connect"):
            spark._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                "silent", properties | {"jdbc.user": "me"}, spark._jsc.hadoopConfiguration()
            )

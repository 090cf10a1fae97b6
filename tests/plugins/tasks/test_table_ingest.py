"""A topic whose source is a table, in Airflow: its task, its group, its page and its lineage, told from real tables that
PyIceberg has written."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from cleantail.codec import FORMAT
from cleantail.config.loading import find_topic, load_platform
from cleantail.config.topic import Topic
from cleantail.intake import Poll, feed_of
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.pending_input import planned_read
from cleantail.log.source_position import PROPERTY_SNAPSHOT_POSITION, SnapshotGap, SnapshotPosition
from cleantail.rounds.stations import Ingested, TopicOutcome
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.station_lineage import lineage_of_pack
from cleantail_airflow.tasks.topic_dag import IngestOperator
from tests.airflow_site import Site, StubbedJobs
from tests.cleantail.orders_table import OrdersTable
from tests.plugins.page.test_page_kafka import NOW_MS, shown
from tests.plugins.tasks.test_spark_operator import FakeTask

SOURCE = {"table": {"name": "sinks.orders", "columns": {"partition": "p", "offset": "o", "key": "k", "value": "value"}}}


@pytest.fixture
def operator(site: Site, jobs: StubbedJobs) -> IngestOperator:
    return IngestOperator(task_id="ingest", topic="orders", config_dir=str(site.config))


@pytest.fixture
def lake(site: Site) -> Any:
    """A sink's table, and the topic that reads it; gives what appends a record."""
    (site.config / "defaults.yaml").write_text(json.dumps({"platform": {"source_tables": ["cleantail.sinks.*"]}}))
    site.topic("orders", source=SOURCE)
    catalog = open_catalog(load_platform(site.config))
    catalog.create_namespace("sinks")
    schema = pa.schema([("p", pa.int32()), ("o", pa.int64()), ("k", pa.string()), ("value", pa.string())])
    table = catalog.create_table("sinks.orders", schema)

    def append(offset: int) -> Any:
        table.append(pa.Table.from_pylist([{"p": 0, "o": offset, "k": "a", "value": "x"}], schema))
        return table.refresh()

    return append


def read_up_to(site: Site, table: Any, *gaps: SnapshotGap) -> OrdersTable:
    """The topic's own table, which was read from the sink's five minutes ago."""
    snapshot = table.current_snapshot()
    position = SnapshotPosition(
        catalog="cleantail", table="sinks.orders", table_uuid=str(table.metadata.table_uuid), branch="main",
        snapshot_id=snapshot.snapshot_id, snapshot_ms=snapshot.timestamp_ms, next_offsets={0: 1}, read_id="r",
        read_at_ms=NOW_MS - 300_000, gaps=gaps, version=FORMAT,
    )  # fmt: skip
    made = OrdersTable(site.config.parent).append((0, 0, 1, b"a", b"x"))
    return made.set_properties(**{PROPERTY_SNAPSHOT_POSITION: position.as_json()})


def execute(operator: IngestOperator, **params: Any) -> Any:
    run = {"dag": SimpleNamespace(params={"rollback_to": None}), "dag_run": SimpleNamespace(conf={})}
    context: Any = {"ti": FakeTask(), "params": params, **run}
    return operator.execute(context)


def test_a_topic_that_reads_a_table_has_a_task_that_does_it_and_none_that_compares(site: Site, lake: Any) -> None:
    dag = site.dag("orders")
    assert dag.get_task("ingest").task_type == "IngestOperator"
    assert dag.get_task("evaluate").upstream_task_ids == {"ingest"} and not dag.has_task("reconcile")
    assert "sinks.orders" in dag.doc_md


def test_what_is_new_is_read_by_a_job_that_gets_no_login(
    operator: IngestOperator, site: Site, jobs: StubbedJobs, lake: Any
) -> None:
    read_up_to(site, lake(0))
    lake(1)
    execute(operator)
    (call,) = jobs.calls
    assert call["job"] == "ingest" and "--client-settings" not in call["arguments"]


def test_nothing_new_starts_no_spark(operator: IngestOperator, site: Site, jobs: StubbedJobs, lake: Any) -> None:
    read_up_to(site, lake(0))
    with pytest.raises(
        AirflowSkipException, match="the table already has all records of its source table cleantail.sinks.orders"
    ):
        execute(operator)
    with pytest.raises(AirflowSkipException, match="the run is a rollback"):
        execute(operator, rollback_to="last")
    assert jobs.calls == []


def test_an_obstacle_to_a_read_of_a_table_fails_without_retry_before_spark_is_started(
    operator: IngestOperator, site: Site, jobs: StubbedJobs, lake: Any
) -> None:
    read_up_to(site, lake(0))
    table = lake(1)
    table.delete("o = 0")
    with pytest.raises(AirflowFailException, match=r"snapshot \d+ of .* removed or changed records"):
        execute(operator)
    assert jobs.calls == []


def test_a_catalog_that_is_away_is_asked_again(operator: IngestOperator, site: Site, jobs: StubbedJobs) -> None:
    away = {
        "source_catalogs": {"away": {"type": "rest", "uri": "http://127.0.0.1:9"}},
        "source_tables": ["away.sinks.*"],
    }
    (site.config / "defaults.yaml").write_text(json.dumps({"platform": away}))
    site.topic("orders", source={"table": SOURCE["table"] | {"catalog": "away"}})
    with pytest.raises(AirflowException, match="catalog away .* cannot be reached") as caught:
        execute(operator)
    assert not isinstance(caught.value, AirflowFailException) and jobs.calls == []


def new_bytes(topic: Topic) -> int | None:
    return feed_of(topic).new_input(Poll(topic, client_settings, NOW_MS)).bytes


def test_a_group_knows_by_metadata_what_is_new(site: Site, lake: Any) -> None:
    table = lake(0)
    topic, _platform = find_topic("orders", site.config), load_platform(site.config)
    assert new_bytes(topic) == sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    own = read_up_to(site, table)
    assert new_bytes(own.topic) is None
    lake(1)
    assert (new_bytes(own.topic) or 0) > 0
    plan = planned_read(own.topic, NOW_MS).plan
    assert plan and plan.appends and plan.is_last


def test_the_page_says_what_is_read_and_up_to_where(site: Site, lake: Any) -> None:
    gap = SnapshotGap("change", "cleantail.sinks.orders", 7, "overwrite", 5, 6)
    table = lake(0)
    read_up_to(site, table, gap)
    text = shown(site)
    assert "The table sinks.orders, which Cleantail only reads. Read up to snapshot" in text
    assert f"snapshot {table.current_snapshot().snapshot_id}" in text and "Log ends: 1 of partition 0." in text
    assert "snapshot 7 of 1970-01-01" in text and "removed or changed records, which was skipped" in text


def test_lineage_names_the_source_table_and_the_snapshot_that_was_read(site: Site, lake: Any) -> None:
    table = lake(0)
    read_up_to(site, table)
    told = lineage_of_pack("ingest", find_topic("orders", site.config), TopicOutcome("orders", Ingested(1)), None)
    assert told
    [read], [written] = told.inputs, told.outputs
    assert read.dataset.name == table.location().removeprefix("file://").removeprefix("file:")
    assert read.snapshot_id == table.current_snapshot().snapshot_id
    assert (written.columns_from, written.copied_columns) == (read.dataset, ("value",))

"""What pages and metrics say of a topic whose source is a table: how many of its snapshots were not read yet."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cleantail.codec import FORMAT
from cleantail.log.source_position import PROPERTY_SNAPSHOT_POSITION, SnapshotPosition
from cleantail_airflow.page.application import TEMPLATES
from cleantail_airflow.page.metrics_endpoint import samples_of
from cleantail_airflow.page.page_content import PageContent
from cleantail_airflow.page.page_values import by_name
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable
from tests.plugins.page.test_page_kafka import text_of

ROWS = pa.table({"p": [0], "o": [0], "ms": [1], "k": ["a"], "v": ["1"]})
SOURCE = {"name": "sinks.orders", "columns": {"partition": "p", "offset": "o", "timestamp": "ms", "key": "k"}}


@pytest.fixture
def sink(site: Site, tmp_path: Path) -> Any:
    """A sink's table with three snapshots, of which the topic has read the first."""
    (site.config / "defaults.yaml").write_text(json.dumps({"platform": {"source_tables": ["cleantail.sinks.*"]}}))
    site.topic("orders", source={"table": SOURCE})
    made = OrdersTable(tmp_path).append((0, 0, 1, b"a", b"1"))
    made.catalog.create_namespace("sinks")
    sink = made.catalog.create_table("sinks.orders", ROWS.schema)
    for _ in range(3):
        sink.append(ROWS)
    first = sink.metadata.snapshots[0]
    read = (str(sink.metadata.table_uuid), "main", first.snapshot_id, first.timestamp_ms, {0: 1}, "r", 5)
    position = SnapshotPosition("cleantail", "sinks.orders", *read, version=FORMAT)
    made.set_properties(**{PROPERTY_SNAPSHOT_POSITION: position.as_json()})
    return sink


def test_list_page_and_metrics_say_how_many_snapshots_a_table_is_behind(site: Site, sink: Any) -> None:
    content, second_ms = PageContent(site.config), sink.metadata.snapshots[1].timestamp_ms
    now_ms = second_ms + 300_000
    page = content.one_topic("orders", now_ms)
    values = by_name(page) | {"released": None, "may_release": False, "root": "", "ui": "", "dag_id_of": str}
    text = text_of(TEMPLATES.get_template("topic.html").render(**values))
    assert "2 snapshots behind, for 5 min: the next run reads them." in text
    assert "The next run first reads 2 snapshots of its source." in text
    [row] = until_read(content, now_ms)
    assert (row.behind, row.source_lag.unread_since_ms, row.source_lag.problem) == (2, second_ms, "")
    assert row.note.endswith("; 2 snapshots of its source not read yet")
    samples = {s.metric.exposed: s.value for s in samples_of(content, ["orders"], now_ms, {}, {})}
    assert (samples["cleantail_source_lag_snapshots"], samples["cleantail_source_lag_secs"]) == (2, 300)
    assert "cleantail_source_lag_offsets" not in samples


def until_read(content: PageContent, now_ms: int) -> list[Any]:
    """The rows of the list, once the table's metadata was read."""
    for _ in range(100):
        rows = content.all_topics(["orders"], now_ms, {}).listing.rows
        if rows[0].behind is not None:
            return list(rows)
        time.sleep(0.1)
    raise AssertionError(rows)


def test_a_source_table_that_is_gone_is_an_unknown_lag_and_hides_nothing(site: Site, sink: Any) -> None:
    sink.catalog.drop_table("sinks.orders")
    page = PageContent(site.config).one_topic("orders", 1_700_000_000_000)
    values = by_name(page) | {"released": None, "may_release": False, "root": "", "ui": "", "dag_id_of": str}
    text = text_of(TEMPLATES.get_template("topic.html").render(**values))
    assert "The lag is unknown: table cleantail.sinks.orders of source.table does not exist." in text
    assert "Partition 0" in text

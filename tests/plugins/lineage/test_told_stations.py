"""What the tasks of a topic's DAG, and the stations of a group's pack, tell of one topic, from a real table that PyIceberg has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cleantail.lineage import StationLineage
from cleantail.rounds.checked_round import RoundResult
from cleantail.rounds.job_report import EndedJob
from cleantail.rounds.stations import Ingested, TopicOutcome
from cleantail_airflow.station_lineage import (
    lineage_of_approval,
    lineage_of_evaluation,
    lineage_of_job,
    lineage_of_pack,
)
from tests.airflow_site import Site
from tests.cleantail.orders_table import OrdersTable

SNAPSHOT = 77


@pytest.fixture
def orders(site: Site) -> OrdersTable:
    site.topic("orders", source={"path": "landing/*.jsonl"})
    return OrdersTable(site.config.parent).append((0, 0, 1000, b"k", b"v"))


@pytest.fixture
def outcome() -> TopicOutcome:
    result = RoundResult(round="r1", published=(0,), snapshot_id=SNAPSHOT)
    return TopicOutcome("orders", ingested=Ingested(5), compacted=result)


def test_an_ingestion_of_a_pack_reads_the_folder_of_its_source(orders: OrdersTable, outcome: TopicOutcome) -> None:
    told = lineage_of_pack("ingest", orders.topic, outcome, None)
    assert told
    assert [d.dataset.name for d in told.inputs] == [str(Path(orders.platform.home) / "landing")]
    newest = orders.table.refresh().current_snapshot()
    assert newest and [(d.snapshot_id, d.records) for d in told.outputs] == [(newest.snapshot_id, 5)]


@pytest.mark.parametrize(
    ("station", "written"), [("publish", [SNAPSHOT]), ("compact", [None]), ("check_quality", [])], ids=str
)
def test_a_station_of_a_pack_tells_the_snapshot_that_its_round_has_made(
    orders: OrdersTable, outcome: TopicOutcome, station: str, written: list[int | None]
) -> None:
    told = lineage_of_pack(station, orders.topic, outcome, None)
    assert told and [d.snapshot_id for d in told.outputs] == written
    assert [d.dataset.name for d in told.inputs] == [orders.table.location().removeprefix("file:")]


def test_evaluate_and_approve_report_the_snapshots_that_they_read(orders: OrdersTable) -> None:
    looked, shown = lineage_of_evaluation(orders.topic), lineage_of_approval(orders.topic, [5, 6])
    newest = orders.table.refresh().current_snapshot()
    assert looked and newest and [d.snapshot_id for d in looked.inputs] == [newest.snapshot_id]
    assert shown and [d.snapshot_id for d in shown.inputs] == [5, 6]
    assert not (looked.outputs or shown.outputs)


def told(orders: OrdersTable, job: str, **document: Any) -> StationLineage:
    """What the task of a topic's own DAG tells of the document that its job has left."""
    lineage = lineage_of_job(orders.topic, EndedJob(job, document))
    assert lineage
    return lineage


def test_an_ingestion_reads_the_files_that_were_new_and_says_how_many_records_it_has_appended(
    orders: OrdersTable,
) -> None:
    files = [{"file": f"/landing/{name}", "sha256": "0" * 64, "skipped": name == "old"} for name in ("old", "new")]
    lineage = told(orders, "ingest", files=files, records=5)
    assert [d.dataset.name for d in lineage.inputs] == ["/landing/new"]
    assert [d.records for d in lineage.outputs] == [5]


@pytest.mark.parametrize(
    "document",
    [{}, {"ok": False, "error": "no table"}, {"files": [], "records": 0}, {"ok": True}],
    ids=["killed", "failed", "nothing new", "of a version that told less"],
)
def test_an_ingestion_that_has_appended_nothing_has_written_nothing(
    orders: OrdersTable, document: dict[str, Any]
) -> None:
    assert told(orders, "ingest", **document).outputs == ()

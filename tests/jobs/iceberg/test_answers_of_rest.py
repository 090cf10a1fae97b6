"""A REST catalog, or a gateway before it, answers 409, 500, 503 or nothing to each commit, takes it or does not, or
gets it twice: each command ends as if every answer had been good."""

from __future__ import annotations

import json

import pytest

from tests.catalog_door import FAULTS, Fault
from tests.jobs.catalog_sites import site
from tests.jobs.iceberg.stations import STATIONS, end

pytestmark = pytest.mark.integration

CHEAP = {
    "no answer after": set(STATIONS) - {"a first read of a table", "a round that waits"},
    "delivered twice": {"a compaction", "a rollback", "an ingestion taken back", "a reclaim", "a first ingestion"},
    "409 after": {"a compaction", "a rollback", "a mend", "a reader that goes"},
    "500 after": {"a read of a table", "an adoption"},
    "503 after": {"a compaction", "a reader"},
    "500 before": {"a compaction", "a first ingestion"},
}
"""Fault -> stations that are tried with it in every run. The other cases are deep."""
CASES = [
    pytest.param(
        station, fault, id=f"{station}: {fault}", marks=() if station in CHEAP.get(fault, ()) else pytest.mark.deep
    )
    for station in STATIONS
    for fault in FAULTS
]


@pytest.fixture(scope="module")
def catalog():
    with site("rest") as started:
        yield started


@pytest.fixture
def shop(catalog, workshop, monkeypatch):
    for name, value in catalog.env.items():
        monkeypatch.setenv(name, value)
    platform = {"allow_clock": True, "spark": {"master": "local[2]"}, "catalog": {"name": "faulty", **catalog.catalog}}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": platform}))
    return workshop


@pytest.fixture(scope="module")
def good():
    """Station -> how it ends where every answer is right."""
    return {}


@pytest.mark.parametrize(("station", "fault"), CASES)
def test_a_command_ends_the_same_whatever_a_rest_catalog_answers(shop, catalog, table_of, station, fault, good):
    name = station.replace(" ", "-")
    if station not in good:
        topic = f"rest-{name}"
        STATIONS[station].find(shop, topic)
        done = STATIONS[station].run(shop, topic)
        good[station] = end(shop, table_of(topic), topic, done)
    topic = f"rest-{name}-{fault.replace(' ', '-')}"
    STATIONS[station].find(shop, topic)
    catalog.door.fault = Fault(*FAULTS[fault])
    try:
        done = STATIONS[station].run(shop, topic)
        wrong = catalog.door.fault.wrong
    finally:
        catalog.door.fault = None
    assert wrong, "no commit went wrong"
    assert end(shop, table_of(topic), topic, done) == good[station], (done, wrong)

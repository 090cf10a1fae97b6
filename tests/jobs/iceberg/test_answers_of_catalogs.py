"""A catalog takes a commit and answers 409, 500, or nothing: each command ends as if the answer had been good."""

from __future__ import annotations

import pytest

from tests.jobs.iceberg.answers import FAULTS
from tests.jobs.iceberg.stations import STATIONS, end

CHEAP = {
    "409 after": {"a reclaim"},
    "unknown after": {"records without a key"},
}
"""Fault -> stations that are tried with it in every run, of those that test_answers_of_rest.py leaves out. The other
cases are deep: their commits are those of a station that is tried."""
CASES = [
    pytest.param(
        station, fault, id=f"{station}: {fault}", marks=() if station in CHEAP.get(fault, ()) else pytest.mark.deep
    )
    for station in STATIONS
    for fault in FAULTS
]


@pytest.fixture(scope="session")
def good():
    """Station -> how it ends where every answer is right."""
    return {}


@pytest.mark.parametrize(("station", "fault"), CASES)
def test_a_faulty_answer_of_a_sql_catalog_does_not_change_the_result_of_a_command(
    workshop, table_of, spark, station, fault, good
):
    name = station.replace(" ", "-")
    if station not in good:
        topic = f"answered-{name}"
        STATIONS[station].find(workshop, topic)
        done = STATIONS[station].run(workshop, topic)
        good[station] = end(workshop, table_of(topic), topic, done)
    topic = f"answered-{name}-{fault.replace(' ', '-')}"
    STATIONS[station].find(workshop, topic)
    with FAULTS[fault](spark) as faults:
        done = STATIONS[station].run(workshop, topic)
    assert faults, "no commit went wrong"
    assert end(workshop, table_of(topic), topic, done) == good[station], done

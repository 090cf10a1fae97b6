"""A catalog takes a commit and answers 409, 500, or nothing: each command ends as if the answer had been good."""

from __future__ import annotations

import pytest

from tests.jobs.iceberg.answers import FAULTS
from tests.jobs.iceberg.stations import STATIONS, end

CHEAP = ["409 after", "unknown after"]


@pytest.fixture(scope="session")
def good():
    """Station -> how it ends where every answer is right."""
    return {}


@pytest.mark.parametrize("fault", [pytest.param(f, marks=() if f in CHEAP else pytest.mark.deep) for f in FAULTS])
@pytest.mark.parametrize("station", STATIONS)
def test_a_command_ends_the_same_whatever_a_sql_catalog_answers(workshop, table_of, spark, station, fault, good):
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

"""What a run's task sends of the run before it: by real runs, as Airflow's own task object knows them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_site import Site
from tests.statsd_sink import UdpSink

pytestmark = pytest.mark.airflow
NAME = "time-since-last-run-ms"
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
Sent = Callable[..., list[int]]


class Warnings(logging.Handler):
    """What run_metrics could not send, which it says and lets nothing fail for."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def warned() -> Iterator[list[str]]:
    logger, handler = logging.getLogger("cleantail_airflow.outcomes.run_metrics"), Warnings()
    logger.addHandler(handler)
    yield handler.texts
    logger.removeHandler(handler)


@pytest.fixture
def sent(site: Site, airflow_db: Path, statsd: UdpSink, warned: list[str]) -> Sent:
    """Runs the topic's DAG, which has no table yet, on the given date; gives what evaluate has sent, if anything."""

    def run(topic: str, logical_date: datetime | None) -> list[int]:
        site.topic(topic)
        statsd.found.clear()
        finished = site.dag(topic).test(logical_date=logical_date)
        assert str(finished.state) == "success"
        assert finished.logical_date == logical_date
        lines = dict(line.split(":") for line in statsd.cleantail())
        assert f"max-dirty-percent.{topic}" in lines  # what a task sends arrives here
        assert warned == []
        return [int(float(value.removesuffix("|g"))) for name, value in lines.items() if name == f"{NAME}.{topic}"]

    return run


def runs(topic: str) -> list[Any]:
    """The topic's runs, by their dates."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(DagRun).filter_by(dag_id=topic).order_by(DagRun.logical_date).all()
        session.expunge_all()
    return found


def test_a_run_says_how_long_before_it_the_last_one_began_and_the_first_says_nothing(sent: Sent) -> None:
    assert sent("since-last", MIDNIGHT) == []
    [found] = sent("since-last", MIDNIGHT + timedelta(hours=1))
    first, second = runs("since-last")
    assert found == int((second.start_date - first.start_date).total_seconds() * 1000) > 0


def test_a_queued_run_does_not_count_as_the_last_run(sent: Sent) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        queued = {"run_id": "queued", "run_type": "manual", "state": "queued", "run_after": MIDNIGHT}
        session.add(DagRun(dag_id="since-queued", logical_date=MIDNIGHT, start_date=None, **queued))
    assert sent("since-queued", MIDNIGHT + timedelta(hours=1)) == []
    assert [run.start_date is None for run in runs("since-queued")] == [True, False]


def test_a_run_without_a_logical_date_knows_no_last_one(sent: Sent) -> None:
    sent("since-asset", MIDNIGHT)
    assert sent("since-asset", None) == []

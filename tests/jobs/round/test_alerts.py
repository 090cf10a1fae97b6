"""What is wrong with a real table is told to a real web server by the DAG's own tasks: each event once, and its end.

Of `make test-deep`. In `make test`, tests/dags/test_whole_run.py has an alert of a real run, tests/dags/test_dag_runs.py
runs that tell an incident once and its end, and tests/cleantail/watch/test_alarms.py each event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.alert_channels import Event
from cleantail.lake.evaluate import evaluate_topic
from cleantail.rounds.approval import Rejection
from spark_jobs import run_station
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import check_round
from spark_jobs.round.make import compact_unit
from tests.airflow_environment import airflow_db  # noqa: F401  # first: nothing may import airflow before it
from tests.airflow_site import Site
from tests.alert_sinks import Hook, hook  # noqa: F401
from tests.jobs.conftest import Workshop
from tests.jobs.round.test_held_rounds import ONE_KEY
from tests.jobs.round.test_rounds import NOW, record
from tests.quick_airflow_api import build_what_is_asked_for

pytestmark = [pytest.mark.deep, pytest.mark.airflow, pytest.mark.spark, pytest.mark.gx]
NO_RECLAIM = {"cleantail.reclaim.deleted.ratio": 1.0, "cleantail.snapshot.retention.ms": 1 << 50}
"""It has nothing to do with alerts, and takes longest."""


class Operations:
    """The topic's DAG on the workshop's tables, its jobs in this process; each event has a web hook of its own."""

    def __init__(self, workshop: Workshop, hook: Hook, home: Path) -> None:  # noqa: F811
        self.workshop, self.hook, self.site = workshop, hook, Site(workshop.config, home)
        self.runs: list[str] = []

    def topic(self, name: str, config: dict[str, Any], *events: Event, **more: Any) -> str:
        hooks = [
            {"type": "webhook", "conn_id": "cleantail_ops_hook", "endpoint": e.value, "events": [e.value]}
            for e in events
        ]
        return self.workshop.topic(name, NO_RECLAIM | config, alerts=hooks, **more)

    def ingest(self, topic: str, *records: dict[str, Any]) -> None:
        name = f"{topic}-{records[0]['offset']}.jsonl"
        self.workshop.ok("ingest", topic, "--file", self.workshop.file(name, records))

    def run(self, topic: str, now_ms: int) -> None:
        self.runs.append(self.site.dag(topic).test(run_conf={"now_ms": now_ms}).run_id)

    @property
    def told(self) -> dict[str, list[tuple[int, str]]]:
        """Event -> (number of the run, state) of each notification."""
        found: dict[str, list[tuple[int, str]]] = {}
        for path, body in self.hook.posts:
            assert path == f"/{body['event']}"
            found.setdefault(body["event"], []).append((self.runs.index(body["run_id"]) + 1, body["state"]))
        return found


@pytest.fixture
def operations(
    workshop: Workshop,
    home: Path,
    hook: Hook,  # noqa: F811
    airflow_db: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Operations:
    """Instead of a spark-submit for each task their jobs run in the session that is there."""
    from airflow.exceptions import AirflowException
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    def in_this_process(self: Any, _: Any) -> None:
        if code := run_station.main(self.application_args):
            raise AirflowException(f"Error code is: {code}")

    build_what_is_asked_for()
    monkeypatch.setattr(SparkSubmitOperator, "execute", in_this_process)
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(workshop.config))
    (workshop.config / "defaults.yaml").write_text("platform: {allow_clock: true}\n")  # NOW is ahead of the clock
    connection = {"conn_type": "http", "host": "http://127.0.0.1", "port": hook.port}
    monkeypatch.setenv("AIRFLOW_CONN_CLEANTAIL_OPS_HOOK", json.dumps(connection))
    return Operations(workshop, hook, home)


def test_each_event_in_a_table_is_reported_once_at_its_begin_and_once_at_its_end(operations: Operations) -> None:
    """A red check holds the log back: it misses its deadline and its tombstone stays. Once it may be published, the
    tombstone goes before the reader has read it, and that lasts until the reader has."""
    workshop, events = operations.workshop, (Event.QUARANTINED, Event.DEADLINE_MISSED, Event.ERASURE, Event.HOLD_CAP)
    config = {"max.compaction.lag.ms": 1_000, "cleantail.erasure.grace.ms": 2_000, "cleantail.readers.hold.cap.ms": 500}
    topic = operations.topic("told", config, *events, checks=[ONE_KEY])
    operations.ingest(topic, record(0, "a", "x"), record(1, "a", None))
    workshop.ok("reader", "set", topic, "slow", "--partition", 0, "--offset", 1)
    workshop.ok("compact", topic, "--now", NOW)  # the tombstone is due a second later, half a second of hold after that
    operations.ingest(topic, record(2, "b", "y", ts=NOW))
    assert workshop.run("compact", topic, "--now", NOW + 500, "--force")[0] == 1  # the next try is 15 s later
    for n in (1, 2):
        operations.run(topic, NOW + 10_000 + n)
    assert operations.told == {e.value: [(1, "open")] for e in events if e is not Event.HOLD_CAP}

    operations.topic("told", config, *events)  # the checks no longer concern what was wrong
    operations.run(topic, NOW + 20_000)
    over = {e.value: [(1, "open"), (3, "over")] for e in events if e is not Event.HOLD_CAP}
    assert operations.told == over | {"hold_cap_reached": [(3, "open")]}

    workshop.ok("reader", "set", topic, "slow", "--partition", 0, "--offset", 3)
    operations.run(topic, NOW + 20_002)
    assert operations.told == over | {"hold_cap_reached": [(3, "open"), (4, "over")]}
    texts = {body["event"]: body["reason"] for _, body in operations.hook.posts if body["state"] == "open"}
    assert "reader slow is at offset 1 of partition 0, and tombstones up to 1 were deleted" in texts["hold_cap_reached"]
    assert "partition 0 is blocked since 2027-01-15 08:00:00 UTC, tried again by" in texts["partition_quarantined"]
    assert "up to 1 tombstone is still there, due since 2027-01-15 08:00:01 UTC" in texts["erasure_overdue"]
    assert "partition 0 is 9 s past max.compaction.lag.ms" in texts["deadline_missed"]


def test_a_missed_deadline_is_reported_as_open_and_over_by_the_run_that_cleans(
    operations: Operations,
) -> None:
    """Without a schedule a log is late once it has been overdue for another max.compaction.lag.ms."""
    topic = operations.topic("told-late", {"max.compaction.lag.ms": 1_000}, Event.DEADLINE_MISSED, schedule=None)
    operations.ingest(topic, record(0, "a", "x", ts=NOW), record(1, "a", "y", ts=NOW))
    operations.run(topic, NOW + 2_001)
    assert operations.told == {"deadline_missed": [(1, "open"), (1, "over")]}
    assert [r["offset"] for r in operations.workshop.read(topic)] == [1]


def test_a_failed_check_after_a_rejection_is_reported_and_the_partition_never_as_released(
    operations: Operations, spark: Any
) -> None:
    """test_a_failed_check_after_a_rejection_is_notified_and_the_partition_not_reported_as_released in
    test_notifications.py and test_a_failed_check_after_a_rejection_is_a_new_occurrence in test_alert_task.py hold the
    rule; here with real runs."""
    workshop, events = operations.workshop, (Event.CHECK_FAILED, Event.QUARANTINED)
    topic = operations.topic("told-no", {"cleantail.approval.pause.ms": 1_000}, publish="approve")
    operations.ingest(topic, record(0, "a", "x"), record(1, "b", "y"))
    table, _platform = TopicTable.of(spark, workshop.find(topic)), workshop.platform()
    plan = evaluate_topic(table.topic, now_ms=NOW)
    done = [compact_unit(table, unit) for unit in plan.units]
    set_aside(table, check_round(table, plan.round, done), Rejection("anna", NOW))
    operations.topic("told-no", {}, *events, checks=[ONE_KEY])
    operations.run(topic, NOW + 500)
    operations.run(topic, NOW + 1_000)
    assert operations.told == {
        "partition_quarantined": [(1, "open"), (2, "open")],  # blocked all the while, for another reason now
        "check_failed": [(2, "open")],
    }
    [red] = [body["text"] for _, body in operations.hook.posts if body["event"] == "check_failed"]
    since, retry = "blocked since 2027-01-15 08:00:01 UTC", "the first run after 2027-01-15 08:00:16 UTC"
    assert since in red and retry in red


def test_a_released_partition_that_fails_again_is_reported_as_over_once_it_passes(operations: Operations) -> None:
    """test_a_released_partition_that_fails_again_is_not_reported_as_over_before_it_passes in test_notifications.py
    holds the rule; here the task that sees the red check tells it, and the last task finds the first quarantine gone."""
    topic = operations.topic("told-again", {}, Event.CHECK_FAILED, checks=[ONE_KEY])
    operations.ingest(topic, record(0, "a", "x"), record(1, "b", "y"))
    operations.run(topic, NOW)
    operations.workshop.ok("release", topic, 0)
    operations.run(topic, NOW + 1_000)
    assert operations.told == {"check_failed": [(1, "open"), (2, "open")]}
    operations.topic("told-again", {}, Event.CHECK_FAILED)
    operations.run(topic, NOW + 60_000)
    assert operations.told == {"check_failed": [(1, "open"), (2, "open"), (3, "over")]}

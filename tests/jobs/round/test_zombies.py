"""A driver that was given up, and goes on: a worker of Airflow has died, Spark has not, and the next try is there.

The first driver is held just before it commits, as a stalled machine would hold it; the second goes all its way; then
the first goes on. What the first one holds by a lock of its machine holds nobody on another.
"""

from __future__ import annotations

import contextlib
import threading

import pytest

from cleantail.errors import ConflictError
from cleantail.lake.evaluate import evaluate_topic
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.round import publish as publishing
from spark_jobs.round.check import check_round
from spark_jobs.round.intake import ingest as ingesting
from spark_jobs.round.make import compact_unit
from spark_jobs.round.publish import publish_round
from tests.jobs.round.test_rounds import NOW, offsets, record


@pytest.fixture
def held(monkeypatch):
    """Holds the first call of a module's function until the test lets it go on: start(work), then go_on()."""

    class Held:
        def __init__(self):
            self.reached, self.free = threading.Event(), threading.Event()
            self.outcome = []

        def hold(self, module, name):
            real, first = getattr(module, name), threading.Lock()

            def waits(*arguments, **named):
                if first.acquire(blocking=False):  # the zombie
                    self.reached.set()
                    assert self.free.wait(120)
                return real(*arguments, **named)

            monkeypatch.setattr(module, name, waits)

        def start(self, work):
            def run():
                try:
                    self.outcome.append(work())
                except Exception as e:
                    self.outcome.append(e)

            self.thread = threading.Thread(target=run)
            self.thread.start()
            assert self.reached.wait(120), self.outcome

        def go_on(self):
            self.free.set()
            self.thread.join(120)
            (outcome,) = self.outcome
            return outcome

    return Held()


def checked(workshop, table):
    plan = evaluate_topic(table.topic, now_ms=NOW)
    units = [compact_unit(table, unit) for unit in plan.units]
    return check_round(table, plan.round, units)


@pytest.mark.parametrize(
    "keys",
    [pytest.param(["a", "b", "a", "b"], marks=pytest.mark.deep), ["a", "b", "c", "d"]],
    ids=["it removes", "it removes nothing"],
)
def test_a_round_that_two_drivers_publish_is_published_once(workshop, table_of, held, keys):
    topic = workshop.topic(f"zombie-{len(set(keys))}")
    lines = [record(o, k, "x") for o, k in enumerate(keys)]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    table, _platform = table_of(topic), workshop.platform()
    found = checked(workshop, table)
    held.hold(publishing, "_commit")
    held.start(lambda: publish_round(table, found))
    second = publish_round(table, found)
    first = held.go_on()
    assert not isinstance(first, Exception), first
    assert first.snapshot_id == second.snapshot_id
    rounds = [c for c in history(table.load()) if c.summary.get("cleantail.round") == found.round]
    assert [c.snapshot_id for c in rounds] == [second.snapshot_id]
    assert len([e for e in workshop.evidence(topic) if e["outcome"] == "published"]) == 1
    assert sorted(r["key"] for r in workshop.read(topic)) == sorted(set(keys))


def test_a_round_that_goes_on_after_a_later_one_changes_nothing(workshop, table_of, held):
    """The states that it would write are older than those that the table has."""
    topic = workshop.topic("zombie-late")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(o, "a", "x") for o in range(3)]))
    table, _platform = table_of(topic), workshop.platform()
    found = checked(workshop, table)
    held.hold(publishing, "_commit")
    held.start(lambda: publish_round(table, found))
    workshop.ok("ingest", topic, "--file", workshop.file("b.jsonl", [record(o, "a", "y") for o in range(3, 6)]))
    workshop.ok("compact", topic, "--now", NOW + 1)
    state = table.load().properties().get("cleantail.partition.0")
    assert isinstance(held.go_on(), ConflictError)
    assert offsets(workshop.read(topic)) == [5]
    assert table.load().properties().get("cleantail.partition.0") == state


def test_files_that_two_drivers_ingest_are_there_once(workshop, held, monkeypatch, spark):
    topic = workshop.topic("zombie-ingestion")
    file = workshop.file("a.jsonl", [record(o, f"k{o}", "x") for o in range(5)])
    monkeypatch.setattr(ingesting, "exclusive", lambda *_: contextlib.nullcontext())  # each on a machine of its own
    held.hold(ingesting, "append_files")
    work = (workshop.find(topic), [file], "text", lambda *_: None)
    held.start(lambda: ingesting.ingest_files(spark, *work))
    ingesting.ingest_files(spark, *work)
    first = held.go_on()
    assert isinstance(first, ConflictError) and "another ingestion" in str(first)
    assert offsets(workshop.read(topic)) == list(range(5))

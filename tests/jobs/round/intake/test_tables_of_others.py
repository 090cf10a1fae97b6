"""A failed ingestion leaves what another process has made meanwhile: the table and all that is in it."""

from __future__ import annotations

import contextlib

import pytest

from cleantail.errors import SourceError
from spark_jobs.round.intake import ingest as files
from spark_jobs.round.intake import kafka_reading
from spark_jobs.round.intake import source_table_reading as table_reading
from spark_jobs.round.intake.kafka_reading import read_source
from tests.jobs.round.test_rounds import offsets, record


@pytest.fixture
def overtaken(workshop, monkeypatch):
    """Makes a step of an ingestion fail after a machine with locks of its own has ingested a file into the topic."""

    def make(place, name, topic):
        real, machines = getattr(place, name), []

        def step(*arguments, **named):
            if machines:  # the other machine
                return real(*arguments, **named)
            machines.append(1)
            lines = [record(o, f"k{o}", "x") for o in range(3)]
            workshop.ok("ingest", topic, "--file", workshop.file("backfill.jsonl", lines))
            raise SourceError("the brokers do not answer; nothing was appended")

        monkeypatch.setattr(files, "exclusive", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(place, name, step)

    return make


class Silent:
    """A source whose position is known, and no more."""

    progress_text = "reading the position"

    def position(self):
        return self

    def describe(self, _):
        return self

    def plan(self, *_):
        return self


def test_records_that_another_machine_brings_while_a_first_read_of_kafka_fails_stay(workshop, spark, overtaken):
    source = {"kafka": {"bootstrap.servers": "127.0.0.1:1", "topic": "t"}}
    topic = workshop.topic("stays-kafka", source=source)
    overtaken(kafka_reading.TopicRead, "run", topic)
    with pytest.raises(SourceError, match="do not answer"):
        read_source(spark, workshop.find(topic), Silent(), 0, lambda *_: None)
    assert offsets(workshop.read(topic)) == [0, 1, 2]


def test_records_that_another_machine_brings_while_a_first_read_of_a_table_fails_stay(
    workshop, sink, overtaken, reading, monkeypatch
):
    """The other machine has the topic as it was before it read a table."""
    lake = sink("stays-source")
    lake.append((0, 9, 5, "a", "x"))
    topic = reading("stays-table", lake)
    monkeypatch.setattr(files, "require_below_position", lambda *_: None)
    overtaken(table_reading, "write_fresh", topic)
    assert workshop.run("ingest", topic)[0] == 2
    assert offsets(workshop.read(topic)) == [0, 1, 2]


def test_records_that_another_machine_brings_while_a_first_file_is_refused_stay(workshop, overtaken):
    topic = workshop.topic("stays-files")
    overtaken(files, "_new_records", topic)
    code, _, err = workshop.run("ingest", topic, "--file", workshop.file("a.jsonl", [record(0, "k", "y")]))
    assert code == 2 and "do not answer" in err
    assert offsets(workshop.read(topic)) == [0, 1, 2]

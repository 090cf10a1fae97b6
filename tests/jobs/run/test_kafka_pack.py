"""Topics in Kafka in a pack: read, compacted and published, with a login from either place."""

from __future__ import annotations

import json
import time

import pytest

from cleantail.errors import SourceError
from cleantail.kafka import read_plan
from cleantail.rounds.pack_results import PackRequest
from differential.broker import free_port
from spark_jobs.round.intake.kafka_reading import BrokerLogs, read_topic
from spark_jobs.run.pack_run import run_pack

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "handed_on", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["handed on", "of the environment"]
)
def test_what_is_new_in_kafka_is_read_and_compacted(kafka, workshop, spark, landed, handed_on):
    topic = workshop.topic(f"packed-kafka-{handed_on}".lower(), source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"a", b"x"), (b"a", b"y"), (b"b", b"z")])
    clients = {topic: {"bootstrap.servers": kafka.address}} if handed_on else {}
    later = int(time.time() * 1000) + 60_000
    [outcome] = run_pack(spark, workshop.platform(), PackRequest((topic,), later), clients).topics
    assert (outcome.ok, outcome.error, outcome.published) == (True, "", (0,))
    assert outcome.ingested is not None and outcome.ingested.records == 3
    assert [(record.offset, record.key) for record in landed(topic)] == [(1, b"a"), (2, b"b")]


def test_brokers_that_died_after_the_evaluation_are_waited_for_once(workshop, spark):
    away = {"kafka": {"bootstrap.servers": f"127.0.0.1:{free_port()}", "stall.timeout.ms": 1000}}
    topics = tuple(workshop.topic(f"packed-away-{n}", source=away) for n in range(4))
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[1]"}}}))
    outcomes = run_pack(spark, workshop.platform(), PackRequest(topics, int(time.time() * 1000))).topics
    assert {(outcome.ok, outcome.station) for outcome in outcomes} == {(False, "ingest")}
    first, *others = [outcome.error for outcome in outcomes]
    assert f"do not answer for topic {topics[0]}" in first
    assert ["did not answer within the last minute" in error for error in others] == [True] * 3


def test_a_topic_that_takes_its_brokers_too_long_is_left_to_the_next_run_and_holds_up_no_other(
    kafka, workshop, spark, landed, monkeypatch
):
    """By portions of one record, with a pause after each: what was appended before the limit stays."""
    from spark_jobs.round.intake import kafka_reading

    text = {"platform": {"limits": {"ingest.max.ms": 5000}, "spark": {"master": "local[1]"}}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(text))
    slow, quick = (workshop.topic(f"packed-{name}", source=kafka.source()) for name in ("slow", "quick"))
    for topic, count in ((slow, 3), (quick, 1)):
        kafka.create(topic)
        kafka.send(topic, [(b"a", b"%d" % n) for n in range(count)])
    monkeypatch.setattr(kafka_reading, "PORTION_OFFSETS", 1)
    monkeypatch.setattr(kafka_reading, "next_budget", lambda *_: time.sleep(5.1) or 1)
    request = PackRequest((slow, quick), int(time.time() * 1000) + 60_000)
    first, second = run_pack(spark, workshop.platform(), request).topics
    assert (first.ok, first.station, first.may_retry) == (False, "ingest", False), first.error
    assert "not read to its end within 5000 ms: appended records stay" in first.error
    assert "ingest.max.ms" in first.error and len(landed(slow)) == 1
    assert (second.error, second.ingested is not None and second.ingested.records) == ("", 1)


@pytest.fixture
def limited(workshop):
    """limited(ms): sets how long a topic may be read."""

    def limit(within_ms):
        text = {"platform": {"limits": {"ingest.max.ms": within_ms}, "spark": {"master": "local[1]"}}}
        (workshop.config / "defaults.yaml").write_text(json.dumps(text))

    return limit


@pytest.mark.deep
def test_tasks_that_wait_for_brokers_one_after_the_other_share_the_time_of_their_topic(
    kafka, workshop, spark, landed, limited, monkeypatch
):
    """Four tasks on two cores: each waits for less than the limit, and all of them for more. The test above holds the
    rule for portions that take too long."""
    limited(5000)
    slow, quick = (workshop.topic(f"packed-waves-{name}", source=kafka.source()) for name in ("slow", "quick"))
    kafka.create(slow, 4)
    kafka.create(quick)
    for partition in range(4):
        kafka.send(slow, [(b"a", b"x")] * 2, partition=partition)
    kafka.send(quick, [(b"a", b"x")])
    real = BrokerLogs.open_reader

    def slowly(logs):
        open_reader, pause_s = real(logs), 4 if logs.topic.topic == slow else 0
        return lambda: (time.sleep(pause_s), open_reader())[1]

    monkeypatch.setattr(BrokerLogs, "open_reader", slowly)
    monkeypatch.setattr(read_plan, "RANGE_OFFSETS_MIN", 1)
    request = PackRequest((slow, quick), int(time.time() * 1000) + 60_000)
    first, second = run_pack(spark, workshop.platform(), request).topics
    assert (first.ok, first.station, first.may_retry) == (False, "ingest", False), first
    assert "within 5000 ms, and the others of its pack wait" in first.error and "ingest.max.ms" in first.error
    assert landed(slow) == []
    assert (second.error, second.ingested is not None and second.ingested.records) == ("", 1)


def test_brokers_that_stop_while_they_are_read_cost_their_topic_the_limit_once(
    kafka, workshop, spark, landed, limited, monkeypatch
):
    limited(5000)
    source = kafka.source(**{"stall.timeout.ms": 3_600_000})
    topic = workshop.topic("packed-stopped", source=source)
    kafka.create(topic, 6)
    for partition in range(6):
        kafka.send(topic, [(b"a", b"x")] * 2, partition=partition)
    monkeypatch.setattr(read_plan, "RANGE_OFFSETS_MIN", 1)
    _platform, find, settings = workshop.platform(), workshop.find(topic), {"bootstrap.servers": kafka.address}
    began = []
    frozen = kafka.frozen()

    def progress(step):
        if step.endswith("offsets"):
            began.append(time.monotonic())
            frozen.__enter__()

    try:
        with pytest.raises(SourceError, match=r"within 5000 ms, .*ingest\.max\.ms"):
            read_topic(spark, find, settings, int(time.time() * 1000), progress, None, 5000)
        assert time.monotonic() - began[0] < 9
    finally:
        frozen.__exit__(None, None, None)
    assert landed(topic) == []

"""Topics in Kafka in a pack: read, compacted and published, with a login from either place."""

from __future__ import annotations

import json
import time

import pytest

from cleantail.rounds.pack_results import PackRequest
from differential.broker import free_port
from spark_jobs.packs.pack_run import run_pack

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("handed_on", [True, False], ids=["handed on", "of the environment"])
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
    assert ["do not answer, as a moment ago" in error for error in others] == [True] * 3


def test_a_topic_that_takes_its_brokers_too_long_is_left_to_the_next_run_and_holds_up_no_other(
    kafka, workshop, spark, landed, monkeypatch
):
    """By portions of one record, with a pause after each: what was appended before the limit stays."""
    from spark_jobs.round.kafka import reading

    text = {"platform": {"limits": {"ingest.max.ms": 5000}, "spark": {"master": "local[1]"}}}
    (workshop.config / "defaults.yaml").write_text(json.dumps(text))
    slow, quick = (workshop.topic(f"packed-{name}", source=kafka.source()) for name in ("slow", "quick"))
    for topic, count in ((slow, 3), (quick, 1)):
        kafka.create(topic)
        kafka.send(topic, [(b"a", b"%d" % n) for n in range(count)])
    monkeypatch.setattr(reading, "PORTION_OFFSETS", 1)
    monkeypatch.setattr(reading, "next_budget", lambda *_: time.sleep(5.1) or 1)
    request = PackRequest((slow, quick), int(time.time() * 1000) + 60_000)
    first, second = run_pack(spark, workshop.platform(), request).topics
    assert (first.ok, first.station, first.may_retry) == (False, "ingest", False), first.error
    assert "ingest.max.ms" in first.error and len(landed(slow)) == 2
    assert (second.error, second.ingested is not None and second.ingested.records) == ("", 1)

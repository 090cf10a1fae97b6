"""The demonstration's topic in Kafka: what is sent, what a consumer sees of it, and a broker that is started again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.__main__ import switch
from demo.generated_streams import customer_changes
from demo.home import CONFIG, MARK, DemoError, Home
from demo.inputs import IN_KAFKA, Expected, make_inputs, version_of, winners
from demo.kafka_broker import CONNECTION, KafkaBroker
from demo.kafka_topic import ABORTED_RECORDS, ABORTED_VERSION, KafkaTopic, rolled_back, steps
from demo.records import in_logs, topic_input
from differential.broker import BrokerError, kafka_jars
from differential.kafka_client import KafkaClient

pytestmark = pytest.mark.integration

JARS = kafka_jars(os.environ)
NOW_MS = 1_800_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker of a demonstration, not started yet."""
    broker = KafkaBroker.of(tmp_path / "broker", JARS)
    yield broker
    broker.down()


@pytest.fixture
def few_changes() -> Expected:
    # of now: a broker refuses timestamps of the future
    now_ms = int(time.time() * 1000)
    changes = topic_input("customers-of-demo", "", customer_changes(now_ms, count=1500, customers=100), 2)
    return Expected(changes, winners(changes.records, version_of), "")


def test_the_topic_in_kafka_is_the_one_whose_yaml_names_the_connection() -> None:
    named = [
        file.stem for file in (CONFIG / "topics").glob("*.yaml") if f"connection: {CONNECTION}" in file.read_text()
    ]
    assert named == [IN_KAFKA]
    assert IN_KAFKA in [expected.input.topic for expected in make_inputs(None, NOW_MS)]


def test_a_third_of_the_transactions_is_aborted_and_all_that_is_committed_is_sent_in_order() -> None:
    log = [record for record in in_logs(customer_changes(NOW_MS, count=2000), 2) if record.partition == 1]
    segments = steps(log)
    assert [(d.key, d.value, d.headers) for s in segments for d in s.records] == [
        (r.key, r.value, r.headers) for r in log
    ]
    assert all(s.aborted and 0 < s.committed_first < len(s.records) for s in segments)


def test_what_is_aborted_would_win_over_every_change_of_its_customer() -> None:
    records = in_logs(customer_changes(NOW_MS, count=500), 2)
    aborted = rolled_back(records[7])
    assert aborted.key == records[7].key
    version = aborted.headers[0][1] or b""
    assert int.from_bytes(version, "big") >= ABORTED_VERSION
    assert version > max(record.headers[0][1] or b"" for record in records)


@pytest.mark.deep
def test_a_consumer_sees_what_was_committed_also_after_the_broker_was_started_again(
    broker: KafkaBroker, few_changes: Expected
) -> None:
    """`make demo` compares the same with the compacted table."""
    broker.up()
    topic = KafkaTopic(few_changes, KafkaClient(broker.address))
    topic.create()
    topic.send(0)
    topic.send(0)  # which does nothing
    assert broker.down()
    assert not broker.down()
    again = KafkaBroker.of(broker.folder, JARS)
    assert again.has_data
    again.up()
    topic.client = KafkaClient(again.address)
    topic.send(1)
    seen = topic.as_consumed()
    assert list(seen.claims.values()) == [True]
    assert [len(batch) for batch in seen.input.batches] == [len(batch) for batch in few_changes.input.batches]
    assert seen.values == few_changes.values
    # markers and what was aborted have offsets, too
    assert max(r.offset for r in seen.input.records) > len(few_changes.input.records) // 2 + ABORTED_RECORDS


def test_what_is_missing_is_named_before_the_last_demonstration_is_deleted(tmp_path: Path) -> None:
    home = Home(tmp_path / "demo", tmp_path / "jars", tmp_path / "nowhere")
    for folder in (home.path, home.jars):
        folder.mkdir()
    for file in (home.jars / "some.jar", home.path / MARK):
        file.touch()
    with pytest.raises(BrokerError, match="no Kafka jars in .*nowhere: run `make setup`"):
        home.make_afresh()
    assert (home.path / MARK).exists()


def test_up_says_what_the_last_demonstration_did_not_leave(tmp_path: Path) -> None:
    home = Home(tmp_path / "demo", tmp_path / "jars", JARS)
    with pytest.raises(DemoError, match="there is no demonstration in .*: run `make demo` first"):
        switch(home, "up")
    (home.path / "airflow").mkdir(parents=True)
    with pytest.raises(DemoError, match="has no data of a Kafka broker: run `make demo` first"):
        switch(home, "up")

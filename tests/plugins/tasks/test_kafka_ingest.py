"""The task `ingest` of a topic in Kafka: the brokers are asked first, and no login is ever in argv."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from confluent_kafka import Producer

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.topic import Topic
from cleantail.errors import SilentBrokersError, SourceError
from cleantail.intake import RECORD_BYTES_IN_KAFKA, Poll, feed_of
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.tasks.topic_dag import IngestOperator
from differential.broker import free_port
from differential.kafka_client import KafkaClient
from tests.airflow_site import Site, StubbedJobs
from tests.plugins.tasks.test_spark_operator import FakeTask

SECRET = "hunter2"


@pytest.fixture(scope="module")
def address(broker_address: str) -> str:
    """A broker with the topic `orders`."""
    KafkaClient(broker_address).create("orders", 1, {})
    return broker_address


@pytest.fixture
def operator(site: Site, jobs: StubbedJobs) -> IngestOperator:
    return IngestOperator(task_id="ingest", topic="orders", config_dir=str(site.config))


def new_bytes(topic: Topic, silent: SilentBrokers) -> int | None:
    return feed_of(topic).new_input(Poll(topic, client_settings, 0, silent=silent)).bytes


def source(**fields: Any) -> dict[str, Any]:
    return {"kafka": {"stall.timeout.ms": 5000, **fields}}


def execute(operator: IngestOperator, **params: Any) -> Any:
    run = {"dag": SimpleNamespace(params={"rollback_to": None}), "dag_run": SimpleNamespace(conf={})}
    context: Any = {"ti": FakeTask(), "params": params, **run}
    return operator.execute(context)


def connection(monkeypatch: pytest.MonkeyPatch, conn_type: str = "kafka", **extra: Any) -> None:
    text = json.dumps({"conn_type": conn_type, "extra": {"sasl.password": SECRET, **extra}})
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_K", text)


def test_the_login_goes_to_the_job_in_a_file_that_only_its_owner_can_read_and_that_is_gone_after(
    operator: IngestOperator, site: Site, jobs: StubbedJobs, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic("orders", source=source(connection="kafka_k"))
    connection(monkeypatch, **{"bootstrap.servers": address})
    execute(operator)
    (call,) = jobs.calls
    assert (call["job"], call["mode"], call["client"]["sasl.password"]) == ("ingest", "0o600", SECRET)
    assert SECRET not in json.dumps([call["arguments"], call["submit"], operator.application_args])
    assert not Path(jobs.argument("ingest", "--client-settings")).parent.exists()


def test_nothing_new_starts_no_spark(
    operator: IngestOperator, site: Site, jobs: StubbedJobs, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic("orders", source=source(**{"bootstrap.servers": address}))
    monkeypatch.setattr("cleantail.intake.unread_offsets", lambda *_: None)
    with pytest.raises(
        AirflowSkipException, match="nothing new: the table already has all readable records of orders in Kafka"
    ):
        execute(operator)
    assert jobs.calls == []


def test_an_obstacle_to_a_read_of_kafka_fails_without_retry_before_spark_is_started(
    operator: IngestOperator, site: Site, jobs: StubbedJobs, address: str
) -> None:
    site.topic("orders", source=source(**{"bootstrap.servers": address, "topic": "nowhere"}))
    with pytest.raises(AirflowFailException, match="there is no topic nowhere.*nothing was appended"):
        execute(operator)
    assert jobs.calls == []


def test_brokers_that_are_away_are_asked_again(operator: IngestOperator, site: Site, jobs: StubbedJobs) -> None:
    away = source(**{"bootstrap.servers": f"127.0.0.1:{free_port()}", "stall.timeout.ms": 1000})
    site.topic("orders", source=away)
    with pytest.raises(AirflowException, match="the brokers do not answer") as caught:
        execute(operator)
    assert not isinstance(caught.value, AirflowFailException) and jobs.calls == []


def test_brokers_that_do_not_answer_are_waited_for_once_in_an_evaluation(site: Site) -> None:
    """Whoever else has a topic there would wait as long, and everybody after them."""
    away = source(**{"bootstrap.servers": f"127.0.0.1:{free_port()}", "stall.timeout.ms": 1000})
    _platform, silent, texts = load_platform(site.config), SilentBrokers(), []
    for name in ("first", "second"):
        site.topic(name, source=away)
        with pytest.raises(SilentBrokersError) as caught:
            new_bytes(find_topic(name, site.config), silent)
        texts.append(str(caught.value))
    assert "do not answer for topic first" in texts[0]
    assert "did not answer within the last minute" in texts[1] and "first" not in texts[1]


def test_brokers_that_answer_are_asked_for_each_topic_whatever_is_wrong_with_one(site: Site, address: str) -> None:
    _platform, silent = load_platform(site.config), SilentBrokers()
    for name in ("nowhere", "nowhere-else"):
        site.topic(name, source=source(**{"bootstrap.servers": address}))
        with pytest.raises(SourceError, match=f"there is no topic {name}"):
            new_bytes(find_topic(name, site.config), silent)


def test_new_bytes_in_kafka_are_estimated_from_the_number_of_records(site: Site, address: str) -> None:
    KafkaClient(address).create("reckoned", 1, {})
    producer = Producer({"bootstrap.servers": address})
    for number in range(3):
        producer.produce("reckoned", b"v", b"k%d" % number, 0)
    assert producer.flush(30) == 0
    site.topic("reckoned", source=source(**{"bootstrap.servers": address}))
    topic, _platform = find_topic("reckoned", site.config), load_platform(site.config)
    assert new_bytes(topic, SilentBrokers()) == 3 * RECORD_BYTES_IN_KAFKA


def test_a_missing_connection_and_one_of_another_type_are_reported(
    operator: IngestOperator, site: Site, jobs: StubbedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.topic("orders", source=source(connection="kafka_k"))
    connection(monkeypatch, conn_type="http")
    with pytest.raises(AirflowFailException, match="the Airflow connection kafka_k is of type http, not kafka"):
        execute(operator)
    connection(monkeypatch)
    with pytest.raises(
        AirflowFailException, match=r"the Airflow connection kafka_k has no bootstrap\.servers in its extra"
    ):
        execute(operator)
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_K")
    site.topic("orders", source=source(connection="kafka_none"))
    with pytest.raises(
        AirflowFailException, match="Airflow has no connection kafka_none: create one of type cleantail_kafka"
    ):
        execute(operator)


def test_a_rollback_reads_nothing(operator: IngestOperator, site: Site, jobs: StubbedJobs) -> None:
    site.topic("orders", source=source())
    with pytest.raises(AirflowSkipException, match="the run is a rollback"):
        execute(operator, rollback_to="last")


def test_a_topic_in_kafka_has_a_task_that_reads_it(site: Site) -> None:
    site.topic("orders", source=source(connection="kafka_k", topic="prod.orders"))
    dag = site.dag("orders")
    assert dag.get_task("ingest").task_type == "IngestOperator"
    assert dag.get_task("evaluate").upstream_task_ids == {"ingest"}
    assert "connection: kafka_k, topic: prod.orders" in dag.doc_md

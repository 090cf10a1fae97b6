"""What the clients of a restore are given, and where it comes from."""

import json

import pytest

from cleantail.errors import CleantailError
from cleantail.kafka.restore_plan import target_settings
from cleantail.kafka.target_client import administrator, consumer, producer

GIVEN = {
    "bootstrap.servers": "host:9092",
    "sasl.password": "secret",
    "acks": "0",
    "enable.idempotence": "false",
    "transactional.id": "mine",
    "isolation.level": "read_committed",
    "group.id": "another",
    "compression.type": "zstd",
    "linger.ms": "5",
    "fetch.max.bytes": "1000000",
}


def test_given_settings_cannot_override_those_that_make_a_restore_exact():
    writing = producer(GIVEN, 1_048_588)
    assert (writing["enable.idempotence"], writing["acks"], writing["delivery.report.only.error"]) == (
        True,
        "all",
        True,
    )
    assert writing["compression.type"] == "zstd" and writing["linger.ms"] == "5"
    assert not {"transactional.id", "group.id", "isolation.level", "fetch.max.bytes"} & writing.keys()
    reading = consumer(GIVEN)
    assert (reading["isolation.level"], reading["group.id"]) == ("read_uncommitted", "cleantail-restore")
    assert reading["fetch.max.bytes"] == "1000000" and "compression.type" not in reading
    assert administrator(GIVEN) == {"log_level": "2", "bootstrap.servers": "host:9092", "sasl.password": "secret"}


@pytest.mark.parametrize(
    ("max_message_bytes", "given", "batch", "message"),
    [
        (1_048_588, {}, 1_000_000, 1_048_588),
        (5_000, {}, 5_000, 5_000),
        (5_000, {"batch.size": "900000"}, 5_000, 5_000),
        (5_000, {"batch.size": "4000"}, "4000", 5_000),
        (100, {}, 1_000, 1_000),
        (2_000_000_000, {}, 1_000_000, 1_000_000_000),
    ],
)
def test_no_batch_is_larger_than_what_the_topic_takes(max_message_bytes, given, batch, message):
    settings = producer({"bootstrap.servers": "host:1", **given}, max_message_bytes)
    assert (settings["batch.size"], settings["message.max.bytes"]) == (batch, message)


ENV = {"CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS": "source:9092", "CLEANTAIL_KAFKA_SASL_PASSWORD": "secret"}


@pytest.mark.parametrize("named", [None, "source:9092"])
def test_the_environments_login_is_for_the_brokers_that_it_names(named):
    settings = target_settings(named, None, None, ENV)
    assert (settings["bootstrap.servers"], settings["sasl.password"]) == ("source:9092", "secret")


def test_other_brokers_are_given_nothing_of_the_environment():
    settings = target_settings("target:9092", None, None, ENV)
    assert settings["bootstrap.servers"] == "target:9092" and "sasl.password" not in settings


def test_a_login_from_the_environment_without_brokers_is_refused():
    with pytest.raises(CleantailError, match="brokers that it does not name"):
        target_settings("target:9092", None, None, {"CLEANTAIL_KAFKA_SASL_PASSWORD": "secret"})


def test_a_file_of_properties_has_the_login_of_other_brokers(tmp_path):
    file = tmp_path / "target.properties"
    file.write_text("# of the new cluster\nsecurity.protocol=SASL_SSL\nsasl.password=another=secret\n")
    settings = target_settings("target:9092", None, file, ENV)
    assert (settings["bootstrap.servers"], settings["sasl.password"]) == ("target:9092", "another=secret")


def test_a_connection_names_brokers_and_login():
    extra = {"bootstrap.servers": "target:9092", "sasl.password": "its own"}
    env = ENV | {"AIRFLOW_CONN_NEW_CLUSTER": json.dumps({"conn_type": "kafka", "extra": extra})}
    settings = target_settings(None, "new_cluster", None, env)
    assert (settings["bootstrap.servers"], settings["sasl.password"]) == ("target:9092", "its own")


@pytest.mark.parametrize(
    ("server", "connection", "file", "error"),
    [
        (None, None, None, "no brokers are named"),
        ("host:1", "new", None, "--connection names brokers and login"),
        (None, None, "f", "give both"),
        ("host", None, None, "--bootstrap-server host is not allowed"),
        (None, "a b", None, "--connection a b is not allowed"),
    ],
)
def test_brokers_are_named_in_one_way(server, connection, file, error, tmp_path):
    with pytest.raises(CleantailError, match=error):
        target_settings(server, connection, file and tmp_path / file, {})

"""Which settings a client of Kafka gets, and to which brokers a login goes."""

from __future__ import annotations

import json

import pytest

from cleantail.config.topic_source import KafkaSource
from cleantail.errors import CleantailError, TableError
from cleantail.kafka.client_settings import CLIENTS_JSON, DEFAULTS, SETTINGS_JSON, settings_of, settings_of_environment


def source(**fields) -> KafkaSource:
    return KafkaSource.model_validate(fields)


HERE = source(**{"bootstrap.servers": "b:9092"})
LOGIN = {"CLEANTAIL_KAFKA_SASL_USERNAME": "u", "CLEANTAIL_KAFKA_SASL_PASSWORD": "p"}


def test_names_of_the_environment_are_librdkafkas():
    found = settings_of_environment(source(), LOGIN | {"CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS": "b:9092"})
    assert found == DEFAULTS | {"bootstrap.servers": "b:9092", "sasl.username": "u", "sasl.password": "p"}


def test_a_login_goes_only_to_the_brokers_that_it_was_given_with():
    same = settings_of_environment(HERE, LOGIN | {"CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS": "b:9092"})
    assert same["sasl.password"] == "p"
    for other in ({}, {"CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS": "other:9092"}):
        with pytest.raises(CleantailError, match="only for the brokers in CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS"):
            settings_of_environment(HERE, LOGIN | other)


def test_brokers_without_a_login_need_nothing_of_the_environment():
    assert settings_of_environment(HERE, {"CLEANTAIL_KAFKA_JARS": "/x", "HOME": "/"}) == DEFAULTS | {
        "bootstrap.servers": "b:9092"
    }


def test_no_brokers_at_all_is_an_error_that_says_where_to_name_them():
    with pytest.raises(CleantailError, match="source.kafka.connection or source.kafka.bootstrap.servers"):
        settings_of_environment(source(), {})


def test_a_connection_is_found_where_airflow_looks_for_it():
    fields = {"bootstrap.servers": "b:9092", "sasl.password": "p", "enable.auto.commit": True, "group.id": "g"}
    for extra in (fields, json.dumps(fields)):
        env = {"AIRFLOW_CONN_MY_KAFKA": json.dumps({"conn_type": "kafka", "extra": extra})}
        found = settings_of_environment(source(connection="my-kafka"), env)
        assert found == DEFAULTS | {"bootstrap.servers": "b:9092", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "AIRFLOW_CONN_K='"),
        ("kafka://b:9092", "is not a connection as JSON"),
        ('{"conn_type": "kafka", "extra": "[1]"}', "extra is not a mapping"),
        ('{"conn_type": "kafka", "extra": {}}', "has no bootstrap.servers in its extra"),
        ('{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:1", "sasl.jaas.config": "hunter2"}}', "sasl.jaas.config is a setting of Java clients"),
        ('{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:1", "error_cb": {"hunter2": 1}}}', "error_cb must be a text or a number"),
        ('{"conn_type": "http", "extra": {"password": "hunter2"}}', "the Airflow connection k is of type http, not kafka"),
    ],
    ids=["none", "an address", "not a mapping", "no brokers", "of Java", "a function", "of another type"],
)  # fmt: skip
def test_a_connection_that_cannot_be_used_is_told_without_its_values(value, says):
    with pytest.raises(CleantailError, match=".") as caught:
        settings_of_environment(source(connection="k"), {"AIRFLOW_CONN_K": value} if value else {})
    assert says in str(caught.value) and "hunter2" not in str(caught.value)


def test_what_the_connection_sets_wins_over_the_yaml_and_that_over_the_defaults():
    tuned = source(connection="k", properties={"fetch.min.bytes": 5, "client.id": "mine", "check.crcs": True})
    found = settings_of(tuned, {}, lambda _: ("kafka", {"bootstrap.servers": "b:1", "client.id": "ours"}))
    assert (found["client.id"], found["fetch.min.bytes"], found["check.crcs"]) == ("ours", "5", "true")


def test_a_job_reads_the_settings_that_a_task_has_written():
    settings = {"bootstrap.servers": "here:9092", "sasl.password": "hünter2"}
    assert SETTINGS_JSON.value(json.dumps(settings), "--client-settings") == settings
    clients = {"orders": settings, "sales": {}}
    assert CLIENTS_JSON.value(CLIENTS_JSON.text(clients), "--client-settings") == clients


@pytest.mark.parametrize("text", ['{"sasl.password": "hunter2"', '{"sasl.password": ["hunter2"]}', '["hunter2"]'])
def test_a_file_that_holds_no_settings_is_told_without_what_it_holds(text):
    with pytest.raises(TableError, match="--client-settings cannot be read") as caught:
        SETTINGS_JSON.value(text, "--client-settings")
    assert "hunter2" not in str(caught.value)

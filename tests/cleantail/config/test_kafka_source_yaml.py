"""What a topic's YAML may say of its source in Kafka."""

from __future__ import annotations

import pytest
import yaml

from cleantail.config.loading import load_topic
from cleantail.errors import ConfigError


@pytest.fixture
def load(tmp_path):
    (tmp_path / "topics").mkdir()

    def made(source: str):
        file = tmp_path / "topics" / "orders.yaml"
        file.write_text(f"topic: orders\nsource: {source}\n")
        assert yaml.safe_load(file.read_text())
        return load_topic(file, tmp_path)

    return made


def test_brokers_are_named_by_a_connection_by_address_or_by_the_environment(load):
    topic = load("{kafka: {connection: kafka_default, topic: prod.orders}}")
    assert (topic.source.type, topic.source.kafka.connection, topic.kafka_topic) == (
        "kafka",
        "kafka_default",
        "prod.orders",
    )
    assert (
        load('{kafka: {bootstrap.servers: "a:9092,[::1]:9092"}}').source.kafka.bootstrap_servers == "a:9092,[::1]:9092"
    )
    assert load("{kafka: {}}").kafka_topic == "orders"


def test_by_default_a_gap_is_an_error_and_only_committed_records_are_read(load):
    topic = load("{kafka: {}}")
    assert (topic.source.kafka.on_gap, topic.source.isolation, topic.source.kafka.group_id) == (
        "fail",
        "read_committed",
        None,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{kafka: {}, path: x}", 'source.path: "x" is not allowed: path or kafka, not both'),
        ("{kafka: {}, type: files}", 'source.type: "files" is not allowed: files, or kafka or table together'),
        ("{type: kafka}", 'source.type: "kafka" is not allowed'),
        ('{kafka: {connection: a, bootstrap.servers: "b:1"}}', "connection or bootstrap.servers, not both"),
        ("{kafka: {bootstrap.servers: nowhere}}", "host:port, several with commas between them"),
        ("{kafka: {on_gap: ignore}}", "fail or continue"),
        ("{kafka: {topic: '..'}}", "1 to 249 of the characters"),
        ("{kafka: {properties: {sasl.password: hunter2}}}", "secrets are not allowed in YAML"),
        ("{kafka: {properties: {plugin.library.paths: /tmp/x.so}}}", "a mapping of these settings of librdkafka"),
        ("{kafka: {properties: {sasl.kerberos.kinit.cmd: reboot}}}", "a mapping of these settings of librdkafka"),
        ("{kafka: {properties: {ssl.key.pem: abc}}}", "a mapping of these settings of librdkafka"),
        ("{kafka: {properties: {security.protocol: PLAINTEXT}}}", "addresses and logins belong to the connection"),
        ("{kafka: {conection: a}}", "did you mean connection?"),
    ],
)  # fmt: skip
def test_an_invalid_kafka_source_is_refused_with_the_allowed_values(load, text, says):
    with pytest.raises(ConfigError, match="source") as caught:
        load(text)
    assert says in str(caught.value) and "hunter2" not in str(caught.value)


def test_properties_may_be_written_as_numbers_and_booleans(load):
    found = load("{kafka: {properties: {fetch.min.bytes: 1, check.crcs: true}}}").source.kafka.properties
    assert found == {"fetch.min.bytes": "1", "check.crcs": "true"}

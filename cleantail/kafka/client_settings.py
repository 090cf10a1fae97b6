"""The librdkafka settings of Kafka clients, from a connection or from the environment. Pure.

A login is sent only to the brokers that it was configured with. A connection has brokers and login. The environment has
them as CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS, CLEANTAIL_KAFKA_SASL_PASSWORD and so on (`.` becomes `_`). Brokers in a
topic's YAML get no login from the environment, unless the environment names the same brokers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS, KafkaSource
from cleantail.errors import CleantailError

PREFIX = "CLEANTAIL_KAFKA_"
CONNECTION_PREFIX = "AIRFLOW_CONN_"
CONNECTION_TYPE = "kafka"
"""The connection type of Airflow's provider for Kafka. The provider itself is not needed."""
OWN_CONNECTION_TYPE = "cleantail_kafka"
"""Cleantail's own name of the same type, for a UI without that provider."""
FindConnection = Callable[[str], tuple[str, Mapping[str, Any]] | None]
"""Returns the type and the extra of an Airflow connection by its id, or None if it does not exist."""
SettingsOf = Callable[[Topic], Mapping[str, str]]
"""Returns the settings of a topic's Kafka client. Raises CleantailError if they are missing or invalid."""
OTHER_VARIABLES = frozenset({"CLEANTAIL_KAFKA_JARS"})
"""Variables that have the prefix of client settings but are not settings."""
JAVA_ONLY = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.password": "ssl.ca.location",
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.keystore.type": "ssl.keystore.location of a PKCS#12 file, or ssl.certificate.location and ssl.key.location",
    "key.deserializer": "nothing: keys and values are read as bytes",
    "value.deserializer": "nothing: keys and values are read as bytes",
}
"""Settings of Java's clients -> their counterparts in librdkafka."""
DEFAULTS = {
    "client.id": "cleantail",
    "log_level": "2",
    "socket.timeout.ms": "15000",
    "socket.keepalive.enable": "true",
    "queued.max.messages.kbytes": "32768",
    "fetch.message.max.bytes": "4194304",
    "check.crcs": "true",
}
"""Default settings of a client. The limit of the queue bounds a task's memory, however large the backlog is."""
OURS = frozenset(
    {
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "auto.offset.reset",
        "isolation.level",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "partition.assignment.strategy",
    }
)
"""Settings that Cleantail fixes for its reads. A connection may contain them, as Airflow's examples do. They are
ignored there."""
SETTINGS_JSON: Codec[Mapping[str, str]] = Codec(Mapping[str, str])
"""The file with one client's settings that a task passes to a job."""
CLIENTS_JSON: Codec[Mapping[str, Mapping[str, str]]] = Codec(Mapping[str, Mapping[str, str]])
"""The same file for a pack: topic -> settings of its client."""


def settings_of(source: KafkaSource, env: Mapping[str, str], connection: FindConnection) -> dict[str, str]:
    """Return the client's settings, from the YAML's connection if it names one, else from the environment.

    Raises CleantailError if no broker is named or the connection does not exist. The same holds if the login may be for
    other brokers than the named ones.
    """
    if source.connection is None:
        return _settings_of_variables(source, env)
    where = f"the Airflow connection {source.connection}"
    named = connection(source.connection)
    if named is None:
        raise CleantailError(
            f"Airflow has no connection {source.connection}: create one of type {OWN_CONNECTION_TYPE}, with "
            f"librdkafka's settings as JSON in its extra, including {ADDRESS}; nothing was appended"
        )
    conn_type, extra = named
    if conn_type not in (CONNECTION_TYPE, OWN_CONNECTION_TYPE):
        raise CleantailError(
            f"{where} is of type {conn_type}, not {CONNECTION_TYPE}. Make it of type {OWN_CONNECTION_TYPE}: without "
            "its provider for Kafka, Airflow turns `--conn-type kafka` into generic; nothing was appended"
        )
    settings = {str(name): _scalar(value, str(name), where) for name, value in extra.items() if value is not None}
    if not settings.get(ADDRESS):
        raise CleantailError(f"{where} has no {ADDRESS} in its extra: librdkafka's settings as JSON are expected there")
    return _complete(source, settings, where)


def settings_of_environment(source: KafkaSource, env: Mapping[str, str]) -> dict[str, str]:
    """Return the client's settings without Airflow. Raises CleantailError as settings_of does."""
    return settings_of(source, env, lambda name: _connection_in(env, name))


def _settings_of_variables(source: KafkaSource, env: Mapping[str, str]) -> dict[str, str]:
    settings = {
        name.removeprefix(PREFIX).lower().replace("_", "."): value
        for name, value in env.items()
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES and value
    }
    address = source.bootstrap_servers
    if address is not None and settings and settings.get(ADDRESS) != address:
        raise CleantailError(
            f"source.kafka names the brokers {address}, and the environment has settings for "
            f"{settings.get(ADDRESS) or 'brokers that it does not name'}: the settings in {PREFIX}… are only for the "
            f"brokers in {PREFIX}BOOTSTRAP_SERVERS. Name the same brokers in both, or remove {ADDRESS} from the YAML"
        )
    if address is None and ADDRESS not in settings:
        raise CleantailError(
            f"no brokers are named: set source.kafka.connection or source.kafka.{ADDRESS} in the topic's YAML, or "
            f"{PREFIX}BOOTSTRAP_SERVERS in the environment"
        )
    return _complete(source, {ADDRESS: address or "", **settings}, "the environment")


def settings_of_topic(topic: Topic) -> dict[str, str]:
    """Return the settings of the topic's client, from the environment.

    Raises CleantailError if the topic has no source.kafka, or if its brokers or its login are missing.
    """
    if topic.source.kafka is None:
        raise CleantailError(f"topic {topic.topic} has no source.kafka in its YAML; nothing was appended")
    return settings_of_environment(topic.source.kafka, topic.platform.env)


def settings_in_driver(topic: Topic, handed_on: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the settings that a task passed on, else those of the environment. Raises as settings_of_topic does."""
    return handed_on if handed_on is not None and topic.source.kafka is not None else settings_of_topic(topic)


def _complete(source: KafkaSource, settings: Mapping[str, str], where: str) -> dict[str, str]:
    """Add the YAML's tuning and the defaults to the settings. Settings override tuning, and tuning overrides
    defaults."""
    refuse_java_settings(settings, where)
    return DEFAULTS | source.properties | {name: value for name, value in settings.items() if name not in OURS}


def refuse_java_settings(settings: Collection[str], where: object) -> None:
    """Raise CleantailError, naming `where`, for the name of a setting that only Java's clients have."""
    if name := next((name for name in JAVA_ONLY if name in settings), None):
        raise CleantailError(f"{where}: {name} is a setting of Java clients: use {JAVA_ONLY[name]}")


def _connection_in(env: Mapping[str, str], name: str) -> tuple[str, Mapping[str, Any]]:
    """Return type and extra of a connection, from the environment variable that Airflow reads too. Errors show no part
    of it."""
    variable = f"{CONNECTION_PREFIX}{re.sub('[^A-Za-z0-9_]', '_', name).upper()}"
    text = env.get(variable)
    if text is None:
        raise CleantailError(
            f"source.kafka.connection is {name}, an Airflow connection: without Airflow it is read from the "
            f'environment, as {variable}=\'{{"conn_type": "kafka", "extra": {{"{ADDRESS}": "host:9092"}}}}\''
        )
    try:
        connection = json.loads(text)
        extra = connection.get("extra") or {}
        fields = json.loads(extra) if isinstance(extra, str) else extra
        conn_type = str(connection.get("conn_type", ""))
    except (ValueError, AttributeError):
        raise CleantailError(f"{variable} is not a connection as JSON, with librdkafka's settings in extra") from None
    if not isinstance(fields, dict):
        raise CleantailError(f"{variable}: extra is not a mapping of librdkafka's settings")
    return conn_type, fields


def _scalar(value: object, name: str, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise CleantailError(f"{where}: {name} must be a text or a number")

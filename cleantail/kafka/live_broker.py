"""Adapter: the topics of a running Kafka cluster and their configs, through confluent-kafka where it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cleantail.errors import CleantailError, OutsideError
from cleantail.kafka.import_config import DescribedConfig, DescribedTopic

ANSWER_TIMEOUT_S = 15
_LIBRDKAFKA_NAMES = {
    "ssl.truststore.location": "ssl.ca.location",
    "sasl.jaas.config": "sasl.username and sasl.password",
}
"""Settings of Java clients -> what librdkafka calls them."""


def describe(bootstrap_server: str, command_config: Path | None, names: Sequence[str]) -> list[DescribedTopic]:
    """Returns the named topics, or all, with every config in force. Raises OutsideError when the cluster does not
    answer."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError:
        raise CleantailError(
            "reading a live broker needs confluent-kafka: pip install confluent-kafka, or give the output of "
            "kafka-configs --describe --entity-type topics --all as a file"
        ) from None
    try:
        admin = AdminClient(client_settings(bootstrap_server, command_config))
        present = set(admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics)
        missing = sorted(set(names) - present)
        if missing:
            raise CleantailError(f"{bootstrap_server} has no topic {missing[0]}")
        return _described(admin, sorted(names or present))
    except KafkaException as e:
        raise OutsideError(f"{bootstrap_server}: {_message(e)}") from None


def client_settings(bootstrap_server: str, command_config: Path | None) -> dict[str, Any]:
    """Returns librdkafka's settings: those of the file, as kafka-configs takes one, and the address. None of them is
    shown."""
    settings = _properties(command_config) if command_config else {}
    for name, instead in _LIBRDKAFKA_NAMES.items():
        if name in settings:
            raise CleantailError(f"{command_config}: {name} is of Java clients only: give {instead}")
    return {
        "log_level": 2,
        "socket.timeout.ms": ANSWER_TIMEOUT_S * 1000,
        **settings,
        "bootstrap.servers": bootstrap_server,
    }


def _properties(file: Path) -> Mapping[str, str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError as e:
        raise CleantailError(f"{file}: {e.strerror}") from None
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", "!"))]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _described(admin: Any, names: Sequence[str]) -> list[DescribedTopic]:
    from confluent_kafka.admin import ConfigResource, ResourceType

    if not names:
        return []
    answers = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    by_name = {resource.name: done.result(ANSWER_TIMEOUT_S) for resource, done in answers.items()}
    return [DescribedTopic(name, {c.name: _config(c) for c in by_name[name].values()}) for name in names]


def _config(entry: Any) -> DescribedConfig:
    from confluent_kafka.admin import ConfigSource

    return DescribedConfig(entry.name, None if entry.is_sensitive else entry.value, ConfigSource(entry.source).name)


def _message(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return text.splitlines()[0]

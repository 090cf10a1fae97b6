"""The settings of a topic's Kafka client. They come from its Airflow connection, else from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseHook

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.kafka.client_settings import settings_of
from cleantail_airflow.airflow_exceptions import AirflowNotFoundException


def client_settings(topic: Topic) -> Mapping[str, str]:
    """Return librdkafka's settings with the login. Raises CleantailError if they are missing or invalid."""
    if topic.source.kafka is None:
        raise CleantailError(f"topic {topic.topic} has no source.kafka in its YAML any more; nothing was appended")
    return settings_of(topic.source.kafka, topic.platform.env, _connection)


def _connection(conn_id: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return type and extra of an Airflow connection, or None if it does not exist."""
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None
    return connection.conn_type or "", connection.extra_dejson

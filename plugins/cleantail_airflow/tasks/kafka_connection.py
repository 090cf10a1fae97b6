"""The settings of a topic's Kafka client: of the Airflow connection that its YAML names, else of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.kafka.client_settings import settings_of_connection, settings_of_environment

CONNECTION_TYPE = "kafka"
"""The type that Airflow's provider for Kafka gives its connections; the provider itself is not needed."""


def client_settings(topic: Topic) -> Mapping[str, str]:
    """Returns librdkafka's settings, with the login. Raises CleantailError where there are none, or wrong ones."""
    source = topic.source.kafka
    if source is None:
        raise CleantailError(f"topic {topic.topic} has no source.kafka in its YAML any more; nothing was appended")
    if source.connection is None:
        return settings_of_environment(source, os.environ)
    try:
        connection = BaseHook.get_connection(source.connection)
    except AirflowNotFoundException:
        raise CleantailError(
            f"there is no Airflow connection {source.connection}: make one of type {CONNECTION_TYPE}, with "
            "librdkafka's settings as JSON in its extra, bootstrap.servers among them; nothing was appended"
        ) from None
    if connection.conn_type != CONNECTION_TYPE:
        raise CleantailError(
            f"the Airflow connection {source.connection} is of type {connection.conn_type}, not {CONNECTION_TYPE}; "
            "nothing was appended"
        )
    return settings_of_connection(source, connection.extra_dejson)

"""A connection type for Kafka brokers that works without Airflow's provider for Kafka."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from cleantail.config.topic_source import ADDRESS
from cleantail.kafka.client_settings import OWN_CONNECTION_TYPE

TEST_WITHIN_S = 15


class KafkaClientHook(BaseHook):
    """A connection that `source.kafka.connection` of a topic may name. Its extra has librdkafka's settings."""

    conn_name_attr = "kafka_conn_id"
    default_conn_name = "kafka_default"
    conn_type = OWN_CONNECTION_TYPE
    hook_name = "Kafka (Cleantail)"

    def __init__(self, kafka_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.kafka_conn_id = kafka_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the form of the connection, which has only the extra, with an example."""
        return {
            "hidden_fields": ["schema", "login", "password", "port", "host"],
            "relabeling": {"extra": "Settings of librdkafka as JSON"},
            "placeholders": {"extra": f'{{"{ADDRESS}": "host:9092", "security.protocol": "SSL"}}'},
        }

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the brokers accept this login, for the button of the UI."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        settings = {str(k): v for k, v in self.get_connection(self.kafka_conn_id).extra_dejson.items()}
        if not settings.get(ADDRESS):
            return False, f"the extra has no {ADDRESS}"
        try:
            brokers = AdminClient({**settings, "log_level": 0}).list_topics(timeout=TEST_WITHIN_S).brokers
        except (KafkaException, ValueError, TypeError) as error:
            return False, f"no broker answered: {error.args[0].str() if _is_kafkas(error) else type(error).__name__}"
        return True, f"brokers: {', '.join(sorted(str(broker) for broker in brokers.values()))}"


def _is_kafkas(error: Exception) -> bool:
    return hasattr(error.args[0] if error.args else None, "str")

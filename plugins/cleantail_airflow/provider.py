"""The entry in Airflow's list of providers (entry point `apache_airflow_provider`).

It omits the plugin, which has an entry point of its own and must be loaded once.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

PACKAGE = "cleantail"
INTEGRATION = "Cleantail"


def get_provider_info() -> dict[str, Any]:
    """Return operators, sensors, hooks, connection types and notifiers in Airflow's schema of providers."""
    return {
        "package-name": PACKAGE,
        "name": INTEGRATION,
        "description": "Kafka log compaction for changelogs in Apache Iceberg, run by Spark. "
        "Makes a DAG for each topic of a configuration. Each DAG's docs describe its tasks.",
        "versions": [version(PACKAGE)],
        "integrations": [{"integration-name": INTEGRATION, "tags": ["service"]}],
        "operators": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "cleantail_airflow.tasks.alert_task",
                    "cleantail_airflow.tasks.approve_task",
                    "cleantail_airflow.tasks.doctor_task",
                    "cleantail_airflow.tasks.evaluate_task",
                    "cleantail_airflow.tasks.topic_dag",
                ],
            }
        ],
        "sensors": [
            {"integration-name": INTEGRATION, "python-modules": ["cleantail_airflow.tasks.clean_sensor"]},
        ],
        "hooks": [{"integration-name": INTEGRATION, "python-modules": ["cleantail_airflow.kafka_hook"]}],
        "connection-types": [
            {
                "connection-type": "cleantail_kafka",
                "hook-class-name": "cleantail_airflow.kafka_hook.KafkaClientHook",
                "hook-name": "Kafka (Cleantail)",
            }
        ],
        "notifications": ["cleantail_airflow.alerts.topic_notifier.TopicNotifier"],
    }

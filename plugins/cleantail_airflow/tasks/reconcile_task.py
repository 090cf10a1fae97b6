"""The task `reconcile` of a topic whose source is Kafka: removes keys that are gone there."""

from __future__ import annotations

from airflow.sdk import Context

from cleantail.errors import CleantailError
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.outcomes.run_xcoms import plan_of
from cleantail_airflow.tasks.ingest_tasks import KafkaClientOperator
from cleantail_airflow.tasks.spark_operator import as_airflow, topic_and_platform
from cleantail_airflow.tasks.spark_tasks import NO_PLAN, PublishingOperator


class ReconcileOperator(KafkaClientOperator, PublishingOperator):
    """Compares the table with its topic in Kafka: a round of its own, whose job makes, checks and publishes it. The
    brokers are asked first, without Spark, whether there is anything that forbids it."""

    job = "reconcile"
    operation = "reconcile"

    def arguments(self, context: Context) -> list[str]:
        plan = plan_of(context)
        if not plan:
            self.skip(NO_PLAN)
        if not plan.reconcile.due:
            self.skip(plan.reconcile.reason)
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        try:
            from cleantail.kafka.source_topic import SourceTopic
            from cleantail.kafka.table_position import table_position

            settings = client_settings(topic)
            SourceTopic.of(topic, settings).require_comparable(table_position(topic, platform).position)
        except CleantailError as e:
            raise as_airflow(str(e), e.exit_code) from None
        return self.client_arguments(settings)

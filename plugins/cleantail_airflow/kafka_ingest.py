"""The task `ingest` of a topic whose source is Kafka: whether there is something to read, and with which login."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from cleantail.config import Topic
from cleantail.errors import CleantailError
from cleantail_airflow.approvals import ROLLBACK_TO
from cleantail_airflow.operators import FINAL, CleantailSparkOperator, topic_and_platform
from cleantail_airflow.run_params import require_known_params

CONNECTION_TYPE = "kafka"


class KafkaIngestOperator(CleantailSparkOperator):
    """Reads from Kafka what the table does not have yet. The brokers are asked first, without Spark: what forbids to
    read is told before anything is started, and where nothing is new the task is skipped.

    The connection is read in `execute`, and its settings go to the job in a file that only its owner can read.
    """

    job = "ingest_kafka"
    client_file: Path | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        with TemporaryDirectory(prefix="cleantail-kafka-") as folder:
            self.client_file = Path(folder) / "client.json"
            return super().execute(context)

    def arguments(self, context: Context) -> list[str]:
        require_known_params(context)
        if context["params"].get(ROLLBACK_TO):
            self.skip("the run is a rollback")
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        try:
            settings = client_settings(topic)
            from cleantail.kafka.ingest_command import is_read

            nothing_new = is_read(topic, platform, settings, int(time.time() * 1000))
        except CleantailError as e:
            kind = AirflowFailException if e.exit_code in FINAL else AirflowException
            raise kind(str(e)) from None
        if nothing_new:
            self.skip(f"nothing new: the table has {topic.kafka_topic} up to its last stable offsets in Kafka")
        assert self.client_file is not None
        _write_private(self.client_file, settings)
        return ["--client-settings", str(self.client_file)]


def client_settings(topic: Topic) -> Mapping[str, str]:
    """The settings of the Kafka client: of the Airflow connection that the YAML names, else of the environment. Raises
    AirflowFailException, and CleantailError for what is wrong in them."""
    from cleantail.kafka.client_settings import settings_of_connection, settings_of_environment

    source = topic.source.kafka
    if source is None:
        raise AirflowFailException(f"topic {topic.topic} has no source.kafka in its YAML any more")
    if source.connection is None:
        return settings_of_environment(source, os.environ)
    try:
        connection = BaseHook.get_connection(source.connection)
    except AirflowNotFoundException:
        raise AirflowFailException(
            f"there is no Airflow connection {source.connection}: make one of type {CONNECTION_TYPE}, with "
            "librdkafka's settings as JSON in its extra, bootstrap.servers among them"
        ) from None
    if connection.conn_type != CONNECTION_TYPE:
        raise AirflowFailException(
            f"the Airflow connection {source.connection} is of type {connection.conn_type}, not {CONNECTION_TYPE}"
        )
    return settings_of_connection(source, connection.extra_dejson)


def _write_private(file: Path, settings: Mapping[str, str]) -> None:
    """Made with its mode, so that nobody else can have it open before."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(dict(settings), stream)

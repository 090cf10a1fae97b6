"""The tasks of a topic whose source is Kafka: whether `ingest` has something to read, and with which login."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.sdk import Context

from cleantail.errors import CleantailError
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.tasks.handover import is_on_cluster
from cleantail_airflow.tasks.run_params import ROLLBACK_TO, require_known_params
from cleantail_airflow.tasks.spark_operator import FINAL_EXIT_CODES, CleantailSparkOperator, topic_and_platform


class KafkaClientOperator(CleantailSparkOperator):
    """Is the base of the tasks that read from Kafka. The connection is read in `execute`, and its settings go to the
    job in a file that only its owner can read."""

    client_file: Path | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        with TemporaryDirectory(prefix="cleantail-kafka-") as folder:
            self.client_file = Path(folder) / "client.json"
            return super().execute(context)

    def client_arguments(self, settings: Mapping[str, str]) -> list[str]:
        """Returns the job's arguments that name the file with these settings. A driver on a cluster has none of ours,
        and nobody puts a login into a store: there it is in the driver's own environment."""
        if is_on_cluster(self._connection()):
            return []
        assert self.client_file is not None, "execute has named it"
        _write_private(self.client_file, settings)
        return ["--client-settings", str(self.client_file)]


class KafkaIngestOperator(KafkaClientOperator):
    """Reads from Kafka what the table does not have yet. The brokers are asked first, without Spark: what forbids to
    read is told before anything is started, and where nothing is new the task is skipped."""

    job = "ingest_kafka"

    def arguments(self, context: Context) -> list[str]:
        require_known_params(context)
        if context["params"].get(ROLLBACK_TO):
            self.skip("the run is a rollback")
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        try:
            from cleantail.kafka.table_position import is_read

            settings = client_settings(topic)
            nothing_new = is_read(topic, platform, settings, int(time.time() * 1000))
        except CleantailError as e:
            kind = AirflowFailException if e.exit_code in FINAL_EXIT_CODES else AirflowException
            raise kind(str(e)) from None
        if nothing_new:
            self.skip(f"nothing new: the table has all of {topic.kafka_topic} that may be read from Kafka")
        return self.client_arguments(settings)


def _write_private(file: Path, settings: Mapping[str, str]) -> None:
    """Writes a file that is made with its mode, so that nobody else can have it open before."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(dict(settings), stream)

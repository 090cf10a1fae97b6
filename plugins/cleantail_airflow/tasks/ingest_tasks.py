"""The tasks that read a topic's source: files, Kafka, or a table. Each looks without Spark for what is new, and is
skipped where there is none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.sdk import Context

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.tasks.handover import is_on_cluster
from cleantail_airflow.tasks.run_params import ROLLBACK_TO, require_known_params
from cleantail_airflow.tasks.spark_operator import CleantailSparkOperator, as_airflow, topic_and_platform


class SourceOperator(CleantailSparkOperator):
    """Is the base of these tasks. What forbids to read is told before Spark is started."""

    def arguments(self, context: Context) -> list[str]:
        require_known_params(context)
        if context["params"].get(ROLLBACK_TO):
            self.skip("the run is a rollback")
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        try:
            return self.arguments_of_new(topic, platform)
        except CleantailError as e:
            raise as_airflow(str(e), e.exit_code) from None

    def arguments_of_new(self, topic: Topic, platform: Platform) -> list[str]:
        """Returns the job's arguments. Skips the task where nothing is new. Raises CleantailError."""
        raise NotImplementedError


class IngestOperator(SourceOperator):
    """Appends the files of source.path that the table does not have yet."""

    job = "ingest"

    def arguments_of_new(self, topic: Topic, platform: Platform) -> list[str]:
        from cleantail.lake.runs.new_files import new_files

        files, new = new_files(topic, platform)
        if not new:
            self.skip(
                f"nothing new: the table already has what matches {topic.source.path} ({counted(len(files), 'file')})"
            )
        return [argument for file in new for argument in ("--file", str(file))]


class TableIngestOperator(SourceOperator):
    """Reads what the source table has and the topic's table has not, as the metadata of both say."""

    job = "ingest_table"

    def arguments_of_new(self, topic: Topic, platform: Platform) -> list[str]:
        from cleantail.lake.source_table.planned_read import planned_read

        planned = planned_read(topic, platform, int(time.time() * 1000))
        if planned.plan is None:
            self.skip(f"nothing new: the topic has all that its source table {planned.source.name} has")
        return []


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


class KafkaIngestOperator(KafkaClientOperator, SourceOperator):
    """Reads from Kafka what the table does not have yet, as the brokers say."""

    job = "ingest_kafka"

    def arguments_of_new(self, topic: Topic, platform: Platform) -> list[str]:
        from cleantail.kafka.table_position import is_read

        settings = client_settings(topic)
        if is_read(topic, platform, settings, int(time.time() * 1000)):
            self.skip(f"nothing new: the table has all of {topic.kafka_topic} that may be read from Kafka")
        return self.client_arguments(settings)


def _write_private(file: Path, settings: Mapping[str, str]) -> None:
    """Writes a file that is made with its mode, so that nobody else can have it open before."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        json.dump(dict(settings), stream)

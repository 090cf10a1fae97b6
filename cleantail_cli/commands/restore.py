"""`cleantail restore TOPIC --to TOPIC`: writes a log, or the latest records of its keys, into a topic in Kafka."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.parameters import FILE, NATURAL
from cleantail_cli.progress import Progress
from cleantail_cli.spark import spark_session

if TYPE_CHECKING:
    from cleantail.kafka.restore.restore_plan import RestoreRequest
    from cleantail.kafka.restore.restore_results import RestoreResult


@command(
    "restore",
    parameters.topic,
    click.option("--to", "target", required=True, metavar="TOPIC", help="The topic in Kafka; it has to be empty."),
    click.option("--bootstrap-server", metavar="HOST:PORT", help="Its brokers (CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS)."),
    click.option("--connection", metavar="NAME", help="An Airflow connection of type kafka instead: AIRFLOW_CONN_…"),
    click.option("--command-config", type=FILE, metavar="F", help="Properties of the client, as librdkafka has them."),
    click.option("--log", "log", is_flag=True, help="Every record of the archive, tombstones too (the default)."),
    click.option("--latest", "latest", is_flag=True, help="The latest record of every key, without tombstones."),
    parameters.as_of,
    click.option(
        "--partitions", type=NATURAL, metavar="N", help="How many there were, where the last ones never had a record."
    ),
    examples=[
        "cleantail restore customer-cdc --bootstrap-server kafka:9092 --to customer-cdc-restored",
        "cleantail restore customer-cdc --bootstrap-server kafka:9092 --to customer-state --latest",
    ],
)
def restore(
    call: Invocation,
    topic: str,
    target: str,
    bootstrap_server: str | None,
    connection: str | None,
    command_config: Path | None,
    log: bool,
    latest: bool,
    as_of: str | None,
    partitions: int | None,
) -> int:
    """Write the archive into a topic in Kafka, and read it back.

    Each record once, in its order, with partition, key, value, headers and timestamp of its own. What was written is
    compared with the archive, record by record. A run that was killed goes on by the same command. Exit code 1 where a
    record in Kafka is not the archive's.
    """
    from cleantail.kafka.restore.restore_plan import RestoreRequest
    from cleantail.kafka.restore.target_login import target_settings
    from cleantail_cli.reports.restore import Restored

    if log and latest:
        raise CleantailError("--log and --latest are two different restores: give one of them")
    configured = call.topic(topic)
    request = RestoreRequest(target, "latest" if latest else "log", as_of, partitions)
    if (source := configured.source.table) and (source.columns.deleted or not source.columns.is_of_kafka):
        raise CleantailError(
            f"topic {topic} has keys or values of several columns, or a column that marks deletes (source.table): a "
            "topic in Kafka has bytes, and what they were the table does not say; nothing was written"
        )
    settings = target_settings(bootstrap_server, connection, command_config, os.environ)
    with call.output.progress() as progress:
        result = _restored(configured, call.platform, request, settings, progress)
    call.output.show(Restored(configured, result))
    return 0


def _restored(
    topic: Topic, platform: Platform, request: RestoreRequest, settings: dict[str, str], progress: Progress
) -> RestoreResult:
    """Plans the restore by metadata, and starts Spark only for one that can be."""
    from cleantail.home.locks import exclusive
    from cleantail.kafka.restore.restore_plan import plan_restore
    from cleantail.kafka.restore.target_client import TargetBrokers

    brokers = TargetBrokers(settings)
    with exclusive(platform.home, f"restore-{request.target}"):
        progress("asking the brokers")
        now_ms = int(time.time() * 1000)
        plan = plan_restore(topic, platform, request, brokers, now_ms)

        from spark_jobs.iceberg.tables import TopicTable
        from spark_jobs.restore.restore_topic import Restore

        with spark_session(platform, f"cleantail restore {topic.topic}", progress) as spark:
            table = TopicTable.of(spark, topic, platform)
            return Restore(table, platform, brokers, settings, progress).run(plan, now_ms)

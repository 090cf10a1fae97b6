"""`restore`: write a log, or the latest record of each key, into a topic in Kafka."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted
from cleantail.kafka.restore.restore_results import RESTORE_RESULT_JSON, RestoredLog, RestoreResult
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import Progress, spark_session
from cleantail_cli.output import Page
from cleantail_cli.parameters import FILE, NATURAL

if TYPE_CHECKING:
    from cleantail.kafka.restore.restore_plan import RestoreRequest


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
    from cleantail.home.home_folder import exclusive
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


FOUND = "found"
"""The name under which scripts read how many records an earlier run had written."""


@dataclass(frozen=True)
class Restored:
    """Says how many records each partition got, and which of the archive they are."""

    topic: Topic
    result: RestoreResult

    def document(self) -> dict[str, Any]:
        result = self.result
        totals = {"written": result.written, FOUND: result.already_written, "verified": result.verified}
        plain = RESTORE_RESULT_JSON.plain(result)
        partitions = [
            {FOUND if name == "already_written" else name: n for name, n in log.items()} for log in plain["partitions"]
        ]
        return {"topic": self.topic.topic, **plain, "partitions": partitions, **totals}

    def tell(self, page: Page) -> None:
        result = self.result
        for log in result.partitions:
            page.line(f"partition {log.partition}: {_counts(log)}{_span(log)}")
        which = "the latest records" if result.mode == "latest" else "the log"
        page.line(
            f"{self.topic.topic}: {which} of snapshot {result.snapshot_id} in {result.target}: "
            f"{counted(result.verified, 'record')}, each read back as the archive has it"
        )
        if result.without_type:
            page.warning(
                f"{counted(result.without_type, 'record')} had a timestamp of the broker's own (LogAppendTime): it is "
                "the same, and counts as the producer's (CreateTime)"
            )


def _counts(log: RestoredLog) -> str:
    earlier = f", {log.already_written} were there from an earlier run" if log.already_written else ""
    return f"{counted(log.verified, 'record')}, {log.written} written now{earlier}"


def _span(log: RestoredLog) -> str:
    """Returns which offsets of the archive the partition's first and last record had."""
    if log.first_offset is None:
        return ""
    return f"; offset 0 is the archive's {log.first_offset}, offset {log.verified - 1} its {log.last_offset}"

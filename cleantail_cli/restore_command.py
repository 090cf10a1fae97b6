"""`restore`: write a log, or the latest record of each key, into a topic in Kafka."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.home_folder import exclusive
from cleantail.human import counted
from cleantail.kafka.restore_plan import (
    RESTORE_RESULT_JSON,
    RestoredLog,
    RestoreRequest,
    RestoreResult,
    plan_restore,
    target_settings,
)
from cleantail.kafka.target_client import TargetBrokers
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.long_work import Progress, table_in_spark
from cleantail_cli.output import ConsoleOutput
from cleantail_cli.parameters import NATURAL


@command(
    "restore",
    parameters.topic,
    click.option("--to", "target", required=True, metavar="TOPIC", help="The topic in Kafka; it must be empty."),
    click.option(
        "--bootstrap-server", metavar="HOST:PORT", help="Brokers (default: CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS)."
    ),
    click.option("--connection", metavar="NAME", help="Airflow connection of type kafka, from AIRFLOW_CONN_…."),
    parameters.command_config,
    click.option("--log", "log", is_flag=True, help="Every record of the archive, tombstones too (the default)."),
    click.option("--latest", "latest", is_flag=True, help="The latest record of every key, without tombstones."),
    parameters.as_of,
    click.option(
        "--partitions", type=NATURAL, metavar="N", help="Number of partitions, if the last ones have no records."
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

    Each record is written once and in order, with its partition, key, value, headers and timestamp. Then it is read
    back and compared. After a killed run, the same command continues. The exit code is 1 if a record in Kafka differs
    from the archive.
    """
    if log and latest:
        raise CleantailError("--log and --latest exclude each other: give one of them")
    configured = call.topic(topic)
    request = RestoreRequest(target, "latest" if latest else "log", as_of, partitions)
    if (source := configured.source.table) and (source.columns.deleted or not source.columns.is_of_kafka):
        raise CleantailError(
            f"topic {topic} has keys or values of several columns, or a column that marks deletes (source.table): its "
            "table does not have the bytes that a topic in Kafka needs; nothing was written"
        )
    settings = target_settings(bootstrap_server, connection, command_config, call.platform.env)
    with call.output.progress() as progress:
        result = _restored(configured, request, settings, progress)
    call.output.show(Restored(configured, result))
    return 0


def _restored(topic: Topic, request: RestoreRequest, settings: dict[str, str], progress: Progress) -> RestoreResult:
    """Plan the restore from metadata, and start Spark only if the restore is possible."""
    brokers = TargetBrokers(settings)
    with exclusive(topic.platform.home, f"restore-{request.target}"):
        progress("reading offsets from the brokers")
        now_ms = int(time.time() * 1000)
        plan = plan_restore(topic, request, brokers, now_ms)

        from spark_jobs.restore_topic import Restore

        with table_in_spark(topic, "restore", progress, "pinning the records") as table:
            return Restore(table, brokers, settings, progress).run(plan, now_ms)


FOUND = "found"
"""JSON key of the number of records that an earlier run had written."""


@dataclass(frozen=True)
class Restored:
    """Answer of `restore`: the records written to each partition, and their offsets in the archive."""

    topic: Topic
    result: RestoreResult

    def document(self) -> dict[str, Any]:
        result = self.result
        totals = {"written": result.written, FOUND: result.already_written, "verified": result.verified}
        totals["erased"] = result.erased
        plain = RESTORE_RESULT_JSON.plain(result)
        partitions = [
            {FOUND if name == "already_written" else name: n for name, n in log.items()} for log in plain["partitions"]
        ]
        return {"topic": self.topic.topic, **plain, "partitions": partitions, **totals}

    def print_on(self, page: ConsoleOutput) -> None:
        result = self.result
        for log in result.partitions:
            page.line(f"partition {log.partition}: {_counts(log)}{_span(log)}")
        which = "the latest records" if result.mode == "latest" else "the log"
        page.line(
            f"{self.topic.topic}: {which} of snapshot {result.snapshot_id} in {result.target}: "
            f"{counted(result.verified, 'record')}, each read back and equal to the archive's"
        )
        if result.erased:
            page.warning(
                f"{counted(result.erased, 'record')} of erased keys left out. To write them too, lift the requests: "
                f"cleantail erasures {self.topic.topic} --lift REQUEST. Then restore into an empty topic"
            )
        if result.without_type:
            page.warning(
                f"{counted(result.without_type, 'record')} had a timestamp set by the broker (LogAppendTime). The "
                "restored records have the same timestamps, with the type CreateTime"
            )


def _counts(log: RestoredLog) -> str:
    earlier = f", {log.already_written} written by an earlier run" if log.already_written else ""
    return f"{counted(log.verified, 'record')}, {log.written} written now{earlier}"


def _span(log: RestoredLog) -> str:
    """Return the archive's offsets of the partition's first and last record."""
    if log.first_offset is None:
        return ""
    return f"; offset 0 is the archive's {log.first_offset}, offset {log.verified - 1} its {log.last_offset}"

"""`cleantail ingest TOPIC` without files: what the topic has in Kafka and the table has not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cleantail.config import Platform, Topic
from cleantail.errors import CleantailError
from cleantail.words import counted


def run(topic: Topic, platform: Platform, now_ms: int, for_machines: bool) -> int:
    """Starts Spark only where there is something to read, or the table has no position yet."""
    from cleantail.catalogs import require_usable
    from cleantail.console import progress
    from cleantail.kafka.client_settings import settings_of_environment

    if topic.source.kafka is None:
        raise CleantailError(
            f"topic {topic.topic} has no source.kafka in its YAML: give files with --file, or name its brokers there"
        )
    settings = settings_of_environment(topic.source.kafka, os.environ)
    require_usable(topic, platform, os.environ)
    with progress(for_machines) as step:
        step("asking the brokers")
        result = _nothing(topic) if is_read(topic, platform, settings, now_ms) else None
        if result is None:
            from spark_jobs.kafka.reading import read_topic
            from spark_jobs.session import start_session

            step("starting Spark")
            spark = start_session(platform, f"cleantail ingest {topic.topic}")
            result = read_topic(spark, topic, platform, settings, now_ms, step)
    _report(topic, result, for_machines)
    return 0


def is_read(topic: Topic, platform: Platform, settings: Mapping[str, str], now_ms: int) -> bool:
    """Whether the table has all that may be read. Raises CleantailError for everything that forbids to read, before
    anything is started."""
    from cleantail.kafka.broker_topic import Brokers
    from cleantail.kafka.table_position import table_position

    if topic.columns is not None:
        raise CleantailError(f"topic {topic.topic} has an adopted table, which its sink fills: nothing was appended")
    broker = Brokers(settings, topic.stall_timeout_ms).describe(topic.kafka_topic)
    at = table_position(topic, platform)
    plan = at.plan(topic, broker, now_ms)
    return at.position is not None and not plan.offsets and not plan.gaps


def _nothing(topic: Topic) -> dict[str, Any]:
    empty: dict[str, Any] = {"partitions": [], "gaps": [], "warnings": []}
    return {"ok": True, "kafka_topic": topic.kafka_topic, "records": 0, "commits": 0, **empty}


def _report(topic: Topic, result: Mapping[str, Any], for_machines: bool) -> None:
    import json
    import sys

    if for_machines:
        print(json.dumps({"topic": topic.topic, **result}))
        return
    for row in result["partitions"]:
        print(f"partition {row['partition']}: read from offset {row['from']} to {row['to']}")
    source = f"from {result['kafka_topic']} in Kafka"
    print(f"{topic.topic}: {counted(result['records'], 'record')} appended {source}")
    for text in result["warnings"]:
        print(f"warning: {text}", file=sys.stderr)

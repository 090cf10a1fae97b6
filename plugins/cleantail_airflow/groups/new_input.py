"""Says, without Spark, whether a topic has new input: what has to be brought in before the topic can be evaluated."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cleantail.config.topic import Topic
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail_airflow.kafka_connection import client_settings

if TYPE_CHECKING:
    from cleantail.lake.kept_facts import KeptFacts


RECORD_BYTES_IN_KAFKA = 256
"""Brokers do not say how large records are: each offset that was not read yet is reckoned as so many bytes."""


def new_bytes(topic: Topic, kept: KeptFacts | None = None, silent: SilentBrokers | None = None) -> int | None:
    """Returns how large the new input is, None where nothing is new. `kept`: as in evaluate_topic; `silent`: brokers
    that it remembers are not waited for again. Raises CleantailError.

    What is new in Kafka is reckoned by its offsets. Deletes by values, which are to be converted first, bring no file:
    they are new input of 0 bytes.
    """
    if topic.source.kafka is not None:
        return _unread_bytes(topic, silent or SilentBrokers())
    if topic.source.table is not None:
        from cleantail.lake.pending_input import planned_read

        plan = planned_read(topic, int(time.time() * 1000)).plan
        return None if plan is None else plan.bytes
    if topic.columns is not None:
        return _deletes_by_values(topic)
    if not topic.source.path:
        return None
    from cleantail.lake.pending_input import new_files

    _, new = new_files(topic, kept)
    return sum(file.stat().st_size for file in new if file.exists()) if new else None


def _unread_bytes(topic: Topic, silent: SilentBrokers) -> int | None:
    from cleantail.kafka.table_position import unread_offsets

    settings = client_settings(topic)
    with silent.asked(settings, topic.stall_timeout_ms):
        offsets = unread_offsets(topic, settings, int(time.time() * 1000))
    return None if offsets is None else offsets * RECORD_BYTES_IN_KAFKA


def _deletes_by_values(topic: Topic) -> int | None:
    """Returns 0 where the sink of an adopted table has written deletes that a round cannot read as they are."""
    from cleantail.lake.catalogs import kept_catalog, load_table
    from cleantail.lake.repairable_deletes import foreign_deletes

    table = load_table(kept_catalog(topic.platform), topic)
    return 0 if table is not None and foreign_deletes(table).any else None

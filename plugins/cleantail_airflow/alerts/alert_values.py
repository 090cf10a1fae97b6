"""Puts examples of records into a message, for a channel whose YAML asks for them (`values: true`).

They are read from the table when the message goes out, and Cleantail keeps them nowhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

from cleantail.config.alert_channels import Alert, Event
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.shown_records import ShownRecord, read_shown, snapshot_shown
from cleantail_airflow.alerts.messages import Message
from cleantail_airflow.alerts.red_check import Failure

EXAMPLES_SHOWN = 5
"""A message shows so many records of each failed expectation."""
RecordPosition = tuple[int, int, int]
"""(snapshot, partition, offset)."""

logger = logging.getLogger(__name__)


def asks_for_values(topic: Topic, alert: Alert, event: Event) -> bool:
    """Returns whether the channel is to have values of records in its message about the event.

    A channel may stand in the YAML twice, for other events, and only one of the two entries may ask for values.
    """
    return any(a.values for a in topic.alerts if a.name == alert.name and event in a.events)


def with_values(message: Message, topic: Topic, platform: Platform) -> Message:
    """Adds examples of the records that failed to the message; where they cannot be read it goes out without them."""
    if not any(failure.offsets for failure in message.failures):
        return message
    try:
        records = _read(message.failures, topic, platform)
    except Exception as e:  # whatever the catalog's driver raises: the message is more than its examples
        logger.warning("the records for the alert cannot be read: %s", type(e).__name__)
        return message
    failures = tuple(replace(f, examples=_examples(f, records)) for f in message.failures)
    return replace(message, failures=failures)


def _read(failures: Iterable[Failure], topic: Topic, platform: Platform) -> dict[RecordPosition, ShownRecord]:
    """Reads each log once per snapshot; a snapshot that no branch leads to any more is left out."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    if table is None:
        return {}
    offsets: dict[tuple[int, int], set[int]] = {}
    for f in failures:
        offsets.setdefault((f.snapshot_id, f.partition), set()).update(f.offsets[:EXAMPLES_SHOWN])
    records: dict[RecordPosition, ShownRecord] = {}
    for (snapshot_id, partition), failed_offsets in offsets.items():
        if snapshot_shown(table, snapshot_id, False):
            failed = read_shown(table, partition, failed_offsets, snapshot_id)
            records |= {(snapshot_id, partition, record.offset): record for record in failed}
    return records


def _examples(failure: Failure, records: dict[RecordPosition, ShownRecord]) -> tuple[str, ...]:
    positions = [(failure.snapshot_id, failure.partition, offset) for offset in failure.offsets[:EXAMPLES_SHOWN]]
    return tuple(str(records[position]) for position in positions if position in records)

"""Records in a message, for a channel whose YAML asks for them (`values: true`): read when the message goes out, and
kept nowhere on our side.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

from cleantail.config.alert_channels import Alert
from cleantail.config.events import Event
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.shown_records import ShownRecord, read_shown, snapshot_shown
from cleantail_airflow.alerts.messages import Message
from cleantail_airflow.alerts.red_check import Failure

EXAMPLES_TOLD = 5
"""So many records of each failed expectation."""
Place = tuple[int, int, int]
"""(snapshot, partition, offset)."""

logger = logging.getLogger(__name__)


def asks_for_values(topic: Topic, alert: Alert, event: Event) -> bool:
    """Whether an entry of this channel for the event does: a channel may stand in the YAML twice, for other events."""
    return any(a.values for a in topic.alerts if a.name == alert.name and event in a.events)


def with_values(message: Message, topic: Topic, platform: Platform) -> Message:
    """The message with examples of the records that failed. Where they cannot be read it goes out without them."""
    if not any(failure.offsets for failure in message.failures):
        return message
    try:
        records = _read(message.failures, topic, platform)
    except Exception as e:  # whatever the catalog's driver raises: the message is more than its examples
        logger.warning("the records for the alert cannot be read: %s", type(e).__name__)
        return message
    failures = tuple(replace(f, examples=_examples(f, records)) for f in message.failures)
    return replace(message, failures=failures)


def _read(failures: Iterable[Failure], topic: Topic, platform: Platform) -> dict[Place, ShownRecord]:
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    offsets: dict[tuple[int, int], set[int]] = {}
    for f in failures:
        offsets.setdefault((f.snapshot_id, f.partition), set()).update(f.offsets[:EXAMPLES_TOLD])
    found: dict[Place, ShownRecord] = {}
    for (snapshot_id, partition), wanted in offsets.items() if table is not None else ():
        if table is not None and snapshot_shown(table, snapshot_id, False):
            records = read_shown(table, partition, wanted, snapshot_id)
            found |= {(snapshot_id, partition, record.offset): record for record in records}
    return found


def _examples(failure: Failure, records: dict[Place, ShownRecord]) -> tuple[str, ...]:
    places = [(failure.snapshot_id, failure.partition, offset) for offset in failure.offsets[:EXAMPLES_TOLD]]
    return tuple(str(records[place]) for place in places if place in records)

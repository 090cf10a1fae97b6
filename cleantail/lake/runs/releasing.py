"""Taking a log out of quarantine by hand: the next run tries it at once, and counts its attempts anew."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, ConflictError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.table_metadata import require_partition
from cleantail.lake.table_properties import set_table_property
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState, Quarantine, states_of_properties

logger = logging.getLogger("cleantail.release")

ATTEMPTS = 5
"""Rounds and appends commit at the same time; each of them may come first once."""


def release(topic: Topic, platform: Platform, partition: int, by: str, now_ms: int) -> Quarantine:
    """Lifts the quarantine of one log and gives what it was; nothing else of the log's state changes.

    `by` is the user's name, for the log. Raises CleantailError where the log is not in quarantine, TableError where
    there is no such table or partition, ConflictError when other writers were faster every time.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            lifted = _try(topic, platform, partition, now_ms)
        except ConflictError as e:
            if attempt == ATTEMPTS:
                raise
            logger.warning("release starts over (%d of %d): %s", attempt, ATTEMPTS, e)
            continue
        logger.info(
            "%r released partition %d of %s from quarantine: %s, %d attempts",
            by, partition, topic.topic, lifted.reason, lifted.attempts,
        )  # fmt: skip
        return lifted
    raise AssertionError("unreachable: the last attempt raises")


def _try(topic: Topic, platform: Platform, partition: int, now_ms: int) -> Quarantine:
    catalog = open_catalog(platform, os.environ)
    table = load_table(catalog, topic, platform)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: nothing is in quarantine")
    states = states_of_properties(table.properties, topic.table)
    require_partition(topic, partition, states)
    state = states.get(partition, PartitionState())
    if state.quarantine is None:
        raise CleantailError(f"partition {partition} of topic {topic.topic} is not in quarantine")
    text = replace(state, quarantine=None).as_json()
    set_table_property(catalog, table, f"{PROPERTY_PARTITION}{partition}", text, now_ms)
    return state.quarantine

"""Taking a log out of quarantine by hand: the next run tries it at once, and counts its attempts anew.

Nothing of the table is written: the release is a word beside it, which whoever reads the log's state reads too
(cleantail.log.quarantine). A round may put the log into quarantine again in the same moment. What the person is told
then holds for that quarantine as well: the release starts over.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, OvertakenError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.runs.release_properties import current_releases, write_release
from cleantail.lake.table_metadata import require_partition
from cleantail.log.partition_state import PartitionState, Quarantine, states_of_properties
from cleantail.log.quarantine import Release, Releases, lifted
from cleantail.retries import Retries

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.release")

TRIES = Retries(OvertakenError, tries=5, pause_s=(0.0, 0.1))
"""Rounds publish at the same time; each of them may come first once."""
BY_CHARS = 40
"""Catalogs bound the length of a property's value, and a user's name may have any."""


def release(topic: Topic, platform: Platform, partition: int, by: str, now_ms: int) -> Quarantine:
    """Lifts the quarantine of one log and returns what it was; nothing else of the log's state changes.

    `by` is the user's name, for the log. Raises CleantailError where the log is not in quarantine, TableError where
    there is no such table or partition, OvertakenError when rounds were faster every time.
    """
    catalog = open_catalog(platform, os.environ)

    def starts_over(number: int, error: BaseException) -> None:
        logger.warning("release starts over (%d of %d): %s", number, TRIES.tries, error)

    released = TRIES.run(lambda: _try(catalog, topic, platform, partition, by, now_ms), starts_over)
    logger.info(
        "%r released partition %d of %s from quarantine: %s, %d attempts",
        by, partition, topic.topic, released.reason, released.attempts,
    )  # fmt: skip
    return released


def _try(catalog: Catalog, topic: Topic, platform: Platform, partition: int, by: str, now_ms: int) -> Quarantine:
    states, table_uuid = _states(catalog, topic, platform)
    require_partition(topic, partition, states)
    releases = current_releases(catalog, topic)
    held = lifted(states, releases, table_uuid).get(partition, PartitionState()).quarantine
    if held is None:
        raise CleantailError(f"partition {partition} of topic {topic.topic} is not in quarantine")
    times = (held.since_ms, held.attempts, held.retry_at_ms)
    word = Release(topic.topic, partition, table_uuid, by[:BY_CHARS], now_ms, *times)
    write_release(catalog, topic, word, _outdated(releases, word, states))
    states, table_uuid = _states(catalog, topic, platform)
    if lifted(states, {partition: word}, table_uuid).get(partition, PartitionState()).quarantine:
        raise OvertakenError(f"{topic.table} was changed meanwhile")
    return held


def _states(catalog: Catalog, topic: Topic, platform: Platform) -> tuple[dict[int, PartitionState], str]:
    """Returns the states as the table's properties have them, and the table's UUID."""
    table = load_table(catalog, topic, platform)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: nothing is in quarantine")
    return states_of_properties(table.properties, topic.table), str(table.metadata.table_uuid)


def _outdated(releases: Releases, word: Release, states: Mapping[int, PartitionState]) -> list[Release]:
    """Returns the releases of other logs of the topic that lift nothing any more."""
    others = (release for p, release in releases.items() if p != word.partition)
    return [o for o in others if not o.lifts(states.get(o.partition, PartitionState()).quarantine, word.table_uuid)]

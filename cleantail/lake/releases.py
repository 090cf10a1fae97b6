"""Release a log from quarantine: the next run tries it at once and counts its attempts from zero.

The release is a property of Cleantail's own namespace; the table is not written. Every reader of the log's state also
reads the release (cleantail.log.quarantine). If a round puts the log into quarantine again at the same moment, the
release is tried again and applies to the new quarantine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, OvertakenError, TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.own_namespace import namespace_properties, property_name, write_properties
from cleantail.lake.table_metadata import require_partition
from cleantail.log.partition_state import PartitionState, Quarantine, states_of_properties
from cleantail.log.quarantine import NO_RELEASES, Release, Releases, lifted
from cleantail.retries import Retries

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.release")

PROPERTY_RELEASED = "cleantail.released."
"""Prefix of a property that keeps a release. A hash of topic and partition follows."""
RELEASE_JSON: Codec[Release] = Codec(Release)


def releases_in(properties: Mapping[str, str]) -> dict[str, dict[int, Release]]:
    """Return topic -> the last release of each of its logs, for every topic of a namespace with a release.

    A text that is not a release is skipped with a warning, and lifts no quarantine.
    """
    releases: dict[str, dict[int, Release]] = {}
    for name, text in properties.items():
        if not name.startswith(PROPERTY_RELEASED):
            continue
        try:
            release = RELEASE_JSON.value(text, f"namespace property {name}")
        except TableError as e:
            logger.warning("%s; it is skipped, and lifts no quarantine", e)
            continue
        if name == _property_of(release):  # otherwise it is a copy under another name
            releases.setdefault(release.topic, {})[release.partition] = release
    return releases


def releases_of(topic: Topic, properties: Mapping[str, str]) -> Releases:
    """Return the topic's releases, from its namespace's properties."""
    return releases_in(properties).get(topic.topic, NO_RELEASES)


def current_releases(catalog: Catalog, topic: Topic) -> Releases:
    """Return the topic's releases as they are now, in one call to the catalog."""
    return releases_of(topic, namespace_properties(catalog, topic.own_namespace))


def write_release(catalog: Catalog, topic: Topic, release: Release, outdated: Iterable[Release]) -> None:
    """Store the release in place of the log's last one. The same call removes outdated releases of other logs."""
    removals = {_property_of(other) for other in outdated}
    write_properties(catalog, topic.own_namespace, {_property_of(release): RELEASE_JSON.text(release)}, removals)


def forget_releases(topic: Topic, outdated: Iterable[Release]) -> None:
    """Remove the releases of logs with a new state, so that none applies to it.

    A cleared task has its round's clock, and may leave a quarantine with the same times. A release that a user has
    given meanwhile stays. An error here never fails a round that was published.
    """
    old = {release.partition: release for release in outdated}
    if not old:
        return
    try:
        catalog = open_catalog(topic.platform)
        now = current_releases(catalog, topic)
        removals = {_property_of(release) for p, release in old.items() if now.get(p) == release}
        if removals:
            write_properties(catalog, topic.own_namespace, {}, removals)
    except Exception as e:  # any error of the catalog's driver
        logger.warning(
            "outdated releases of %s were not removed; they have no effect: %s", sorted(old), type(e).__name__
        )


def _property_of(release: Release) -> str:
    return property_name(PROPERTY_RELEASED, release.topic, release.partition)


TRIES = Retries(OvertakenError, tries=5, pause_s=(0.0, 0.1))
"""Maximum number of attempts: each of several rounds that publish at the same time may win once."""
BY_CHARS = 40
"""Catalogs limit the length of a property's value, and a user's name may be long."""


def release(topic: Topic, partition: int, by: str, now_ms: int) -> Quarantine:
    """Lift the quarantine of one log, and return it. The rest of the log's state stays.

    `by` is the user's name, for the log. Raises CleantailError if the log is not in quarantine, TableError if the table
    or partition does not exist, OvertakenError if rounds were faster every time.
    """
    catalog = open_catalog(topic.platform)

    def starts_over(number: int, error: BaseException) -> None:
        logger.warning("release is tried again (%d of %d): %s", number, TRIES.tries, error)

    released = TRIES.run(lambda: _try(catalog, topic, partition, by, now_ms), starts_over)
    logger.info(
        "%r unblocked partition %d of %s: it was blocked by: %s, %d attempts",
        by, partition, topic.topic, released.reason, released.attempts,
    )  # fmt: skip
    return released


def _try(catalog: Catalog, topic: Topic, partition: int, by: str, now_ms: int) -> Quarantine:
    states, table_uuid = _states(catalog, topic)
    require_partition(topic, partition, states)
    releases = current_releases(catalog, topic)
    held = lifted(states, releases, table_uuid).get(partition, PartitionState()).quarantine
    if held is None:
        raise CleantailError(f"partition {partition} of topic {topic.topic} is not blocked")
    times = (held.since_ms, held.attempts, held.retry_at_ms)
    word = Release(topic.topic, partition, table_uuid, by[:BY_CHARS], now_ms, *times)
    others = (release for p, release in releases.items() if p != partition)
    done = [o for o in others if not o.lifts(states.get(o.partition, PartitionState()).quarantine, table_uuid)]
    write_release(catalog, topic, word, done)
    states, table_uuid = _states(catalog, topic)
    if lifted(states, {partition: word}, table_uuid).get(partition, PartitionState()).quarantine:
        raise OvertakenError(f"{topic.table} was changed meanwhile")
    return held


def _states(catalog: Catalog, topic: Topic) -> tuple[dict[int, PartitionState], str]:
    """Return the states from the table's properties, and the table's UUID."""
    table = load_table(catalog, topic)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: nothing is blocked")
    return states_of_properties(table.properties, topic.table), str(table.metadata.table_uuid)

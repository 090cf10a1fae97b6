"""Adapter: the properties of Cleantail's own namespace, which store readers' positions, releases and answers.

Any client of the catalog can write one quickly, without a commit to the table itself. Catalogs limit the length of a
property's name, and usually that of its value. So a name ends in a hash, and the value contains its subject.

A user may release a log from quarantine: the next run tries it at once and counts its attempts from zero.

The release is a property of the namespace; the table is not written. Every reader of the log's state also reads the
release (cleantail.log.quarantine). If a round puts the log into quarantine again at the same moment, the release is
tried again and applies to the new quarantine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.codec import Codec, digest_of
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, OvertakenError, TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.table_metadata import require_partition
from cleantail.log.horizons import Reader
from cleantail.log.partition_state import PartitionState, Quarantine, states_of_properties
from cleantail.log.quarantine import NO_RELEASES, Release, Releases, lifted
from cleantail.retries import Retries, settled

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True, slots=True)
class _Owned:
    """The fields that all these values share."""

    topic: str


_OWNER_JSON: Codec[_Owned] = Codec(_Owned)


def namespace_properties(catalog: Catalog, namespace: str) -> dict[str, str]:
    """Read the properties in one call. Empty if the namespace does not exist."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        return dict(catalog.load_namespace_properties(namespace))
    except NoSuchNamespaceError:
        return {}


def write_properties(catalog: Catalog, namespace: str, updates: Mapping[str, str], removals: set[str]) -> None:
    """Write and remove properties; no property may be in both sets.

    The namespace is created only if it is missing: a login may change properties but not create namespaces.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError

    def write() -> None:
        catalog.update_namespace_properties(namespace, removals=removals, updates=dict(updates))

    try:
        settled(write)
    except NoSuchNamespaceError:

        def create_and_write() -> None:
            catalog.create_namespace_if_not_exists(namespace)
            write()

        settled(create_and_write, unsure=NoSuchNamespaceError)


def property_name(prefix: str, *identity: object) -> str:
    """Return the prefix and a hash of the subject. Two topics never share a property, even if their names are alike."""
    return prefix + digest_of(identity)


def topic_of_value(text: str) -> str | None:
    """Return the topic that a value names, even if the rest of the value cannot be read."""
    try:
        return _OWNER_JSON.value(text, "").topic
    except TableError:
        return None


logger = logging.getLogger("cleantail.readers")

PROPERTY_READER = "cleantail.reader."
"""Prefix of a property that keeps a position. A hash of topic, name and partition follows."""
READER_JSON: Codec[Reader] = Codec(Reader)


def remove(catalog: Catalog, topic: Topic, name: str, partition: int | None = None) -> list[Reader]:
    """Remove a reader from one log or from all. Returns the positions that it had."""
    removed = [r for r in registered(catalog, topic) if r.name == name and partition in (None, r.partition)]
    if removed:
        write_properties(catalog, topic.own_namespace, {}, {property_of(r) for r in removed})
    return removed


def registered(catalog: Catalog, topic: Topic) -> tuple[Reader, ...]:
    """Return the topic's readers by partition and name. Raises TableError as readers_of does."""
    return readers_of(topic, namespace_properties(catalog, topic.own_namespace))


def readers_of(topic: Topic, properties: Mapping[str, str]) -> tuple[Reader, ...]:
    """Return the topic's readers by partition and name, from its namespace's properties.

    Raises TableError if a property of this topic is not a position. Other invalid properties are skipped with a
    warning.
    """
    readers, broken = readers_in(properties)
    if topic.topic in broken:
        raise TableError(broken[topic.topic])
    for problem in broken.values():
        logger.warning("%s; it is skipped", problem)
    return readers.get(topic.topic, ())


def readers_in(properties: Mapping[str, str]) -> tuple[dict[str, tuple[Reader, ...]], dict[str, str]]:
    """Return the readers of every topic in a namespace, and the errors of topics with an invalid property.

    The first is topic -> its readers by partition and name, the second topic -> error text. An invalid property that
    names no topic is skipped with a warning.
    """
    positions: dict[str, list[Reader]] = {}
    broken: dict[str, str] = {}
    for name, text in sorted(properties.items()):
        if not name.startswith(PROPERTY_READER):
            continue
        where = f"namespace property {name}"
        try:
            reader = _position(text, where)
            positions.setdefault(reader.topic, []).append(reader)
        except TableError as e:
            if (topic := topic_of_value(text)) is not None:
                broken[topic] = str(e)
            else:
                logger.warning("%s is not a reader's position and is skipped", where)
    in_order = {topic: sorted(readers, key=lambda r: (r.partition, r.name)) for topic, readers in positions.items()}
    return {topic: tuple(readers) for topic, readers in in_order.items()}, broken


def _position(text: str, where: str) -> Reader:
    """Parse a position. Raises TableError, naming `where`, if the text is not a position."""
    try:
        reader = READER_JSON.value(text, where)
    except TableError as e:
        raise TableError(f"{where} is not a reader's position: {e}") from None
    if min(reader.partition, reader.offset, reader.at_ms) < 0:
        raise TableError(f"{where} is not a reader's position: it has a number below 0")
    return reader


def property_of(reader: Reader) -> str:
    """Return the name of the property that keeps the reader's position."""
    return property_name(PROPERTY_READER, reader.topic, reader.name, reader.partition)


release_logger = logging.getLogger("cleantail.release")

PROPERTY_RELEASED = "cleantail.released."
"""Prefix of a property that keeps a release. A hash of topic and partition follows."""
RELEASE_JSON: Codec[Release] = Codec(Release)


def releases_in(properties: Mapping[str, str]) -> dict[str, dict[int, Release]]:
    """Return topic -> the last release of each of its logs, for every topic of a namespace that has any.

    A text that is not a release lifts no quarantine. It is skipped with a warning.
    """
    releases: dict[str, dict[int, Release]] = {}
    for name, text in properties.items():
        if not name.startswith(PROPERTY_RELEASED):
            continue
        try:
            release = RELEASE_JSON.value(text, f"namespace property {name}")
        except TableError as e:
            release_logger.warning("%s; it is skipped, and lifts no quarantine", e)
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
        release_logger.warning(
            "outdated releases of %s were not removed; they have no effect: %s", sorted(old), type(e).__name__
        )


def _property_of(release: Release) -> str:
    return property_name(PROPERTY_RELEASED, release.topic, release.partition)


TRIES = Retries(OvertakenError, tries=5, pause_s=(0.0, 0.1))
"""Maximum number of attempts: each of several rounds that publish at the same time may win once."""
BY_CHARS = 40
"""Catalogs limit the length of a property's value, and a user's name may be long."""


def release(topic: Topic, partition: int, by: str, now_ms: int) -> Quarantine:
    """Lift the quarantine of one log and return what it was. The rest of its state stays.

    `by` is the user's name, for the log. Raises CleantailError if the log is not in quarantine, TableError if the table
    or partition does not exist, OvertakenError if rounds were faster every time.
    """
    catalog = open_catalog(topic.platform)

    def starts_over(number: int, error: BaseException) -> None:
        release_logger.warning("release is tried again (%d of %d): %s", number, TRIES.tries, error)

    released = TRIES.run(lambda: _try(catalog, topic, partition, by, now_ms), starts_over)
    release_logger.info(
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
    write_release(catalog, topic, word, _outdated(releases, word, states))
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


def _outdated(releases: Releases, word: Release, states: Mapping[int, PartitionState]) -> list[Release]:
    """Return the releases of the topic's other logs that no longer lift a quarantine."""
    others = (release for p, release in releases.items() if p != word.partition)
    return [o for o in others if not o.lifts(states.get(o.partition, PartitionState()).quarantine, word.table_uuid)]

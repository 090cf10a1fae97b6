"""Adapter: releases from quarantine, which are properties of Cleantail's own namespace."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cleantail.codec import Codec
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.namespaces import namespace_properties, property_name, write_properties
from cleantail.log.quarantine import NO_RELEASES, Release, Releases

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.release")

PROPERTY_RELEASED = "cleantail.released."
"""So begins the name of a property that keeps a release; a hash of topic and partition follows."""
RELEASE_JSON: Codec[Release] = Codec(Release)


def releases_in(properties: Mapping[str, str]) -> dict[str, dict[int, Release]]:
    """Returns topic -> the last release of each of its logs, of every topic of a namespace that has any.

    A text that is no release lifts nothing: what it may have been about stays in quarantine, with a warning.
    """
    releases: dict[str, dict[int, Release]] = {}
    for name, text in properties.items():
        if not name.startswith(PROPERTY_RELEASED):
            continue
        try:
            release = RELEASE_JSON.value(text, f"namespace property {name}")
        except TableError as e:
            logger.warning("%s; it is passed over, and lifts no quarantine", e)
            continue
        if name == _property_of(release):  # else somebody has copied it
            releases.setdefault(release.topic, {})[release.partition] = release
    return releases


def releases_of(topic: Topic, properties: Mapping[str, str]) -> Releases:
    """Returns the topic's releases, from its namespace's properties."""
    return releases_in(properties).get(topic.topic, NO_RELEASES)


def current_releases(catalog: Catalog, topic: Topic) -> Releases:
    """Returns the topic's releases as they are now, in one call to the catalog."""
    return releases_of(topic, namespace_properties(catalog, topic.own_namespace))


def write_release(catalog: Catalog, topic: Topic, release: Release, outdated: Iterable[Release]) -> None:
    """Keeps the release in the place of the log's last one; outdated ones of other logs go with the same call."""
    removals = {_property_of(other) for other in outdated}
    write_properties(catalog, topic.own_namespace, {_property_of(release): RELEASE_JSON.text(release)}, removals)


def forget_releases(topic: Topic, platform: Platform, outdated: Iterable[Release]) -> None:
    """Removes releases of logs whose states were written anew, so that none is ever taken for a word about the new
    state: a task that is cleared has its round's clock, and may leave a quarantine of the very same times.

    One that a person has given meanwhile stays. Nothing that goes wrong here makes a round fail that was published.
    """
    old = {release.partition: release for release in outdated}
    if not old:
        return
    try:
        catalog = open_catalog(platform, os.environ)
        now = current_releases(catalog, topic)
        removals = {_property_of(release) for p, release in old.items() if now.get(p) == release}
        if removals:
            write_properties(catalog, topic.own_namespace, {}, removals)
    except Exception as e:  # whatever the catalog's driver raises
        logger.warning("releases of %s are left for later, and lift nothing: %s", sorted(old), type(e).__name__)


def _property_of(release: Release) -> str:
    return property_name(PROPERTY_RELEASED, release.topic, release.partition)

"""Adapter: the properties of Cleantail's own namespace, where readers' positions, releases and answers are kept.

Any client of the catalog writes one quickly, without a commit to the table itself. Catalogs bound the length of a
property's name, and mostly that of its value, so a name ends in a hash and the value says what it is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.codec import Codec, digest_of
from cleantail.errors import TableError
from cleantail.retries import settled

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True, slots=True)
class _Owned:
    """Holds the part that all such values have."""

    topic: str


_OWNER_JSON: Codec[_Owned] = Codec(_Owned)


def namespace_properties(catalog: Catalog, namespace: str) -> dict[str, str]:
    """Reads them in one call; there are none where there is no such namespace."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        return dict(catalog.load_namespace_properties(namespace))
    except NoSuchNamespaceError:
        return {}


def write_properties(catalog: Catalog, namespace: str, updates: Mapping[str, str], removals: set[str]) -> None:
    """Writes and removes properties, none of them both. The namespace is made where there is none, and only there: a
    catalog may forbid it to whoever may change its properties."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    def write() -> None:
        catalog.update_namespace_properties(namespace, removals=removals, updates=dict(updates))

    try:
        settled(write)
    except NoSuchNamespaceError:
        settled(lambda: catalog.create_namespace_if_not_exists(namespace))
        settled(write)


def property_name(prefix: str, *identity: object) -> str:
    """Returns the prefix and a hash of what the value is about, so that no two topics meet whatever their names."""
    return prefix + digest_of(identity)


def topic_of_value(text: str) -> str | None:
    """Returns the topic that a value names, also where the rest of it cannot be read."""
    try:
        return _OWNER_JSON.value(text, "").topic
    except TableError:
        return None

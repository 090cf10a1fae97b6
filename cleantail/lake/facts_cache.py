"""Cache of the facts in many tables' metadata, for a process that evaluates one table after another.

1. A table's metadata never change under one location, so cached facts are valid until the catalog names another
   location. If a catalog can list the locations of all its tables, one call reads them when the evaluation begins.
   Otherwise each table is loaded, but its manifests are not read again.
2. Facts are stored on disk, in CLEANTAIL_HOME/evaluate/facts.db, and read back topic by topic. Only the facts of one
   table are in memory. Facts contain numbers and paths of files, no key and no value of a record. Therefore an adopted
   table is not cached if its partitions use other columns than log, offset and time.
3. Positions of readers and releases change without a commit to the table. They are read once for each namespace.
4. The cache only decides which topics a run works on. Every round is planned from the table itself.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleantail.codec import Codec
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import OFFSET, PARTITION, TIMESTAMP
from cleantail.errors import TableError
from cleantail.home.text_cache import TextCache
from cleantail.lake.catalogs import kept_catalog, load_table, metadata_locations
from cleantail.lake.own_namespace import namespace_properties, readers_in
from cleantail.lake.releases import releases_in
from cleantail.lake.table_metadata import TableFacts, table_facts
from cleantail.log.quarantine import NO_RELEASES

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@cache
def code_digest() -> str:
    """Return the digest of PyIceberg's version and of all modules of the package `cleantail`.

    These are a few hundred files, which a process reads once.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(version("pyiceberg").encode())
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode())
        with suppress(FileNotFoundError):  # a file may disappear while another version of the package is installed
            digest.update(file.read_bytes())
    return digest.hexdigest()


def partitioned_by_values(topic: Topic, table: Table) -> bool:
    """Return whether a partition of the table, now or before, uses a column other than a record's log, offset and time.

    Iceberg writes partition values into manifests, and usually into the paths of files.
    """
    paths = topic.columns.paths if topic.columns else {name: name for name in (PARTITION, OFFSET, TIMESTAMP)}
    harmless = {paths[name] for name in (PARTITION, OFFSET, TIMESTAMP) if name in paths}
    fields = [field for spec in table.specs().values() for field in spec.fields]
    return any(table.schema().find_column_name(field.source_id) not in harmless for field in fields)


FOLDER, FILE = "evaluate", "facts.db"
MOST_CHARS = 1_000_000
"""A longer text, of more than about a thousand files, is not cached: a thousand of them would take a gigabyte."""
FACTS_JSON: Codec[TableFacts] = Codec(TableFacts)


class FactsCache:
    """Reads the metadata of one platform's tables, for one evaluation.

    Raises the errors of read_facts if a catalog is out of reach or a table is not usable.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._locations = metadata_locations(self._catalog, platform)
        self._texts = TextCache(platform.home, FOLDER, FILE)
        self._texts.drop_old()
        self._namespaces: dict[str, tuple[Any, dict[str, str], Any]] = {}
        """Namespace -> topic -> its readers; topic -> the error of a reader; topic -> its releases."""
        self._last: tuple[Topic | None, TableFacts | None] = (None, None)

    def of(self, topic: Topic) -> TableFacts | None:
        """Return the facts of the topic's table, like read_facts. None if nothing was ingested yet."""
        if self._last[0] is not topic:
            facts = self._of_table(topic)
            self._last = (topic, None if facts is None else self._with_namespace(topic, facts))
        return self._last[1]

    def _of_table(self, topic: Topic) -> TableFacts | None:
        location = self._locations.get(topic.table)
        if location and (kept := self._kept(topic, location)) is not None:
            return kept
        table = load_table(self._catalog, topic)
        if table is None:
            return None
        newer = table.metadata_location
        if newer not in ("", location) and (kept := self._kept(topic, newer)) is not None:
            return kept
        facts = table_facts(table)
        if newer and not partitioned_by_values(topic, table) and len(text := FACTS_JSON.text(facts)) <= MOST_CHARS:
            self._texts.keep(topic.topic, _key(topic, newer), text)
        return facts

    def _kept(self, topic: Topic, location: str) -> TableFacts | None:
        return FACTS_JSON.value_or_none(self._texts.text(topic.topic, _key(topic, location)))

    @property
    def _catalog(self) -> Catalog:
        return kept_catalog(self._platform)

    def _with_namespace(self, topic: Topic, facts: TableFacts) -> TableFacts:
        """Return the facts with the topic's readers and releases. Raises TableError as readers_of does."""
        if (name := topic.own_namespace) not in self._namespaces:
            properties = namespace_properties(self._catalog, name)
            self._namespaces[name] = (*readers_in(properties), releases_in(properties))
        readers, broken, releases = self._namespaces[name]
        if topic.topic in broken:
            raise TableError(broken[topic.topic])
        return facts.with_namespace(readers.get(topic.topic, ()), releases.get(topic.topic, NO_RELEASES))


def _key(topic: Topic, location: str) -> str:
    """Return the inputs that determine the facts: this code, the topic, table, columns and metadata."""
    owner = topic.model_dump_json(include={"topic", "table", "columns"})
    return f"{hashlib.sha256(f'{code_digest()} {owner}'.encode()).hexdigest()[:32]} {location}"

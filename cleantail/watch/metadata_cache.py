"""What many tables say, quickly: metadata read in parallel and kept for as long as the catalog points to it.

1. A table's metadata never changes under one location, so an entry is right until the catalog names another location.
2. A call waits only so long. Tables that were not read by then are None in its answer, and there at the next call.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.errors import CleantailError, OutsideError
from cleantail.lake.catalog_errors import cause
from cleantail.lake.catalogs import is_outdated, load_table, open_catalog
from cleantail.lake.evidence_table import read_evidence
from cleantail.lake.foreign_errors import explained
from cleantail.lake.namespaces import namespace_properties
from cleantail.lake.runs.reader_properties import readers_in
from cleantail.lake.runs.release_properties import releases_in
from cleantail.lake.runs.rollback_preview import history_of
from cleantail.lake.table_metadata import TableFacts, ancestry, table_facts
from cleantail.log.reader_positions import Reader, namespace_of
from cleantail.log.releases import NO_RELEASES, Releases
from cleantail.rounds.past_rounds import Round
from cleantail.rounds.rollback import UndoneRound, published_rounds, rollbacks
from cleantail.rounds.size_history import SizePoint, size_point
from cleantail.watch.evidence_totals import EvidenceTotals
from cleantail.watch.log_metrics import Totals

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

READERS = 4
LOCATIONS_LIVE_S = 2.0
ERRORS_LIVE_S = 10.0
MOST_EVIDENCE = 64
"""The number of topics whose rounds are kept at once."""


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """Describes a topic's table as it was read, or the error.

    `facts` is None where there is no table. `sizes` are by snapshot. `undoable` are the rounds that can be undone,
    newest first, and `undone` those that rollbacks have undone (Unix ms, names).
    """

    facts: TableFacts | None = None
    sizes: tuple[SizePoint, ...] = ()
    undoable: tuple[UndoneRound, ...] = ()
    undone: tuple[tuple[int, tuple[str, ...]], ...] = ()
    error: str = ""


class MetadataCache:
    """Keeps the tables of one platform. It is safe to use from many threads."""

    def __init__(self, platform: Platform, clock: Callable[[], float] = time.monotonic) -> None:
        self._platform = platform
        self._clock = clock
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="cleantail-metadata")
        self._catalog: tuple[float, Catalog] | None = None
        self._locations: tuple[float, dict[str, str]] = (float("-inf"), {})
        self._tables: dict[str, tuple[str, float, Future[ObservedTable]]] = {}
        self._observed: dict[str, tuple[str, ObservedTable]] = {}
        self._evidence: dict[tuple[str, str], list[Round]] = {}
        self._totals = EvidenceTotals(lambda: _load_or_none(self._open(), self._evidence_name))

    def observe(self, topics: Sequence[Topic], within_s: float) -> dict[str, ObservedTable | None]:
        """Returns topic name -> what its table says, None for tables that `within_s` was too short for. Raises
        OutsideError where the catalog cannot be reached."""
        locations = self._current_locations()
        with self._lock:
            reads = {t.topic: self._read_of(t, locations.get(t.table, "")) for t in topics}
        wait(reads.values(), timeout=within_s)
        return {name: read.result() if read.done() else None for name, read in reads.items()}

    def with_namespaces(
        self, topics: Sequence[Topic], seen: Mapping[str, ObservedTable | None]
    ) -> dict[str, ObservedTable | None]:
        """Returns what was observed, with the topics' readers and releases as they are now: a position moves, and a
        quarantine is lifted, without a commit to the table.

        The catalog is asked once for each namespace. A broken position makes its topic unreadable, as runs of the topic
        would fail by it.
        """
        observed: dict[str, ObservedTable | None] = dict(seen)
        for namespace, of_namespace in _by_namespace(topics).items():
            try:
                properties = namespace_properties(self._open(), namespace)
            except CleantailError as e:
                observed |= {t.topic: ObservedTable(error=str(e)) for t in of_namespace if observed.get(t.topic)}
                continue
            (readers, broken), releases = readers_in(properties), releases_in(properties)
            for topic in of_namespace:
                if observed.get(topic.topic) and topic.topic in broken:
                    observed[topic.topic] = ObservedTable(error=broken[topic.topic])
                    continue
                of_topic = readers.get(topic.topic, ()), releases.get(topic.topic, NO_RELEASES)
                observed[topic.topic] = _as_of_now(observed.get(topic.topic), *of_topic)
        return observed

    def rounds(self, topic: Topic) -> list[Round]:
        """Returns the topic's rounds in the evidence table, newest first."""
        table = _load_or_none(self._open(), self._evidence_name)
        if table is None:
            return []
        key = (table.metadata_location, topic.topic)
        if (kept := self._evidence.get(key)) is not None:
            return kept
        rounds = read_evidence(table, topic.topic)
        with self._lock:
            while len(self._evidence) >= MOST_EVIDENCE:
                self._evidence.pop(next(iter(self._evidence)))
            self._evidence[key] = rounds
        return rounds

    def totals(self, within_s: float) -> Totals | None:
        """Returns counters over the whole evidence table; None while it is read for the first time. Raises OutsideError
        where the catalog cannot be reached."""
        return self._totals.current(self._current_locations().get(self._evidence_name, ""), within_s)

    @property
    def _evidence_name(self) -> str:
        return f"{self._platform.catalog.namespace}.{EVIDENCE}"

    def forget(self, topic: Topic) -> None:
        """Makes the next call ask the catalog again: after a change of our own."""
        with self._lock:
            self._locations = (float("-inf"), {})
            self._tables.pop(topic.topic, None)

    def _open(self) -> Catalog:
        with self._lock:
            if self._catalog is None or is_outdated(self._platform, self._catalog[0], self._clock()):
                self._catalog = (self._clock(), open_catalog(self._platform, os.environ))
            return self._catalog[1]

    def _current_locations(self) -> dict[str, str]:
        at_s, locations = self._locations
        if self._clock() - at_s < LOCATIONS_LIVE_S:
            return locations
        locations = metadata_locations(self._open())
        self._locations = (self._clock(), locations)
        return locations

    def _read_of(self, topic: Topic, location: str) -> Future[ObservedTable]:
        """Returns the read of the table at this location, begun where there is none; called with the lock held."""
        entry = self._tables.get(topic.topic)
        if entry is not None and entry[0] == f"{topic.table} {location}" and not self._is_stale(location, *entry[1:]):
            return entry[2]
        read = self._pool.submit(self._read, topic)
        self._tables[topic.topic] = (f"{topic.table} {location}", self._clock(), read)
        return read

    def _is_stale(self, location: str, began_s: float, read: Future[ObservedTable]) -> bool:
        """Returns whether to read again: errors are tried again after a while, and so are tables of a catalog that
        lists no locations."""
        if not read.done():
            return False
        keep_s = ERRORS_LIVE_S if read.result().error else float("inf") if location else LOCATIONS_LIVE_S
        return self._clock() - began_s >= keep_s

    def _read(self, topic: Topic) -> ObservedTable:
        try:
            table = load_table(self._open(), topic, self._platform)
            if table is None:
                return ObservedTable()
            location, observed = self._observed.get(topic.topic, ("", ObservedTable()))
            if location != table.metadata_location:  # a catalog that lists no locations is asked every two seconds
                observed = _observe_table(table)
                self._observed[topic.topic] = (table.metadata_location, observed)
            return observed
        except CleantailError as e:
            return ObservedTable(error=str(e))
        except Exception as e:  # one table that cannot be read never hides the others
            return ObservedTable(error=str(explained(e) or f"{type(e).__name__}: {e}"))


def _by_namespace(topics: Sequence[Topic]) -> dict[str, list[Topic]]:
    by_namespace: dict[str, list[Topic]] = {}
    for topic in topics:
        by_namespace.setdefault(namespace_of(topic), []).append(topic)
    return by_namespace


def _as_of_now(observed: ObservedTable | None, readers: tuple[Reader, ...], releases: Releases) -> ObservedTable | None:
    if observed is None or observed.facts is None or not (readers or releases):
        return observed
    return replace(observed, facts=observed.facts.with_namespace(readers, releases))


def _observe_table(table: Table) -> ObservedTable:
    history = list(history_of(table))
    return ObservedTable(table_facts(table), size_points(table), published_rounds(history), rollbacks(history))


def metadata_locations(catalog: Catalog) -> dict[str, str]:
    """Returns `namespace.table` -> location of its metadata, in one query; empty for a catalog that has no such
    list."""
    from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.orm import Session

    if not isinstance(catalog, SqlCatalog):
        return {}
    columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    try:
        with Session(catalog.engine) as session:
            rows = session.execute(select(*columns).where(IcebergTables.catalog_name == catalog.name)).all()
    except SQLAlchemyError as e:
        raise OutsideError(f"catalog {catalog.name} cannot be reached: {cause(e)}") from None
    return {f"{namespace}.{name}": location or "" for namespace, name, location in rows}


def size_points(table: Table) -> tuple[SizePoint, ...]:
    """Returns one point a snapshot of main's history. Branches of rounds are left out: readers never saw them."""
    summaries = (
        (s.timestamp_ms, s.summary) for s in ancestry(table, table.current_snapshot()) if s.summary is not None
    )
    points = [size_point(at_ms, summary.operation.value, summary.additional_properties) for at_ms, summary in summaries]
    return tuple(reversed(points))


def _load_or_none(catalog: Catalog, identifier: str) -> Table | None:
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        return None

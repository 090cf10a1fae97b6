"""Holds what many tables say, quickly: metadata read in parallel and kept for as long as the catalog points to it.

1. A table's metadata never changes under one location, so what was read is right until the catalog names another one.
2. A call waits only so long. Tables that were not read by then have what was read before the last commit, and None
   where nothing was; they are right at the next call.
3. Of all tables only a summary is kept, in memory and on the disk (kept_texts); of a few the whole.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.errors import CleantailError
from cleantail.home.kept_texts import KeptTexts
from cleantail.lake.catalogs import is_outdated, load_table, metadata_locations, open_catalog
from cleantail.lake.evidence_table import load_evidence, read_evidence
from cleantail.lake.kept.partition_values import partitioned_by_values
from cleantail.lake.namespaces import namespace_properties
from cleantail.lake.runs.reader_properties import readers_in
from cleantail.lake.runs.release_properties import releases_in
from cleantail.lake.table_metadata import table_facts
from cleantail.log.horizons import namespace_of
from cleantail.log.quarantine import NO_RELEASES
from cleantail.rounds.past_rounds import Round
from cleantail.watch.evidence_totals import EvidenceTotals
from cleantail.watch.log_metrics import Totals
from cleantail.watch.observed_table import ObservedTable, observed_table, size_points
from cleantail.watch.table_reads import TableReads
from cleantail.watch.table_summary import SUMMARY_JSON, TableSummary, summary_digest, summary_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

FOLDER, FILE = "page", "summaries.db"
"""Where the summaries are kept in CLEANTAIL_HOME: so a server that has just started need not read every table anew."""
READERS, READERS_OF_WHOLE = 4, 2
LOCATIONS_LIVE_S = 2.0
MOST_WHOLE = 16
"""The number of tables that are kept as a whole."""
MOST_EVIDENCE = 64
"""The number of topics whose rounds are kept at once."""

Seen = TypeVar("Seen", ObservedTable, TableSummary)


class MetadataCache:
    """Keeps the tables of one platform. It is safe to use from many threads."""

    def __init__(self, platform: Platform, clock: Callable[[], float] = time.monotonic) -> None:
        self._platform = platform
        self._clock = clock
        self._lock = threading.Lock()
        self._catalog: tuple[float, Catalog] | None = None
        self._locations: tuple[float, dict[str, str]] = (float("-inf"), {})
        self._whole = TableReads(self._read_whole, ObservedTable, _pool(READERS_OF_WHOLE), clock, MOST_WHOLE)
        self._summaries = TableReads(self._read_summary, TableSummary, _pool(READERS), clock)
        self._kept = KeptTexts(platform.home, FOLDER, FILE)
        self._kept_lock = threading.Lock()
        self._loaded: dict[str, tuple[str, str]] = {}
        self._is_loaded = False
        self._digests: dict[str, tuple[Topic, str]] = {}
        self._evidence: dict[tuple[str, str], list[Round]] = {}
        self._totals = EvidenceTotals(lambda: load_evidence(self._open(), platform))

    def observe(self, topics: Sequence[Topic], within_s: float) -> dict[str, ObservedTable | None]:
        """Returns topic name -> what its table says, for few topics. Raises OutsideError where the catalog cannot be
        reached."""
        locations = self._current_locations()
        return self._whole.of(topics, lambda topic: (topic.table, locations.get(topic.table, "")), within_s)

    def summaries(self, topics: Sequence[Topic], within_s: float) -> dict[str, TableSummary | None]:
        """Returns topic name -> its table in short, for any number of topics. Raises OutsideError where the catalog
        cannot be reached."""
        locations = self._current_locations()
        return self._summaries.of(topics, lambda t: (self._digest(t), locations.get(t.table, "")), within_s)

    def with_namespaces(self, topics: Sequence[Topic], seen: Mapping[str, Seen | None]) -> dict[str, Seen | None]:
        """Returns what was observed, with the topics' readers and releases as they are now: a position moves, and a
        quarantine is lifted, without a commit to the table.

        The catalog is asked once for each namespace. A broken position makes its topic unreadable, as runs of the topic
        would fail by it.
        """
        now: dict[str, Seen | None] = dict(seen)
        for namespace, of_namespace in _by_namespace(topics).items():
            read = [(topic.topic, table) for topic in of_namespace if (table := seen.get(topic.topic)) is not None]
            try:
                properties = namespace_properties(self._open(), namespace)
            except CleantailError as e:
                now |= {name: type(table)(error=str(e)) for name, table in read}
                continue
            (readers, broken), releases = readers_in(properties), releases_in(properties)
            for name, table in read:
                if name in broken:
                    now[name] = type(table)(error=broken[name])
                else:
                    now[name] = table.with_namespace(readers.get(name, ()), releases.get(name, NO_RELEASES))
        return now

    def rounds(self, topic: Topic) -> list[Round]:
        """Returns the topic's rounds in the evidence table, newest first."""
        table = load_evidence(self._open(), self._platform)
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

    def at_rest(self) -> AbstractContextManager[None]:
        """Returns a block in which no further table is read for its summary."""
        return self._summaries.at_rest()

    @property
    def _evidence_name(self) -> str:
        return f"{self._platform.catalog.namespace}.{EVIDENCE}"

    def forget(self, topic: Topic) -> None:
        """Makes the next call ask the catalog again: after a change of our own."""
        self._locations = (float("-inf"), {})
        self._whole.forget(topic.topic)
        self._summaries.forget(topic.topic)

    def _open(self) -> Catalog:
        with self._lock:
            if self._catalog is None or is_outdated(self._platform, self._catalog[0], self._clock()):
                self._catalog = (self._clock(), open_catalog(self._platform, os.environ))
            return self._catalog[1]

    def _current_locations(self) -> dict[str, str]:
        at_s, locations = self._locations
        if self._clock() - at_s < LOCATIONS_LIVE_S:
            return locations
        locations = metadata_locations(self._open(), self._platform)
        self._locations = (self._clock(), locations)
        return locations

    def _digest(self, topic: Topic) -> str:
        known = self._digests.get(topic.topic)
        if known is None or known[0] is not topic:
            known = self._digests[topic.topic] = (topic, summary_digest(topic))
        return known[1]

    def _read_whole(self, topic: Topic, _: str) -> ObservedTable:
        table = load_table(self._open(), topic, self._platform)
        return ObservedTable() if table is None else observed_table(table)

    def _read_summary(self, topic: Topic, location: str) -> TableSummary:
        """Returns the summary that is kept of this location; else reads the table, as far as none is kept of where its
        metadata really is."""
        if location and (kept := self._kept_summary(topic, location)) is not None:
            return kept
        table = load_table(self._open(), topic, self._platform)
        if table is None:
            return TableSummary()
        if not location and (kept := self._kept_summary(topic, table.metadata_location)) is not None:
            return kept
        summary = summary_of(topic, table_facts(table), size_points(table))
        if any(log.keyless for log in summary.logs) and partitioned_by_values(topic, table):
            return summary  # it names files, whose names may hold values
        key, text = f"{self._digest(topic)} {table.metadata_location}", SUMMARY_JSON.text(summary)
        self._kept.keep(topic.topic, key, text)
        if not location:  # soon asked for again, of the same metadata as likely as not
            with self._kept_lock:
                self._loaded[topic.topic] = (key, text)
        return summary

    def _kept_summary(self, topic: Topic, location: str) -> TableSummary | None:
        with self._kept_lock:
            if not self._is_loaded:
                self._loaded, self._is_loaded = self._kept.load(), True
            key, text = self._loaded.get(topic.topic, ("", ""))
        if key != f"{self._digest(topic)} {location}":
            return None
        try:
            return SUMMARY_JSON.value(text, "a kept summary")
        except CleantailError:  # damaged: the table is read
            return None


def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="cleantail-metadata")


def _by_namespace(topics: Sequence[Topic]) -> dict[str, list[Topic]]:
    by_namespace: dict[str, list[Topic]] = {}
    for topic in topics:
        by_namespace.setdefault(namespace_of(topic), []).append(topic)
    return by_namespace

"""Cache of the metadata of many tables, for the page and for scrapes. Tables are read in parallel, in the background.

1. Metadata at one location never change. So a read stays valid until the catalog names another location.
2. A call waits for a limited time. For a table that was not read in this time, it returns the previous read, else None.
3. The cache keeps a summary of each table, in memory and on disk (`TextCache`), and a few whole tables.
4. A data file never changes. So `EvidenceTotals` reads each data file of the evidence table once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import ERASURES, EVIDENCE
from cleantail.erasure.requests import ErasureRequest, requests_of
from cleantail.erasure.store import events_in
from cleantail.errors import CleantailError, OutsideError
from cleantail.home.text_cache import TextCache
from cleantail.kafka.table_position import caught_up_in
from cleantail.lake.catalogs import is_outdated, load_any, load_table, metadata_locations, open_catalog
from cleantail.lake.facts_cache import partitioned_by_values
from cleantail.lake.foreign_errors import explained
from cleantail.lake.own_namespace import namespace_properties, readers_in
from cleantail.lake.recorded_rounds import load_evidence, read_evidence
from cleantail.lake.releases import releases_in
from cleantail.lake.table_metadata import table_facts
from cleantail.log.quarantine import NO_RELEASES
from cleantail.log.source_position import ReadPosition, SourcePosition
from cleantail.rounds.past_rounds import Round
from cleantail.watch.log_metrics import Totals, totals_of
from cleantail.watch.observed_table import (
    SUMMARY_JSON,
    ObservedTable,
    TableSummary,
    observed_table,
    size_points,
    summary_digest,
    summary_of,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table


ERRORS_LIVE_S = 10.0
UNLISTED_LIVE_S = 10.0
"""Seconds for which a read stays valid if the catalog does not list the locations of its tables' metadata."""


class Read(Protocol):
    """Result of a read. `error` is empty if it succeeded."""

    @property
    def error(self) -> str: ...


R = TypeVar("R", bound=Read)
REST_S = 2.0
"""Maximum number of seconds that a background read waits for a request that renders a page."""


@dataclass(slots=True)
class _Entry(Generic[R]):
    """The newest read of a topic's table, and the result of the read before it."""

    policy: str
    location: str
    began_s: float
    read: Future[R]
    before: R | None


class TableReads(Generic[R]):
    """Keeps the newest read of each table, of at most `most` tables if given."""

    def __init__(
        self,
        read: Callable[[Topic, str], R],
        failed: Callable[..., R],
        pool: ThreadPoolExecutor,
        clock: Callable[[], float],
        most: int | None = None,
    ) -> None:
        """`read`: called with a topic and the location of its metadata, "" if the catalog lists no locations.
        `failed`: makes the result of a failed read, from its `error`."""
        self._read, self._failed, self._pool, self._clock, self._most = read, failed, pool, clock, most
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry[R]] = {}
        self._resting, self._may_read = 0, threading.Event()
        self._may_read.set()

    def of(
        self, topics: Iterable[Topic], key_of: Callable[[Topic], tuple[str, str]], within_s: float
    ) -> dict[str, R | None]:
        """Return topic name -> result of the read with the topic's key (policy, location).

        If a read takes longer than `within_s`, returns the previous result, or None.
        """
        keys = [(topic, *key_of(topic)) for topic in topics]
        with self.at_rest(), self._lock:  # otherwise the first read would delay the start of the others
            entries = {topic.topic: self._current(topic, policy, location) for topic, policy, location in keys}
        wait([entry.read for entry in entries.values()], timeout=within_s)
        return {name: e.read.result() if e.read.done() else e.before for name, e in entries.items()}

    def forget(self, name: str) -> None:
        """Make the next call read the topic's table again and wait for it."""
        with self._lock:
            self._entries.pop(name, None)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Begin no read during the block, because reads would compete with it for the one interpreter."""
        self._rest(1)
        try:
            yield
        finally:
            self._rest(-1)

    def _rest(self, more: int) -> None:
        with self._lock:
            self._resting += more
            if self._resting:
                self._may_read.clear()
            else:
                self._may_read.set()

    def _current(self, topic: Topic, policy: str, location: str) -> _Entry[R]:
        """Return the read of a table at this location. Begins the read if necessary. The caller holds the lock."""
        entry = self._entries.pop(topic.topic, None)
        if entry is None or (entry.policy, entry.location) != (policy, location) or self._is_stale(entry):
            before = entry if entry is not None and entry.policy == policy else None
            known = None if before is None else before.read.result() if before.read.done() else before.before
            entry = _Entry(policy, location, self._clock(), self._pool.submit(self._try, topic, location), known)
        while self._most is not None and len(self._entries) >= self._most:
            self._entries.pop(next(iter(self._entries)))
        self._entries[topic.topic] = entry  # the entry requested last is evicted last
        return entry

    def _is_stale(self, entry: _Entry[R]) -> bool:
        """Return whether to read again: after an error, or after UNLISTED_LIVE_S if the catalog lists no locations."""
        if not entry.read.done():
            return False
        done = entry.read.result()
        keep_s = ERRORS_LIVE_S if done.error else float("inf") if entry.location else UNLISTED_LIVE_S
        return self._clock() - entry.began_s >= keep_s

    def _try(self, topic: Topic, location: str) -> R:
        self._may_read.wait(REST_S)
        try:
            return self._read(topic, location)
        except Exception as e:  # an unreadable table must not hide the others
            return self._failed(error=error_text(e))


def error_text(error: Exception) -> str:
    return str(error if isinstance(error, CleantailError) else explained(error) or f"{type(error).__name__}: {error}")


logger = logging.getLogger(__name__)

EVIDENCE_READERS = 8
COLUMNS = [
    "topic",
    "partition",
    "kind",
    "outcome",
    "passed",
    "deleted",
    "freed_bytes",
    "checks",
    "saved_bytes",
    "rounds",
]


class EvidenceTotals:
    """Keeps the counters of one evidence table. Thread-safe. Runs one read at a time."""

    def __init__(self, load: Callable[[], Table | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cleantail-evidence")
        self._read: tuple[str, float, Future[None]] | None = None
        self._manifests: dict[str, tuple[str, ...]] = {}
        self._files: frozenset[str] = frozenset()
        self._totals: Totals | None = None

    def current(self, location: str, within_s: float) -> Totals | None:
        """Return the totals of the table whose metadata is at `location`.

        If the read takes longer than `within_s`, returns the previous totals, or None. Half a read would look like
        falling counters.
        """
        with self._lock:
            if self._read is None or self._is_stale(location, *self._read):
                self._read = (location, self._clock(), self._pool.submit(self._refresh))
            read = self._read[2]
        wait([read], timeout=within_s)
        return self._totals

    def _is_stale(self, location: str, read_location: str, began_s: float, read: Future[None]) -> bool:
        if not read.done():
            return False
        return location != read_location or (not location and self._clock() - began_s >= UNLISTED_LIVE_S)

    def _refresh(self) -> None:
        try:
            table = self._load()
            manifests = _data_files(table, self._manifests) if table is not None else {}
            files = frozenset(path for paths in manifests.values() for path in paths)
            rewritten = bool(self._files - files)
            before: Totals = Counter() if rewritten or self._totals is None else self._totals
            new = files if rewritten else files - self._files
            self._totals = before + _totals(table, sorted(new)) if table is not None else Counter()
            self._manifests, self._files = manifests, files
        except Exception as error:  # the last totals stay; the next call tries again
            logger.warning("evidence was not read: %s: %s", type(error).__name__, error)
            with self._lock:
                self._read = None


def _data_files(table: Table, earlier: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return manifest -> its live data files. A manifest never changes, so manifests of `earlier` are not opened
    again."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    return {m.manifest_path: earlier.get(m.manifest_path) or _entries(table, m) for m in manifests}


def _entries(table: Table, manifest: ManifestFile) -> tuple[str, ...]:
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    return tuple(entry.data_file.file_path for entry in entries)


def _totals(table: Table, paths: Iterable[str]) -> Totals:
    from pyarrow import parquet

    def read(path: str) -> Totals:
        with table.io.new_input(path).open() as stream:
            file = parquet.ParquetFile(stream)
            return totals_of(file.read([c for c in COLUMNS if c in file.schema_arrow.names]).to_pylist())

    totals: Totals = Counter()
    with ThreadPoolExecutor(EVIDENCE_READERS) as pool:
        for file_totals in pool.map(read, paths):
            totals.update(file_totals)
    return totals


FOLDER, FILE = "page", "summaries.db"
"""Folder and file of the summaries in CLEANTAIL_HOME, so that a restarted server does not read every table again."""
READERS, READERS_OF_WHOLE = 4, 2
LOCATIONS_LIVE_S = 2.0
MOST_WHOLE = 16
"""Maximum number of whole tables in the cache."""
MOST_EVIDENCE = 64
"""Maximum number of topics with rounds in the cache."""

Seen = TypeVar("Seen", ObservedTable, TableSummary)


class MetadataCache:
    """Keeps the tables of one platform. Thread-safe."""

    def __init__(self, platform: Platform, clock: Callable[[], float] = time.monotonic) -> None:
        self._platform = platform
        self._clock = clock
        self._lock = threading.Lock()
        self._catalog: tuple[float, Catalog] | None = None
        self._locations: tuple[float, dict[str, str]] = (float("-inf"), {})
        self._whole = TableReads(self._read_whole, ObservedTable, _pool(READERS_OF_WHOLE), clock, MOST_WHOLE)
        self._summaries = TableReads(self._read_summary, TableSummary, _pool(READERS), clock)
        self._kept = TextCache(platform.home, FOLDER, FILE)
        self._kept_lock = threading.Lock()
        self._loaded: dict[str, tuple[str, str]] = {}
        self._is_loaded = False
        self._digests: dict[str, tuple[Topic, str]] = {}
        self._evidence: dict[tuple[str, str], list[Round]] = {}
        self._erasures: tuple[str, float, dict[str, list[ErasureRequest]]] = ("", float("-inf"), {})
        self._properties: dict[str, Mapping[str, str]] = {}
        self._away: tuple[float, OutsideError] | None = None
        self._totals = EvidenceTotals(lambda: load_evidence(self._open(), platform))

    def observe(self, topics: Sequence[Topic], within_s: float) -> dict[str, ObservedTable | None]:
        """Return topic name -> its whole table, for a few topics. Raises OutsideError if the catalog is unreachable."""
        locations = self._current_locations()
        return self._whole.of(topics, lambda topic: (topic.table, locations.get(topic.table, "")), within_s)

    def summaries(self, topics: Sequence[Topic], within_s: float) -> dict[str, TableSummary | None]:
        """Return topic name -> summary of its table, for any number of topics.

        Raises OutsideError if the catalog cannot be reached.
        """
        locations = self._current_locations()
        return self._summaries.of(topics, lambda t: (self._digest(t), locations.get(t.table, "")), within_s)

    def with_namespaces(self, topics: Sequence[Topic], seen: Mapping[str, Seen | None]) -> dict[str, Seen | None]:
        """Return the tables with the topics' current readers and releases, which change without a commit to the table.

        Reads each namespace once. A broken position of a reader makes its topic unreadable, because runs of the topic
        fail too.
        """
        now: dict[str, Seen | None] = dict(seen)
        by_namespace = defaultdict[str, list[str]](list)
        for topic in topics:
            by_namespace[topic.own_namespace].append(topic.topic)
        for namespace, names in by_namespace.items():
            read = [(name, table) for name in names if (table := seen.get(name)) is not None]
            try:
                properties = namespace_properties(self._open(), namespace)
            except CleantailError as e:
                now |= {name: type(table)(error=str(e)) for name, table in read}
                continue
            self._properties[namespace] = properties
            (readers, broken), releases = readers_in(properties), releases_in(properties)
            for name, table in read:
                if name in broken:
                    now[name] = type(table)(error=broken[name])
                else:
                    now[name] = table.with_namespace(readers.get(name, ()), releases.get(name, NO_RELEASES))
        return now

    def last_caught_up_ms(self, topic: Topic, position: ReadPosition | None) -> int:
        """Return the time (Unix ms) at which the table last had all of its topic in Kafka, by with_namespaces (0:
        unknown)."""
        of_kafka = position if isinstance(position, SourcePosition) else None
        return caught_up_in(self._properties.get(topic.own_namespace, {}), topic, of_kafka)

    def rounds(self, topic: Topic) -> list[Round]:
        """Return the topic's rounds in the evidence table, newest first."""
        self._current_locations()  # raises at once if the catalog was just out of reach
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

    def erasures(self) -> dict[str, list[ErasureRequest]]:
        """Return topic -> its requests to erase keys, oldest first. Raises CleantailError if they cannot be read.

        Reads them again after an event of a request. If the catalog does not list its tables, reads them again after
        UNLISTED_LIVE_S."""
        name, locations = f"{self._platform.catalog.namespace}.{ERASURES}", self._current_locations()
        location, (known, asked_s, requests) = locations.get(name, ""), self._erasures
        is_current = location == known if locations else self._clock() - asked_s < UNLISTED_LIVE_S
        if is_current:
            return requests
        table = load_any(self._open(), name, self._platform) if location or not locations else None
        requests = {}
        for request in requests_of(events_in(table)) if table is not None else ():
            requests.setdefault(request.topic, []).append(request)
        self._erasures = (table.metadata_location if table is not None else "", self._clock(), requests)
        return requests

    def totals(self, within_s: float) -> Totals | None:
        """Return counters over the whole evidence table. None during the first read.

        Raises OutsideError if the catalog cannot be reached.
        """
        return self._totals.current(self._current_locations().get(self._evidence_name, ""), within_s)

    def at_rest(self) -> AbstractContextManager[None]:
        """Begin no read of a summary during the block."""
        return self._summaries.at_rest()

    @property
    def _evidence_name(self) -> str:
        return f"{self._platform.catalog.namespace}.{EVIDENCE}"

    def forget(self, topic: Topic) -> None:
        """Make the next call read the catalog again. Call it after a change of our own."""
        self._locations, self._away = (float("-inf"), {}), None
        self._whole.forget(topic.topic)
        self._summaries.forget(topic.topic)

    def _open(self) -> Catalog:
        with self._lock:
            if self._catalog is None or is_outdated(self._platform, self._catalog[0], self._clock()):
                self._catalog = (self._clock(), open_catalog(self._platform))
            return self._catalog[1]

    def _current_locations(self) -> dict[str, str]:
        at_s, locations = self._locations
        if self._clock() - at_s < LOCATIONS_LIVE_S:
            return locations
        if self._away is not None and self._clock() - self._away[0] < ERRORS_LIVE_S:
            raise self._away[1].with_traceback(None)
        try:
            locations = metadata_locations(self._open(), self._platform)
        except OutsideError as e:  # a page calls this several times, and each call may take the catalog's whole timeout
            self._away = (self._clock(), e)
            raise
        self._locations, self._away = (self._clock(), locations), None
        return locations

    def _digest(self, topic: Topic) -> str:
        known = self._digests.get(topic.topic)
        if known is None or known[0] is not topic:
            known = self._digests[topic.topic] = (topic, summary_digest(topic))
        return known[1]

    def _read_whole(self, topic: Topic, _: str) -> ObservedTable:
        table = load_table(self._open(), topic)
        return ObservedTable() if table is None else observed_table(table)

    def _read_summary(self, topic: Topic, location: str) -> TableSummary:
        """Return the kept summary of this location. If no summary is kept, read the table."""
        if location and (kept := self._kept_summary(topic, location)) is not None:
            return kept
        table = load_table(self._open(), topic)
        if table is None:
            return TableSummary()
        if not location and (kept := self._kept_summary(topic, table.metadata_location)) is not None:
            return kept
        summary = summary_of(topic, table_facts(table), size_points(table))
        if any(log.keyless for log in summary.logs) and partitioned_by_values(topic, table):
            return summary  # the summary contains names of files, which may contain values
        key, text = f"{self._digest(topic)} {table.metadata_location}", SUMMARY_JSON.text(summary)
        self._kept.keep(topic.topic, key, text)
        if not location:  # likely to be requested again soon with the same metadata
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
        return SUMMARY_JSON.value_or_none(text)


def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="cleantail-metadata")

"""Adapter: counters over the whole evidence table, read once and then only what rounds have added since.

Rows of the evidence are never changed, so the counters are the same after a restart: they only rise, as Prometheus
asks. What is kept here is a copy of what the table says, by data file; files never change under one path.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from cleantail.watch.log_metrics import Totals, totals_of

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

logger = logging.getLogger(__name__)

READERS = 8
COLUMNS = ["topic", "partition", "kind", "outcome", "passed", "deleted", "freed_bytes", "checks", "saved_bytes"]
UNLISTED_LIVE_S = 10.0
"""How many seconds an answer is right for a catalog that does not list where its tables' metadata is."""


class EvidenceTotals:
    """Keeps the counters of one evidence table. It is safe to use from many threads, and does one read at a time."""

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
        """Returns the totals of the table whose metadata is at `location`.

        Where the read takes longer than `within_s`, these are the totals of before, None if none were read yet: half a
        read would look like counters that fall.
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
    """Returns manifest -> its live data files. A manifest never changes, so one of `earlier` is not opened again."""
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
    with ThreadPoolExecutor(READERS) as pool:
        for file_totals in pool.map(read, paths):
            totals.update(file_totals)
    return totals

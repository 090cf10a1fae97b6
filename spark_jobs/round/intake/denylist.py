"""Keep records with erased keys out of the table, in every kind of ingestion (cleantail.erasure.requests).

1. Each ingestion, and each portion of one, reads the requests of the topic once. If the topic has no denylist, this
   takes one request to the catalog, and no key is compared. An application reads and sends the keys of a request once,
   because they never change. After another request it sends only the new keys, while they are few.
2. Tasks compare the keys of whole batches, before they write a file, or before Spark sorts if Spark writes.
3. Records that were left out are counted by log, and recorded like those that a table cannot hold.
4. A request that is approved meanwhile sets a property of the topic's table, and of its side table (`note_denylist`).
   Then the commits of an ingestion that began with another denylist are refused, and the ingestion starts over.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame

from cleantail.codec import digest_of
from cleantail.config.topic_table import ERASURES, KEY, OFFSET, PARTITION, UNHOLDABLE_SUFFIX
from cleantail.config.unholdable import ERASED
from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.erasure.requests import ErasureRequest
from cleantail.erasure.store import ErasureStore
from cleantail.errors import TableError
from cleantail.lake.catalogs import side_tables
from cleantail.log.partition_state import PROPERTY_DENYLIST, LeftOut
from spark_jobs.iceberg.commits import Load, change_properties, require_denylist
from spark_jobs.iceberg.iceberg_reads import iceberg_table
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.tables import TopicTable

if TYPE_CHECKING:
    import numpy.typing as npt

_Part = tuple[frozenset[str], Broadcast[ErasedKeys]]
"""The ids of requests, and their keys."""
Erased = Mapping[int, tuple[int, int, int]]
"""Partition -> (records with an erased key, their lowest offset, their highest)."""


@dataclass(frozen=True, slots=True)
class SentKeys:
    """The erased keys of some requests of a topic, as an application has sent them: most of them, and those that came
    later. The object can be pickled as part of a task's function."""

    parts: tuple[Broadcast[ErasedKeys], ...]

    def found(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Return whether each key is erased. A null key is not."""
        first, *later = (part.value for part in self.parts)
        found = first.found(keys)
        for part in later:
            found |= part.found(keys)
        return found


@dataclass(frozen=True, slots=True)
class Denylist:
    """A topic's denylist for one ingestion. `keys`: None if it is empty. `version`: the property of the topic's table
    at the start; None if it has none."""

    version: str | None
    keys: SentKeys | None = None

    @classmethod
    def of(cls, table: TopicTable) -> Denylist:
        """Read the denylist. Raises CleantailError if it cannot be compared with keys, and TableError if it is lost."""
        version = texts(table.load().properties()).get(PROPERTY_DENYLIST)  # before the denylist itself
        store = ErasureStore(table.platform)
        requests = store.denied(table.topic.topic, noted=version is not None)
        return cls(version, _sent(table.spark.sparkContext, store, requests) if requests else None)

    def require_known(self, table: TopicTable, properties: Mapping[str, str]) -> None:
        """Raise ConflictError if an erasure with another denylist may have searched a side table with these properties
        already. A side table without the property is newer than all approvals."""
        if properties.get(PROPERTY_DENYLIST) is not None:
            require_denylist(table, properties, self.version)
        require_denylist(table, texts(table.load().properties()), self.version)

    def without_erased(self, frame: DataFrame) -> tuple[DataFrame, SideRows]:
        """Return the frame without records of erased keys, and their number, which is known after a read."""
        if self.keys is None:
            return frame, SideRows()
        counts = frame.sparkSession.sparkContext.accumulator({}, _Counts())
        keys, name = self.keys, uuid.uuid4().hex

        def left(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context, found = TaskContext.get(), dict[int, tuple[int, int, int]]()
            for batch in batches:
                kept, erased = without_erased(batch, keys)
                found = merged(found, erased)
                yield kept
            if found and context is not None:
                counts.add({(name, context.partitionId()): found})

        return frame.mapInArrow(left, frame.schema), SideRows(counts)


def denied_keys(table: TopicTable, ids: Collection[str]) -> SentKeys | None:
    """Return the keys of these requests of the topic; None without requests. Raises CleantailError if they cannot be
    compared with keys, and TableError if a request is lost."""
    if not ids:
        return None
    store = ErasureStore(table.platform)
    requests = [request for request in store.requests(table.topic.topic) if request.id in ids]
    if lost := sorted({*ids} - {request.id for request in requests}):
        raise TableError(f"table {ERASURES} has no request {', '.join(lost)} of topic {table.topic.topic}: restore it")
    return _sent(table.spark.sparkContext, store, requests)


MOST_SENT = 4
"""Maximum number of topics whose keys an application keeps. A million keys take 48 MB, which Spark may move to disk."""
FEW = 8
"""Later keys are sent separately if the keys that were sent before are at least this many times as many."""
_sending = threading.Lock()
_kept: dict[tuple[str, str], tuple[_Part, ...]] = {}


def _sent(context: SparkContext, store: ErasureStore, requests: Sequence[ErasureRequest]) -> SentKeys:
    """Return the keys of the requests of a topic, as this application has sent them. Send the missing keys first."""
    name, by_id = (context.applicationId, requests[0].topic), {request.id: request for request in requests}

    def send(ids: Collection[str]) -> _Part:
        return frozenset(ids), context.broadcast(store.keys_of([by_id[each] for each in ids]))

    def count(ids: Collection[str]) -> int:
        return sum(by_id[each].keys for each in ids)

    with _sending:
        parts = [part for part in _kept.pop(name, ()) if part[0] <= by_id.keys()]  # without lifted requests
        first = max(parts, key=lambda part: count(part[0]), default=None)
        later = by_id.keys() - (first[0] if first else ())
        if first is None or FEW * count(later) > count(first[0]):
            parts = [send(by_id)]
        elif later:
            parts = [first, next((part for part in parts if part[0] == later), None) or send(later)]
        else:
            parts = [first]
        while len(_kept) >= MOST_SENT:
            del _kept[next(iter(_kept))]
        _kept[name] = tuple(parts)  # the newest is last
    return SentKeys(tuple(keys for _, keys in parts))


class SideRows:
    """The number of records that a frame left out."""

    def __init__(self, counts: Accumulator[dict[tuple[str, int], Erased]] | None = None) -> None:
        self._counts = counts

    @property
    def erased(self) -> Erased:
        found: Erased = {}
        for of_task in self._counts.value.values() if self._counts is not None else ():
            found = merged(found, of_task)
        return found


class _Counts(AccumulatorParam[dict[tuple[str, int], Erased]]):
    """Collects the counts of records that each task left out. A repeated task replaces its own counts."""

    def zero(self, value: dict[tuple[str, int], Erased]) -> dict[tuple[str, int], Erased]:
        return {}

    def addInPlace(
        self, value1: dict[tuple[str, int], Erased], value2: dict[tuple[str, int], Erased]
    ) -> dict[tuple[str, int], Erased]:
        return value1 | value2


def without_erased(batch: pa.RecordBatch, keys: SentKeys) -> tuple[pa.RecordBatch, Erased]:
    """Return the batch without records of erased keys, and the counts of these records."""
    found = keys.found(batch.column(KEY))
    if not found.any():
        return batch, {}
    erased = batch.filter(pa.array(found))
    logs, offsets = erased.column(PARTITION).to_numpy(), erased.column(OFFSET).to_numpy()
    counts = {}
    for log in np.unique(logs).tolist():
        of_log = offsets[logs == log]
        counts[log] = (len(of_log), int(of_log.min()), int(of_log.max()))
    return batch.filter(pa.array(~found)), counts


def merged(one: Erased, other: Erased) -> dict[int, tuple[int, int, int]]:
    both = dict(one)
    for log, (records, low, high) in other.items():
        before = both.get(log, (0, low, high))
        both[log] = (before[0] + records, min(before[1], low), max(before[2], high))
    return both


def left_out_by(erased: Erased, now_ms: int) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(log, low, high, records, ERASED, "drop", now_ms) for log, (records, low, high) in sorted(erased.items())
    )


def note_denylist(table: TopicTable) -> None:
    """Let ingestions that began before the last approval fail at their commit. Call it after the event APPROVED was
    recorded, and before the table is searched for the request's keys."""
    requests = ErasureStore(table.platform).requests(table.topic.topic)
    denied = [request.id for request in requests if request.denies]
    version = digest_of(denied)
    if not denied:
        return
    loads: list[Load] = [table.load]  # the topic's first: a side table that is made later is compared with it
    if UNHOLDABLE_SUFFIX in side_tables(table.topic):
        loads.append(partial(iceberg_table, table.spark, f"{table.name[:-1]}{UNHOLDABLE_SUFFIX}`"))
    for load in loads:
        if texts(load().properties()).get(PROPERTY_DENYLIST) != version:
            change_properties(load, {PROPERTY_DENYLIST: version})

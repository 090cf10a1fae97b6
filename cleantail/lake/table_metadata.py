"""Adapter: fetch the Iceberg metadata of a topic table through PyIceberg, without Spark.

log_state, triggers and retention interpret the numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cleantail.config.topic import Topic
from cleantail.errors import ConflictError, NoSnapshotError, TableError
from cleantail.human import instant, moment_ms, whole_number
from cleantail.lake.data_files import data_files_of
from cleantail.lake.manifest_entries import (
    DATA,
    DELETES,
    content_of,
    deletes_of,
    lacks_row_ids,
    lineages_where_needed,
    manifests_of,
    named_if_damaged,
    spans_of,
)
from cleantail.lake.neighbours import may_delete_files
from cleantail.lake.position_deletes import DeleteFile
from cleantail.lake.storage_locations import require_own_files
from cleantail.log.horizons import Reader
from cleantail.log.partition_state import PartitionState, ingested_files, states_of_properties
from cleantail.log.quarantine import NO_RELEASES, Releases, lifted
from cleantail.log.segments import NO_TIMESTAMP_MS, DataFile, once
from cleantail.log.source_position import ReadPosition, SourcePosition, read_position_of, with_source_ends
from cleantail.rounds.commit_summaries import OPERATION, RECLAIM, ROUNDS, Commit
from cleantail.rounds.publications import LAST_COMPACTION_JSON, PROPERTY_COMPACTION, LastCompaction
from cleantail.rounds.rewritten_history import (
    GoneCommits,
    MainHistory,
    Mark,
    after_rewriting,
    lost_marks,
    may_be_rewritten,
)
from cleantail.rounds.station_results import PROPERTY_STORED, STORED_JSON, StoredBytes

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def properties_that_count(table: Table) -> Mapping[str, str]:
    """Return a table's properties, without those that a rewritten history voids. Raises TableError."""
    if not may_be_rewritten(table.properties):
        return table.properties
    name, by_id = ".".join(table.name()), {s.snapshot_id: s for s in table.metadata.snapshots}
    current = table.current_snapshot()
    line = list(ancestry(table, current))
    ancestors, oldest = {s.snapshot_id for s in line}, line[-1] if line else None
    history = MainHistory(
        table_uuid=str(table.metadata.table_uuid),
        current=None if current is None else _mark(current),
        has=ancestors.__contains__,
        oldest_sequence_number=(oldest.sequence_number or 0) if oldest else 0,
        is_whole=oldest is None or oldest.parent_snapshot_id is None,
        last_round=lambda: next((_mark(s) for s in line if s.summary and s.summary.get(OPERATION) in ROUNDS), None),
    )
    if (lost := lost_marks(table.properties, history, name)) is None:
        return table.properties
    summaries, parent = list[Mapping[str, str]](), lost.ingested.snapshot_id if lost.ingested else None
    while parent is not None and parent not in ancestors and (snapshot := by_id.get(parent)) is not None:
        summaries.append(dict(snapshot.summary.additional_properties) if snapshot.summary else {})
        parent = snapshot.parent_snapshot_id
    gone = GoneCommits(tuple(summaries), parent is None or parent in ancestors)
    return after_rewriting(table.properties, history, lost, gone, name)


def _mark(snapshot: Snapshot) -> Mark:
    return Mark(snapshot.snapshot_id, snapshot.sequence_number or 0)


MANIFEST_READERS = 8


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A topic table at one time: snapshot, live data files, files that arrived since each log's last round, states.

    `snapshot_id`: None for a table without data. `snapshots`: (id, Unix ms) of those that no other branch points to.
    `position`: how far the topic was read at its source, None if no read has filled it. `rewritten_ms`: Unix ms of the
    last rewrite by a reclaim, None if no kept snapshot has one.
    """

    table: str
    snapshot_id: int | None
    sequence_number: int
    files: tuple[DataFile, ...]
    arrived: tuple[DataFile, ...]
    states: Mapping[int, PartitionState]
    ingested: frozenset[str]
    snapshots: tuple[tuple[int, int], ...]
    readers: tuple[Reader, ...] = ()
    branches: tuple[str, ...] = ()
    last_compaction: LastCompaction | None = None
    stored: StoredBytes | None = None
    may_delete_files: bool = True
    table_uuid: str = ""
    position: ReadPosition | None = None
    rewritten_ms: int | None = None

    @property
    def source(self) -> SourcePosition | None:
        """Return how far the topic was read in Kafka. None if the topic was never read."""
        return self.position if isinstance(self.position, SourcePosition) else None

    def with_namespace(self, readers: tuple[Reader, ...], releases: Releases) -> TableFacts:
        """Return the facts with the current readers and releases of the table's namespace."""
        return replace(self, readers=readers, states=lifted(self.states, releases, self.table_uuid))

    @property
    def partitions(self) -> list[int]:
        """Return the partitions that have a file or a state."""
        return sorted({f.partition for f in self.files} | set(self.states))

    def files_of(self, partition: int) -> list[DataFile]:
        return [f for f in self.files if f.partition == partition]

    def arrived_of(self, partition: int) -> list[DataFile]:
        """Return the files that arrived in one log since its last round."""
        return [f for f in self.arrived if f.partition == partition]


def require_partition(topic: Topic, partition: int | None, partitions: Collection[int]) -> None:
    """Raise TableError for a partition that the topic does not have."""
    if partition is not None and partitions and partition not in partitions:
        existing = ", ".join(map(str, sorted(partitions)))
        raise TableError(f"topic {topic.topic} has no partition {partition}: it has {existing}")


def table_facts(
    table: Table,
    readers: tuple[Reader, ...] = (),
    snapshot_id: int | None = None,
    releases: Releases = NO_RELEASES,
    pass_foreign: bool = False,
) -> TableFacts:
    """Fetch everything that evaluate and status need, in one pass over a snapshot's manifests.

    `snapshot_id`: by default the current snapshot. The logs' states are always the current ones, with `releases`
    applied. `pass_foreign`: as in deletes_of. Raises TableError for an unknown snapshot.
    """
    from pyiceberg.table.refs import MAIN_BRANCH

    snapshot = _snapshot(table, snapshot_id)
    table_uuid = str(table.metadata.table_uuid)
    properties = properties_that_count(table)
    position = read_position_of(properties, name := ".".join(table.name()))
    states = lifted(with_source_ends(states_of_properties(properties, name), position), releases, table_uuid)
    files = _live_files(table, snapshot, pass_foreign) if snapshot else ()
    held = {ref.snapshot_id for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH}
    reclaims = (s for s in table.metadata.snapshots if s.summary and s.summary.get(OPERATION) == RECLAIM)
    return TableFacts(
        table=".".join(table.name()[-2:]),
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        sequence_number=(snapshot.sequence_number or 0) if snapshot else 0,
        files=files,
        arrived=_arrived(table, snapshot, files, states),
        states=states,
        ingested=ingested_files(properties),
        snapshots=tuple((s.snapshot_id, s.timestamp_ms) for s in table.metadata.snapshots if s.snapshot_id not in held),
        readers=readers,
        branches=tuple(sorted(table.metadata.refs.keys() - {MAIN_BRANCH})),
        last_compaction=LAST_COMPACTION_JSON.value_or_none(table.properties.get(PROPERTY_COMPACTION)),
        stored=STORED_JSON.value_or_none(table.properties.get(PROPERTY_STORED)),
        may_delete_files=may_delete_files(table.properties),
        table_uuid=table_uuid,
        position=position,
        rewritten_ms=max((snapshot.timestamp_ms for snapshot in reclaims), default=None),
    )


def _live_files(table: Table, snapshot: Snapshot, pass_foreign: bool = False) -> tuple[DataFile, ...]:
    """Return the data files of a snapshot, each with its number of deleted records at that snapshot."""
    manifests = manifests_of(table, snapshot)
    data, deletes = [m for m in manifests if content_of(m) == DATA], dict[str, list[DeleteFile]]()
    with ThreadPoolExecutor(MANIFEST_READERS) as pool:
        of_deletes = [m for m in manifests if content_of(m) == DELETES]
        for of_manifest in pool.map(lambda m: list(deletes_of(table, m, pass_foreign=pass_foreign)), of_deletes):
            for delete in of_manifest:
                deletes.setdefault(delete.data_file, []).append(delete)
    lineages, entries = lineages_where_needed(table, snapshot), list(entries_of(table, data))
    require_own_files(table, [entry.data_file.file_path for entry in entries])
    require_own_files(table, [delete.path for of_file in deletes.values() for delete in of_file])
    if lineages:  # in advance, several at a time
        with ThreadPoolExecutor(MANIFEST_READERS) as pool:
            list(pool.map(lambda entry: spans_of(table, entry.data_file), entries))

    # deletes of a data file that is gone stay in the metadata for a while
    of_files = ((entry, deletes.get(entry.data_file.file_path, ())) for entry in entries)
    logs = (log for entry, of_file in of_files for log in data_files_of(table, entry, of_file, lineages))
    return _with_append_times(table, once(logs))


def _with_append_times(table: Table, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Return the files. A file without timestamps gets the time of its append, found by its sequence number.

    An expired snapshot was older than the next kept one, on any branch.
    """
    files = tuple(files)
    if all(file.min_timestamp_ms >= 0 for file in files):
        return files
    at_ms = {s.sequence_number or 0: s.timestamp_ms for s in table.metadata.snapshots}
    numbers = sorted(at_ms)

    def stamped(file: DataFile) -> DataFile:
        at = bisect_left(numbers, file.data_sequence_number)
        next_ms = at_ms[numbers[at]] if at < len(numbers) else NO_TIMESTAMP_MS
        return replace(file, appended_ms=next_ms, append_kept=file.data_sequence_number in at_ms)

    return tuple(file if file.min_timestamp_ms >= 0 else stamped(file) for file in files)


def entries_of(table: Table, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
    with ThreadPoolExecutor(MANIFEST_READERS) as pool:
        for entries in pool.map(lambda m: _entries(table, m), manifests):
            yield from entries


def _entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    with named_if_damaged(table, manifest.manifest_path):
        return manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def _arrived(
    table: Table, snapshot: Snapshot | None, files: tuple[DataFile, ...], states: Mapping[int, PartitionState]
) -> tuple[DataFile, ...]:
    """Return the files with records that each log's last round had not read.

    A file that was merged since counts as new if the snapshots that show its new records have expired. This mistake
    costs a cleaning and loses no data.
    """
    # 1. files above the round's sequence number came later
    last_round = {p: s.known_sequence_number for p, s in states.items()}
    newer = [f for f in files if f.data_sequence_number > last_round.get(f.partition, 0)]
    # 2. or were merged later, if their commit is a `replace` or has expired
    operations = {s.snapshot_id: s.summary.operation.value for s in table.metadata.snapshots if s.summary}
    merged = [f for f in newer if operations.get(f.snapshot_id) == "replace" or f.snapshot_id not in operations]
    if not merged:
        return tuple(newer)
    # 3. for logs with merged files, the appends since then show which records were really new
    history = _added_since(table, snapshot, min(last_round.get(f.partition, 0) for f in merged))
    if history is None:
        return tuple(newer)
    logs = {f.partition for f in merged}
    untouched = [f for f in newer if f.partition not in logs]
    really_new = [f for f in history if f.partition in logs and f.data_sequence_number > last_round.get(f.partition, 0)]
    return (*untouched, *once(really_new))


def _added_since(table: Table, snapshot: Snapshot | None, sequence_number: int) -> list[DataFile] | None:
    """Return data files that appends added after `sequence_number` up to the snapshot.

    None if that part of the history has expired, has files that cannot be read, or precedes the row ids that offsets
    are made of.
    """
    added: list[DataFile] = []
    oldest = None
    for oldest in ancestry(table, snapshot):
        if (oldest.sequence_number or 0) <= sequence_number:
            return added
        if lacks_row_ids(table, oldest):
            return None
        try:
            added += files_added_by(table, oldest)
        except (TableError, ConflictError):  # files that were rewritten since and cannot be read, such as ORC
            return None
    return None if oldest is not None and oldest.parent_snapshot_id is not None else added


def ancestry(table: Table, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield the snapshot and its kept ancestors, newest first. Nothing for a table without a snapshot."""
    from pyiceberg.table.snapshots import ancestors_of

    metadata: Any = _SnapshotsById(table)
    yield from ancestors_of(snapshot, metadata)


def history_of(table: Table) -> Iterator[Commit]:
    """Yield the kept ancestry of `main`, newest first."""
    return commits_to(table, table.current_snapshot())


def commits_to(table: Table, head: Snapshot | None) -> Iterator[Commit]:
    """Yield the kept ancestry of a snapshot, newest first."""
    for snapshot in ancestry(table, head):
        summary = snapshot.summary
        operation = summary.operation.value if summary else ""
        entries = dict(summary.additional_properties) if summary else {}
        yield Commit(snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.timestamp_ms, operation, entries)


class _SnapshotsById:
    """Lookup of snapshots for PyIceberg's walk through a table's history.

    The metadata's own lookup scans all snapshots each time: 0.7 s for 5,000 snapshots, where this takes 5 ms.
    """

    def __init__(self, table: Table) -> None:
        self.snapshot_by_id = {s.snapshot_id: s for s in table.metadata.snapshots}.get


def files_added_by(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """Return the data files with new records, which only an append has. A rewrite adds no new records."""
    appends = snapshot.summary and snapshot.summary.operation.value in ("append", "overwrite")
    return _added_by(table, snapshot) if appends else []


def _added_by(table: Table, snapshot: Snapshot) -> list[DataFile]:
    manifests = [m for m in manifests_of(table, snapshot) if m.added_snapshot_id == snapshot.snapshot_id]
    entries = [e for e in entries_of(table, manifests) if e.snapshot_id == snapshot.snapshot_id]
    lineages, data = lineages_where_needed(table, snapshot), [e for e in entries if content_of(e.data_file) == DATA]
    return list(_with_append_times(table, (log for e in data for log in data_files_of(table, e, (), lineages))))


def added_files(table: Table, snapshot_id: int) -> list[DataFile]:
    """Return the data files that a snapshot's own commit added. Raises TableError for an unknown snapshot."""
    snapshot = _snapshot(table, snapshot_id)
    return _added_by(table, snapshot) if snapshot else []


def live_files(table: Table, snapshot_id: int | None) -> tuple[DataFile, ...]:
    """Return the data files of a snapshot, by default the current one. Raises TableError for an unknown snapshot."""
    snapshot = _snapshot(table, snapshot_id)
    return _live_files(table, snapshot) if snapshot else ()


def live_partitions(table: Table, snapshot_id: int | None = None) -> list[int]:
    """Return the partitions with data files at a snapshot, by default the current one. Raises as live_files does."""
    return sorted({f.partition for f in live_files(table, snapshot_id)})


def snapshot_id_of(table: Table, text: str, now_ms: int) -> int:
    """Return the snapshot that a user names by its id, a branch, a tag, or a time: the one that `main` had then.

    An id is not looked up. `now_ms`: wall clock. Raises TableError for any other text, for a time before the kept
    history, and for a time to come: `main` may change until then.
    """
    if (number := whole_number(text.removeprefix("-"))) is not None:
        return -number if text.startswith("-") else number
    if (ref := table.metadata.refs.get(text)) is not None:
        return int(ref.snapshot_id)
    name = ".".join(table.name())
    if (at_ms := moment_ms(text)) is None:
        names = ", ".join(sorted(table.metadata.refs)) or "none"
        raise TableError(
            f"{name} has no branch or tag {text}; it has {names}. A time such as 2026-11-29T14:20 and a snapshot's id "
            f"are allowed too; {LISTED}"
        )
    if at_ms > max(now_ms, table.metadata.last_updated_ms):  # a writer's clock may be ahead of this one
        raise TableError(
            f"{instant(at_ms)} UTC is in the future: it is {instant(now_ms)} UTC now. Give a time up to now, or leave "
            "it out for the present state"
        )
    snapshot = table.snapshot_as_of_timestamp(at_ms)
    if snapshot is None:
        raise TableError(
            f"{name} has no snapshot of {instant(at_ms)} UTC or before. Such snapshots have expired by age, or because "
            f"keys were erased (`cleantail erasures`); {LISTED}"
        )
    return snapshot.snapshot_id


LISTED = "`cleantail history TOPIC` lists the snapshots"


def no_snapshot(table: Table, snapshot_id: int) -> NoSnapshotError:
    """Return the error about a snapshot that a table does not have. The number may be a Unix time."""
    at_ms = snapshot_id if snapshot_id >= 10**11 else snapshot_id * 1000
    is_time = 10**12 <= at_ms < 10**13
    hint = f". If it is a time, write it as {instant(at_ms).replace(' ', 'T')}" if is_time else ""
    message = f"no snapshot {snapshot_id} in {'.'.join(table.name())}: it never existed, or has expired; {LISTED}{hint}"
    return NoSnapshotError(message, snapshot_id)


def _snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None and snapshot_id is not None:
        raise no_snapshot(table, snapshot_id)
    return snapshot

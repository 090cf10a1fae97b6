"""Read records for a user who has to decide: few, truncated, printable, and only on request.

The records are not stored. PyIceberg reads them from the snapshot that was checked. A branch must point to the
snapshot: while the round waits, or while the branch of a failed check is kept (`cleantail.failed.branch.retention.ms`).
Published records can be read as long as they are on `main`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.config.topic import Topic
from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.log_records import log_records, records_at
from cleantail.lake.table_metadata import history_of, no_snapshot
from cleantail.rounds.check_results import RemovedRecord
from cleantail.rounds.commit_summaries import Commit, whole_rounds
from cleantail.sources.kcat import Record

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table


BATCH_RECORDS = 10_000
NOWHERE: Mapping[int, int] = {}


def read_records(
    table: Table,
    partitions: list[int],
    from_offset: int = 0,
    snapshot_id: int | None = None,
    log_starts: Mapping[int, int] = NOWHERE,
    end_offset: int | None = None,
    key: bytes | None = None,
) -> Iterator[Record]:
    """Yield live records in [from_offset, end_offset) that are not below their log's start (latest_state.log_starts).

    With `key`, yields only the records of that key.

    Raises TableError for a snapshot that the table does not have.
    """
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise no_snapshot(table, snapshot_id)
    for partition in partitions:
        start = max(from_offset, log_starts.get(partition, 0))
        records = log_records(table, partition, snapshot_id, from_offset=start, end_offset=end_offset, key=key)
        for batch in records.sort_by(OFFSET).to_batches(max_chunksize=BATCH_RECORDS):
            yield from records_of(batch)


@dataclass(frozen=True, slots=True)
class PastRecord:
    """A record of a key. If it was removed: the commit that removed it, and the last snapshot that has it."""

    record: Record
    removed_by: Commit | None = None
    last_snapshot_id: int | None = None


def key_history(table: Table, key: bytes, progress: Callable[[str], None] = lambda _: None) -> list[PastRecord]:
    """Return all records of a key that the kept snapshots of `main` have, by partition and offset.

    Only rounds and other writers remove records. So this reads the current snapshot, and the snapshot before each of
    their commits.
    """
    commits = whole_rounds(list(history_of(table)))
    kept = {commit.snapshot_id for commit in commits}
    removals = [c for c in commits if c.operation not in ("append", "replace") and c.parent_id in kept]
    found: dict[tuple[int, int], PastRecord] = {}
    for commit in (None, *removals) if commits else ():
        snapshot_id = commit.parent_id if commit else commits[0].snapshot_id
        progress(f"reading snapshot {snapshot_id}")
        for batch in log_records(table, None, snapshot_id, key=key).to_batches():
            for record in records_of(batch):
                last = snapshot_id if commit else None
                found.setdefault((record.partition, record.offset), PastRecord(record, commit, last))
    return [found[place] for place in sorted(found)]


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """Yield the records of a batch in the topic table's columns. Microseconds become Kafka's milliseconds."""
    import pyarrow as pa

    columns = {name: batch.column(name) for name in batch.schema.names}
    stamps = columns[TIMESTAMP].cast(pa.int64())
    values = zip(
        *(columns[name].to_pylist() for name in (PARTITION, OFFSET, TIMESTAMP_TYPE, KEY, VALUE, HEADERS)),
        stamps.to_pylist(),
        strict=True,
    )
    for partition, offset, kind, key, value, headers, micros in values:
        yield Record(partition, offset, None if micros is None else micros // 1000, kind, key, value, _headers(headers))


def _headers(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((h["key"], h["value"]) for h in headers or ())


def sampled_records(topic: Topic, sample: Sequence[RemovedRecord]) -> dict[tuple[int, int], ShownRecord]:
    """Return the sampled records by partition and offset.

    A waiting round has not removed anything yet, so its records are on `main`.
    """
    table = load_table(open_catalog(topic.platform), topic)
    current = table.current_snapshot() if table is not None else None
    if table is None or current is None:
        return {}
    offsets: dict[int, list[int]] = {}
    for removed in sample:
        offsets.setdefault(removed.partition, []).append(removed.offset)
    records = (r for p, of_log in offsets.items() for r in read_shown(table, p, of_log, current.snapshot_id))
    return {(r.partition, r.offset): r for r in records}


MOST_RECORDS = 50
"""Maximum number of records shown at once."""
KEY_CHARS, VALUE_CHARS, HEADER_CHARS = 60, 100, 60
HEADERS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """Key, value and headers as texts that are safe to print: text in JSON's quotes, other bytes in hex, null."""

    partition: int
    offset: int
    key: str
    value: str
    headers: tuple[str, ...] = ()

    def __str__(self) -> str:
        headers = f", headers {', '.join(self.headers)}" if self.headers else ""
        return f"offset {self.offset}: key {self.key}, value {self.value}{headers}"


def snapshot_shown(table: Table, snapshot_id: int, published: bool) -> int | None:
    """Return the snapshot in which the records of a checked snapshot can be read, or None.

    While a branch points to the checked snapshot, returns it. If it was published, returns the head of `main`. The
    records of a dropped snapshot cannot be read.
    """
    heads = {ref.snapshot_id for ref in table.refs().values()}
    current = table.current_snapshot()
    if snapshot_id in heads and table.snapshot_by_id(snapshot_id) is not None:
        return snapshot_id
    return current.snapshot_id if published and current else None


def read_shown(table: Table, partition: int, offsets: Iterable[int], snapshot_id: int) -> list[ShownRecord]:
    """Return the records of a log that are live at a snapshot, at these offsets, in order, at most MOST_RECORDS."""
    few = sorted(set(offsets))[:MOST_RECORDS]
    if not few:
        return []
    stored = records_at(table, partition, few, snapshot_id)
    records = (record for batch in stored.to_batches() for record in records_of(batch))
    shown_records = [
        ShownRecord(
            r.partition, r.offset, _word(r.key, KEY_CHARS), _word(r.value, VALUE_CHARS), headers_shown(r.headers)
        )
        for r in records
    ]
    return sorted(shown_records, key=lambda r: r.offset)[:MOST_RECORDS]


def headers_shown(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, ...]:
    """Return the first few headers as `"name": "value"`."""
    few = [f"{_word(k.encode(), HEADER_CHARS)}: {_word(v, HEADER_CHARS)}" for k, v in headers[:HEADERS_SHOWN]]
    more = len(headers) - len(few)
    return (*few, *([f"and {more} more"] if more > 0 else []))


def _word(data: bytes | None, chars: int) -> str:
    return shown(data, None, chars)


def shown(data: bytes | None, length: int | None, chars: int) -> str:
    """Return a key or value as one printable text of limited length: JSON's quotes, hex for other bytes, or null.

    `data` may be only the beginning of `length` bytes.
    """
    if data is None:
        return "null"
    cut = "…" if length is not None and length > len(data) else ""
    text = _text(data, bool(cut))
    if text is None:
        return f"0x{data[: chars // 2].hex()}{cut or ('…' if len(data) > chars // 2 else '')}"
    return f"{_quoted(text[:chars])}{cut or ('…' if len(text) > chars else '')}"


def _text(data: bytes, is_cut: bool) -> str | None:
    """Decode UTF-8. None if the bytes are not UTF-8. Cut data may end in the middle of a character."""
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        return data[: e.start].decode() if is_cut and e.start >= len(data) - 3 else None


def _quoted(text: str) -> str:
    """Return the text in JSON's quotes, with unprintable characters (line breaks, marks of direction) escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)

"""Virtual segments: the data files of one log, in offset order, rolled as Kafka would roll them (semantics.md 3.1).

An Iceberg table has files, not log segments. Every bound, ratio and retention decision is computed on virtual segments.

1. Files are taken in the order of their first offsets. A file belongs to the segment of its first offset.
2. A segment is rolled if one more file would pass segment.bytes. It is also rolled if the time from the segment's first
   timestamp to the file's largest one passes the effective segment.ms: min(segment.ms, max.compaction.lag.ms). Files
   with the same first offset stay together.
3. A segment that reaches over the base of the next segment (a backfill) is cut there. The next segment gets its largest
   timestamp, so that a late file does not join the active segment to the tail.
4. The newest segment is active until it is as old as the effective segment.ms. Kafka rolls only when the next record
   arrives, so a quiet archive would never be cleaned. A file without timestamps has the time of its append, where Kafka
   takes the time of the segment file. If the snapshot of the append has expired, the file is not active.
5. Bytes are file bytes x live fraction: delete files shrink a log without a rewrite.
6. A file that a sink registered twice counts once. A round keeps each of its records once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cleantail.human import be, counted

NO_TIMESTAMP_MS = -1
"""Kafka's RecordBatch.NO_TIMESTAMP: the record has no timestamp."""
NAMED_FILES = 3
"""Number of files that a message names."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of one log, as the Iceberg manifests describe it. Both offset bounds are inclusive.

    A file of an adopted table with several logs is one DataFile for each log. Files of two `iceberg_partition`s cannot
    be merged. `null_keys` and `null_values` count records without a key, and tombstones, in the file as written.
    `registered` counts how often the table names the file (see `once`). Only files without timestamps have
    `appended_ms`, the time of their append. If the snapshot of the append has expired, `append_kept` is False, and
    `appended_ms` is the time of the next kept snapshot.
    """

    path: str
    partition: int
    lower_offset: int
    upper_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    records: int
    deleted_records: int
    size_bytes: int
    null_values: int
    data_sequence_number: int
    snapshot_id: int
    iceberg_partition: str = ""
    null_keys: int = 0
    registered: int = 1
    appended_ms: int = NO_TIMESTAMP_MS
    append_kept: bool = True

    @property
    def first_ms(self) -> int:
        """Return the lowest timestamp, else the time of the append; NO_TIMESTAMP_MS if neither is known."""
        if self.min_timestamp_ms >= 0:
            return self.min_timestamp_ms
        return self.appended_ms if self.append_kept else NO_TIMESTAMP_MS

    @property
    def largest_ms(self) -> int:
        """Return the largest timestamp, else the time of the append, or a later time if its snapshot has expired."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.appended_ms

    @property
    def live_records(self) -> int:
        return max(self.records - self.deleted_records, 0)

    @property
    def live_bytes(self) -> int:
        """Return file bytes x live fraction (semantics.md 3.1), at least 1 while a record is alive."""
        return max(self.size_bytes * self.live_records // self.records, 1) if self.live_records else 0

    def records_between(self, start_offset: int, end_offset: int) -> int:
        """Return an upper limit of the records in [start, end), from the file's bounds."""
        offsets = min(self.upper_offset + 1, end_offset) - max(self.lower_offset, start_offset)
        inside = self.lower_offset >= start_offset and self.upper_offset < end_offset
        return self.records if inside else max(min(self.records, offsets), 0)

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """Estimate the live bytes in [start, end), from records_between and the mean size of a record."""
        return self.live_bytes * self.records_between(start_offset, end_offset) // self.records if self.records else 0

    @property
    def deleted_share(self) -> float:
        return self.deleted_records / self.records if self.records else 0.0


def once(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Merge the registrations of each file. The last registration counts, because older deletes do not apply to it."""
    by_log: dict[tuple[str, int], list[DataFile]] = {}
    for file in files:
        by_log.setdefault((file.path, file.partition), []).append(file)
    return tuple(
        replace(max(same, key=lambda f: f.data_sequence_number), registered=len(same)) if len(same) > 1 else same[0]
        for same in by_log.values()
    )


def registered_twice_note(files: Iterable[DataFile]) -> str:
    """Return a text with the files that are registered more than once; empty without such files."""
    return twice_text([file.path for file in files if file.registered > 1])


def twice_text(paths: Sequence[str]) -> str:
    """Return `2 files are registered more than once: a.parquet, b.parquet`; empty for no paths."""
    if not paths:
        return ""
    names = ", ".join(path.rpartition("/")[2] for path in paths[:NAMED_FILES])
    more = ", …" if len(paths) > NAMED_FILES else ""
    return f"{counted(len(paths), 'file')} {be(len(paths))} registered more than once: {names}{more}"


@dataclass(frozen=True, slots=True)
class Segment:
    """A virtual segment: `[base_offset, end_offset_exclusive)`, its live bytes and its record timestamps.

    The end is one past the last record, so a gap of offsets before the next base belongs to no segment.
    """

    base_offset: int
    end_offset_exclusive: int
    bytes: int
    first_timestamp_ms: int
    largest_timestamp_ms: int
    files: int

    @classmethod
    def of(cls, file: DataFile) -> Segment:
        return cls(
            base_offset=file.lower_offset,
            end_offset_exclusive=file.upper_offset + 1,
            bytes=file.live_bytes,
            first_timestamp_ms=file.first_ms,
            largest_timestamp_ms=file.largest_ms,
            files=1,
        )

    def joined(self, file: DataFile) -> Segment:
        return Segment(
            base_offset=self.base_offset,
            end_offset_exclusive=max(self.end_offset_exclusive, file.upper_offset + 1),
            bytes=self.bytes + file.live_bytes,
            first_timestamp_ms=self.first_timestamp_ms,
            largest_timestamp_ms=max(self.largest_timestamp_ms, file.largest_ms),
            files=self.files + 1,
        )


def roll_segments(files: Iterable[DataFile], segment_bytes: int, segment_ms: int) -> tuple[Segment, ...]:
    """Roll the data files of one log into disjoint segments in offset order. `segment_ms`: the effective segment.ms
    (rule 2)."""
    segments: list[Segment] = []
    for file in sorted(files, key=lambda f: (f.lower_offset, f.upper_offset, f.path)):
        if segments and not _must_roll(segments[-1], file, segment_bytes, segment_ms):
            segments[-1] = segments[-1].joined(file)
        else:
            segments.append(Segment.of(file))
    return _cut_at_next_base(segments)


def _must_roll(current: Segment, file: DataFile, segment_bytes: int, segment_ms: int) -> bool:
    """Return Kafka's LogSegment.shouldRoll, on whole files."""
    same_base = file.lower_offset == current.base_offset
    too_big = current.bytes + file.live_bytes > segment_bytes
    if current.first_timestamp_ms == NO_TIMESTAMP_MS:  # appended before every kept snapshot
        too_long = file.first_ms != NO_TIMESTAMP_MS
    else:
        too_long = file.largest_ms - current.first_timestamp_ms > segment_ms
    return not same_base and (too_big or too_long)


def _cut_at_next_base(segments: list[Segment]) -> tuple[Segment, ...]:
    """Cut each segment at the next base. The next segment gets the end and the largest timestamp of a cut segment."""
    cut: list[Segment] = []
    reach: Segment | None = None
    for segment, following in zip(segments, [*segments[1:], None], strict=False):  # an empty log has none
        if reach and reach.end_offset_exclusive > segment.base_offset:
            largest_ms = max(segment.largest_timestamp_ms, reach.largest_timestamp_ms)
            end = max(segment.end_offset_exclusive, reach.end_offset_exclusive)
            segment = replace(segment, largest_timestamp_ms=largest_ms, end_offset_exclusive=end)
        reach = segment
        end = (
            segment.end_offset_exclusive
            if following is None
            else min(segment.end_offset_exclusive, following.base_offset)
        )
        cut.append(replace(segment, end_offset_exclusive=end))
    return tuple(cut)


def is_active(newest: Segment, now_ms: int, segment_ms: int) -> bool:
    return newest.first_timestamp_ms != NO_TIMESTAMP_MS and now_ms - newest.first_timestamp_ms < segment_ms


def split(total: int, weights: list[int]) -> list[int]:
    """Split `total` into whole parts by weight. Their sum is `total`."""
    whole, total_so_far, weight_so_far = sum(weights), 0, 0
    parts = []
    for weight in weights:
        weight_so_far += weight
        upto = total * weight_so_far // whole if whole else 0
        parts.append(upto - total_so_far)
        total_so_far = upto
    return parts

"""Read a topic's log from a broker's files without the broker: `.log` files, or their copies in tiered storage.

The directory is a broker's log directory, a copy of it, a copy by tiered storage, or one partition's folder:

- folders `TOPIC-N`, as a broker names them, or `TOPIC-N-TOPICID`, as Kafka's own LocalTieredStorage does;
- in them, files that begin with their base offset: `00000000000000000042.log`, or `42-SEGMENTID.log`.

Files that a broker is about to delete (`-delete`, `.deleted`) or has not finished (`-future`, `.cleaned`) have other
names, and are ignored.

A scan reads every batch of a file and verifies its checksum before any record is stored. For a transaction it stores
only producer and first offset, so a scan is small. The scans of a partition's files are joined to one log:

1. In tiered storage, files overlap if a leader changed or if a copy was tried twice. They are equal up to the beginning
   of the later leader. As in Kafka, the file with the higher leader epoch wins. If the epochs are equal, the longer
   file wins.
2. Offsets that no file has are missing, unless the broker's cleaner removed their records. Its checkpoint stores the
   end of the cleaned part. Beyond that end, only a later batch with fewer records than offsets proves a cleaning. It
   was done by a leader from which the replica was copied, or by a broker that has not written its checkpoint yet. A
   warning names such offsets. Without the checkpoint, a gap in a file also counts as cleaned.
3. A log ends at the broker's high watermark if a checkpoint names it, else with its last batch. The first transaction
   below without a marker is the last stable offset, where a read_committed consumer stops.

A range is read as by a consumer: in order and without markers. Under read_committed, records of aborted transactions
are left out. To find them, the headers of batches are read first, beyond the range if a transaction ends there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from cleantail.config.input_limits import DEFAULT_LIMITS
from cleantail.errors import CleantailError, OutsideError, SegmentError
from cleantail.kafka.read_plan import COMMITTED, LogOffsets, Range
from cleantail.kafka.segment_batches import (
    HEADER_BYTES,
    AbortedRecords,
    BatchHeader,
    BatchProblem,
    SegmentRecord,
    header_problem,
    is_abort_marker,
    parse_header,
    records_of,
    require_whole,
)

SEGMENT = re.compile(r"(\d{1,19}|0\d{19})(-[A-Za-z0-9_-]+)?\.log")
TOPIC_ID = r"[A-Za-z0-9_-]{22}"
HIGH_WATERMARKS, LOG_STARTS, CLEAN_POINTS = (
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
"""Checkpoint files of a log directory: high watermarks, moved log starts, and ends of cleaned parts."""
CLUSTER_FILE, TOPIC_FILE = "meta.properties", "partition.metadata"
_NOTHING = "nothing was appended"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file as it was found. `modified_ns` and `inode` detect another or a changed file."""

    path: Path
    base_offset: int
    size_bytes: int
    modified_ns: int
    inode: int

    @property
    def is_copy(self) -> bool:
        """Return whether the file is a copy in tiered storage, which has an id in its name.

        Copies may overlap, and never belong to a compacted log.
        """
        return not self.path.stem.isdigit()


@dataclass(frozen=True, slots=True)
class LogFolder:
    """One partition's folder. `segments` ascend by base offset.

    `log_start` and `high_watermark` are the broker's, if its checkpoints exist and contain the partition.
    `clean_point`: from the cleaner's checkpoint, None without that checkpoint. It is 0 if the checkpoint lacks the
    partition, which was then never cleaned.
    """

    partition: int
    path: Path
    topic_id: str
    segments: tuple[SegmentFile, ...]
    log_start: int = 0
    high_watermark: int | None = None
    clean_point: int | None = None

    def from_offset(self, offset: int) -> LogFolder:
        """Return the log without the segments that are wholly below the offset.

        Keeps all copies in tiered storage: they may overlap, so their names do not show their ends.
        """
        if any(segment.is_copy for segment in self.segments):
            return self
        below = sum(segment.base_offset <= offset for segment in self.segments[1:])
        return replace(self, segments=self.segments[below:])


@dataclass(frozen=True, slots=True)
class TopicFolders:
    """A topic's logs in a directory. Cluster id and topic id are empty if no file contains them."""

    topic: str
    cluster_id: str
    topic_id: str
    logs: tuple[LogFolder, ...]


def find_logs(directory: Path, topic: str) -> TopicFolders:
    """Return the logs of the topic, ascending by partition.

    Raises CleantailError without logs, or if files may belong to another topic.
    """
    folders, checkpoints = _partition_folders(directory, topic)
    starts, ends, clean = (
        _checkpoint(checkpoints / name, topic) for name in (LOG_STARTS, HIGH_WATERMARKS, CLEAN_POINTS)
    )
    never = 0 if (checkpoints / CLEAN_POINTS).exists() else None
    logs = tuple(
        LogFolder(n, path, _topic_id(path, topic), _segments(path), starts.get(n, 0), ends.get(n), clean.get(n, never))
        for n, path in sorted(folders.items())
    )
    ids = {log.topic_id: log.path for log in logs if log.topic_id}
    if len(ids) > 1:
        (one, first), (other, second) = list(ids.items())[:2]
        raise CleantailError(
            f"{first} belongs to the topic with the id {one}, but {second} to the topic with the id {other}: two "
            f"topics had the name {topic}. Give the folders of only one of them; {_NOTHING}"
        )
    return TopicFolders(topic, _property(checkpoints / CLUSTER_FILE, "cluster.id", "="), next(iter(ids), ""), logs)


def _partition_folders(directory: Path, topic: str) -> tuple[dict[int, Path], Path]:
    """Return partition -> folder, and the directory that has the checkpoints."""
    name = re.compile(rf"{re.escape(topic)}-(\d{{1,10}})(-{TOPIC_ID})?")
    if not directory.is_dir():
        raise CleantailError(f"{directory} is not a directory; {_NOTHING}")
    if match := name.fullmatch(directory.name):
        return {int(match[1]): directory}, directory.parent
    folders: dict[int, Path] = {}
    for path in sorted(_entries(directory)):
        if (match := name.fullmatch(path.name)) and path.is_dir():
            if (partition := int(match[1])) in folders:
                raise CleantailError(
                    f"{folders[partition]} and {path} are both of partition {partition} of topic {topic}; {_NOTHING}"
                )
            folders[partition] = path
    if not folders:
        raise CleantailError(
            f"{directory} has no folder of topic {topic}: expected are folders {topic}-N, or {topic}-N-TOPICID as "
            f"tiered storage names them, or such a folder itself; {_NOTHING}"
        )
    return folders, directory


def _segments(folder: Path) -> tuple[SegmentFile, ...]:
    """Return the folder's segments. Raises CleantailError if it has none.

    Also raises CleantailError if a broker was stopped while it replaced segments with cleaned ones: only the broker can
    determine which of them are complete.
    """
    segments = []
    for path in _entries(folder):
        if path.name.endswith(".log.swap"):
            raise CleantailError(
                f"{path}: the broker was stopped while it replaced segments by cleaned ones, or is doing so now: "
                f"start it once, or try again; {_NOTHING}"
            )
        if match := SEGMENT.fullmatch(path.name):
            segments.append(_segment(path, int(match[1])))
    if not segments:
        raise CleantailError(f"{folder} has no segments (OFFSET.log, or OFFSET-SEGMENTID.log); {_NOTHING}")
    return tuple(sorted(segments, key=lambda s: (s.base_offset, s.path.name)))


def _segment(path: Path, base_offset: int) -> SegmentFile:
    try:
        status = path.stat()
    except OSError as e:
        raise OutsideError(f"{path} cannot be read: {e.strerror}; {_NOTHING}") from None
    return SegmentFile(path, base_offset, status.st_size, status.st_mtime_ns, status.st_ino)


def require_same_file(segment: SegmentFile, status: os.stat_result, may_grow: bool) -> None:
    """Raise OutsideError if a file has changed since its scan.

    `may_grow`: for the segment to which a running broker appends.
    """
    same_size = status.st_size >= segment.size_bytes if may_grow else status.st_size == segment.size_bytes
    if status.st_ino != segment.inode or not same_size or (status.st_mtime_ns != segment.modified_ns and not may_grow):
        raise OutsideError(f"{segment.path} was changed while it was read: try again; {_NOTHING}")


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError as e:
        raise CleantailError(f"{directory} cannot be read: {e.strerror}; {_NOTHING}") from None


def _topic_id(folder: Path, topic: str) -> str:
    """Return the topic's id from the folder's name, or from the broker's file in it."""
    if match := re.fullmatch(rf"{re.escape(topic)}-\d+-({TOPIC_ID})", folder.name):
        return match[1]
    return _property(folder / TOPIC_FILE, "topic_id", ":")


def _property(file: Path, name: str, separator: str) -> str:
    """Return a property from a small file of the broker. Empty if the file or the property does not exist."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as e:
        raise CleantailError(f"{file} cannot be read: {e}; {_NOTHING}") from None
    pairs = (line.partition(separator) for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def _checkpoint(file: Path, topic: str) -> Mapping[int, int]:
    """Return partition -> offset from a checkpoint of the broker. Empty if the file does not exist or has no entry.

    The format is a version, a number of lines, and lines of topic, partition and offset.
    """
    try:
        rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines()[2:]]
        return {int(partition): int(offset) for name, partition, offset in rows if name == topic}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise CleantailError(f"{file} is not a checkpoint of a broker: {e}; {_NOTHING}") from None


ZEROS_BYTES = 1 << 20
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A scan to run: the batches of a file below the offset `end` (None: all of them).

    `is_active`: the file is the last file of its log. Such a file may end in zeros, which a broker preallocates.
    """

    file: SegmentFile
    is_active: bool = False
    end: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentGap:
    """Offsets from `start` to below `end` that are missing in a file. The next batch begins at the byte position."""

    start: int
    end: int
    at_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """The content of a segment below the requested `end`.

    first_offset    of its first batch; end_offset without batches
    end_offset      after its last batch; the base offset without batches
    end_bytes       position of the end of its last batch
    has_more        whether the file continues behind `end`
    last_epoch      leader epoch of its last batch
    cleaned_to      the offset up to which the file may have been cleaned, 0 without signs of a cleaner
    rewritten_to    the offset up to which the file was certainly cleaned: the end of its last batch with fewer records
                    than offsets
    gap             its last gap between batches, which a cut can cause too
    ended           producers with a transaction that ends in the file
    begun           producer -> first offset of a transaction that begins in the file and does not end there
    """

    file: SegmentFile
    first_offset: int
    end_offset: int
    end_bytes: int
    has_more: bool
    last_epoch: int
    cleaned_to: int
    ended: frozenset[int]
    begun: Mapping[int, int]
    rewritten_to: int = 0
    gap: SegmentGap | None = None


class OpenSegment:
    """Reads one segment's file by position. The caller must close it."""

    def __init__(self, request: ScanRequest, limit_bytes: int) -> None:
        """Raise CleantailError if the file has changed since it was found."""
        self._request, self._limit_bytes = request, limit_bytes
        file = request.file
        try:
            self._descriptor = os.open(file.path, os.O_RDONLY)
        except OSError as e:
            raise OutsideError(f"{file.path} cannot be read: {e.strerror}; nothing was appended") from None
        require_same_file(file, os.fstat(self._descriptor), request.is_active)

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the headers of all batches below the end, with their positions.

        Raises SegmentError for bytes that cannot be a batch, or for a batch that does not follow the previous batch.
        """
        file, end = self._request.file, self._request.end
        at, offset, epoch = 0, file.base_offset, NO_EPOCH
        while at < file.size_bytes and (end is None or offset < end):
            head = os.pread(self._descriptor, HEADER_BYTES, at)
            if len(head) < HEADER_BYTES:
                self.fail(at, f"only {len(head)} bytes are left of a batch: it is cut off")
            if self._request.is_active and not any(head) and self._only_zeros_from(at):
                return
            header = parse_header(head)
            if problem := header_problem(header, file.size_bytes - at, self._limit_bytes):
                self.fail(at, problem)
            if header.base_offset < offset:
                self.fail(at, f"a batch with offset {header.base_offset} instead of {offset} or more: it is damaged")
            if header.leader_epoch < epoch:
                self.fail(
                    at, f"leader epoch {header.leader_epoch} after {epoch}: epochs never decrease, so it is damaged"
                )
            if end is not None and header.next_offset > end:
                return
            yield at, header
            at, offset, epoch = at + header.size_bytes, header.next_offset, header.leader_epoch

    def batch(self, at: int, header: BatchHeader) -> bytes:
        """Return the bytes of a batch. Raises SegmentError if the file ends inside it."""
        data = os.pread(self._descriptor, header.size_bytes, at)
        if len(data) < header.size_bytes:
            self.fail(at, "the file ends in this batch: it is cut off")
        return data

    def is_filled_at(self, at: int) -> bool:
        """Return whether the file has more than zeros from a position on."""
        return any(os.pread(self._descriptor, HEADER_BYTES, at))

    def fail(self, at: int, reason: str) -> NoReturn:
        """Raise SegmentError for an error at a position."""
        raise SegmentError(f"{self._request.file.path}, byte {at}: {reason}; nothing was appended")

    def _only_zeros_from(self, at: int) -> bool:
        while data := os.pread(self._descriptor, ZEROS_BYTES, at):
            if data.count(0) < len(data):
                return False
            at += len(data)
        return True


def scan_segment(request: ScanRequest, limit_bytes: int) -> SegmentScan:
    """Scan one segment. Raises SegmentError if it is cut or damaged, OutsideError if the file cannot be read."""
    file = request.file
    first, end, end_bytes, epoch, cleaned_to = -1, file.base_offset, 0, NO_EPOCH, 0
    rewritten_to, gap = 0, None
    ended: set[int] = set()
    begun: dict[int, int] = {}
    with OpenSegment(request, limit_bytes) as segment:
        for at, header in segment.headers():
            try:
                require_whole(segment.batch(at, header))
            except BatchProblem as e:
                segment.fail(at, str(e))
            if header.base_offset > end:
                cleaned_to, gap = header.base_offset, SegmentGap(end, header.base_offset, at)
            if header.was_cleaned:
                cleaned_to = rewritten_to = header.next_offset
            if header.is_transactional and header.is_control:
                begun.pop(header.producer_id, None)
                ended.add(header.producer_id)
            elif header.is_transactional and header.record_count:
                begun.setdefault(header.producer_id, header.base_offset)
            first = header.base_offset if first < 0 else first
            end, end_bytes, epoch = header.next_offset, at + header.size_bytes, header.leader_epoch
        has_more = request.end is not None and segment.is_filled_at(end_bytes)
    first = end if first < 0 else first
    of_producers = frozenset(ended), begun
    return SegmentScan(file, first, end, end_bytes, has_more, epoch, cleaned_to, *of_producers, rewritten_to, gap)


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """A log with complete and contiguous segments. `segments`: the segments to read."""

    partition: int
    segments: tuple[ScanRequest, ...]
    offsets: LogOffsets
    warnings: tuple[str, ...] = ()


def scan_requests(log: LogFolder) -> list[ScanRequest]:
    """Return the scans of a log, up to its high watermark if that is known."""
    last = log.segments[-1]
    return [
        ScanRequest(file, file is last, log.high_watermark)
        for file in log.segments
        if log.high_watermark is None or file is log.segments[0] or file.base_offset <= log.high_watermark
    ]


def settled(
    scans: Sequence[SegmentScan], scan_again: Callable[[Sequence[ScanRequest]], Iterable[SegmentScan]]
) -> list[SegmentScan]:
    """Return the scans of the files to read, ascending.

    If only a part of a file is read, the file is scanned again up to the end of that part. Later transactions in it
    never existed for the later leader. Files that cannot overlap, or have an impossible gap, stay unchanged, for
    `scanned_log` to report.
    """
    if any(not scan.file.is_copy or scan.cleaned_to for scan in scans):
        return sorted(scans, key=lambda s: s.file.base_offset)
    while True:
        chosen = without_overlaps(scans)
        again = [ScanRequest(scan.file, False, to) for scan, to in chosen if to < scan.end_offset]
        if not again:
            return [scan for scan, _ in chosen]
        scans = [*(scan for scan, to in chosen if to >= scan.end_offset), *scan_again(again)]


def without_overlaps(scans: Sequence[SegmentScan]) -> list[tuple[SegmentScan, int]]:
    """Return the scans of the files to read, each with the end offset of the read."""
    chosen: list[tuple[SegmentScan, int]] = []
    for scan in sorted(scans, key=lambda s: (s.file.base_offset, s.last_epoch, s.end_offset)):
        while chosen and _takes_over(scan, chosen[-1][0]) and chosen[-1][0].file.base_offset >= scan.file.base_offset:
            chosen.pop()
        if chosen and scan.file.base_offset < chosen[-1][1]:
            last, _ = chosen[-1]
            if not _takes_over(scan, last):
                continue
            chosen[-1] = (last, scan.file.base_offset)
        chosen.append((scan, scan.end_offset))
    return chosen


def _takes_over(scan: SegmentScan, earlier: SegmentScan) -> bool:
    return (scan.last_epoch, scan.end_offset) > (earlier.last_epoch, earlier.end_offset)


def scanned_log(log: LogFolder, scans: Sequence[SegmentScan]) -> ScannedLog:
    """Return the log of ascending scans that do not overlap.

    Raises SegmentError if offsets are missing, or if a batch has offsets of the next file. The same holds if the log is
    shorter than the broker's checkpoints show.
    """
    _require_continuous(log, scans)
    first, last = scans[0], scans[-1]
    end = last.end_offset
    if log.high_watermark is not None:
        if end < log.high_watermark:
            raise SegmentError(
                f"{last.file.path}, byte {last.end_bytes}: the log ends at offset {end} here, and the broker's high "
                f"watermark is {log.high_watermark}: the rest is cut off, or a segment is missing; nothing was appended"
            )
        end = log.high_watermark
    start = max(first.file.base_offset, log.log_start)
    stable = min([end, *_open_transactions(scans).values()])
    active = log.segments[-1]
    requests = tuple(ScanRequest(s.file, s.file == active, s.end_offset) for s in scans)
    offsets = LogOffsets(start, max(stable, start), max(end, start))
    return ScannedLog(log.partition, requests, offsets, _warnings(log, scans, stable, end))


def _require_continuous(log: LogFolder, scans: Sequence[SegmentScan]) -> None:
    for before, after in zip(scans, scans[1:], strict=False):
        base, first = after.file.base_offset, after.first_offset
        if before.end_offset > base:
            raise SegmentError(
                f"{before.file.path}: its batches go to offset {before.end_offset - 1}, and {after.file.path.name} "
                f"begins at {base}: one of the two is damaged; nothing was appended"
            )
        if before.last_epoch > after.last_epoch >= 0:
            raise SegmentError(
                f"{after.file.path}, byte 0: leader epoch {after.last_epoch} after {before.last_epoch} in "
                f"{before.file.path.name}: epochs never decrease, so one of the two is damaged; nothing was appended"
            )
        if before.end_offset < first and not _is_cleaned(log, scans, first, before):
            raise SegmentError(
                f"{after.file.path}, byte 0: offsets {before.end_offset} to {first - 1} are missing before it: a "
                f"segment is missing, or {before.file.path.name} is cut off. {_cleaner_text(log)}"
            )
    for scan in scans:
        if scan.gap and not _is_cleaned(log, scans, scan.gap.end, scan):
            raise SegmentError(
                f"{scan.file.path}, byte {scan.gap.at_bytes}: offsets {scan.gap.start} to {scan.gap.end - 1} are "
                f"missing before it: batches were cut out. {_cleaner_text(log)}"
            )


def _is_cleaned(log: LogFolder, scans: Sequence[SegmentScan], offset: int, before: SegmentScan) -> bool:
    """Return whether a cleaner has reached the offset. A cleaner begins at the start of a log.

    `before`: the segment that ends before the gap, or contains it.
    """
    if log.clean_point is None:
        return before.cleaned_to > 0 or offset <= max(scan.cleaned_to for scan in scans)
    return offset <= max(log.clean_point, *(scan.rewritten_to for scan in scans))


def _cleaner_text(log: LogFolder) -> str:
    if log.clean_point is None:
        return (
            "If the broker's cleaner removed these records, put its cleaner-offset-checkpoint next to the "
            "partition's folder; nothing was appended"
        )
    return (
        "According to the cleaner-offset-checkpoint next to the partition's folder, the cleaner has reached offset "
        f"{log.clean_point}. If the broker is cleaning this log now, try again later. If this replica was copied "
        "from another broker that had cleaned it, read that broker's folder; nothing was appended"
    )


def _open_transactions(scans: Sequence[SegmentScan]) -> Mapping[int, int]:
    """Return producer -> first offset of a transaction without a marker."""
    transactions: dict[int, int] = {}
    for scan in scans:
        for producer_id in scan.ended:
            transactions.pop(producer_id, None)
        for producer_id, offset in scan.begun.items():
            transactions.setdefault(producer_id, offset)
    return transactions


def _warnings(log: LogFolder, scans: Sequence[SegmentScan], stable: int, end: int) -> tuple[str, ...]:
    texts, last = [], scans[-1]
    cleaned = max(scan.rewritten_to for scan in scans)
    if log.clean_point is not None and cleaned > log.clean_point:
        texts.append(
            f"partition {log.partition}: batches up to offset {cleaned} were cleaned, but the broker's "
            f"cleaner-offset-checkpoint has {log.clean_point}: another broker cleaned them, or this one is cleaning "
            f"them now. Missing offsets from {log.clean_point} to {cleaned - 1} count as cleaned"
        )
    if last.has_more:
        texts.append(
            f"partition {log.partition}: {last.file.path.name} continues beyond offset {end}, the broker's high "
            "watermark in its checkpoint: records beyond it may not be replicated and were not read"
        )
    if stable < end:
        texts.append(
            f"partition {log.partition}: a transaction that began at offset {stable} has no end in these segments: "
            "later records were not read"
        )
    return tuple(texts)


CHUNK_RECORDS, CHUNK_BYTES = 10_000, 8 << 20


class LogReader:
    """Reads one log.

    `limit_bytes`: maximum size of a batch, compressed or decompressed. `most_headers`: maximum number of headers of a
    record.
    """

    def __init__(
        self, log: ScannedLog, isolation: str, limit_bytes: int, most_headers: int = DEFAULT_LIMITS.headers
    ) -> None:
        self._log, self._limit_bytes, self._most_headers = log, limit_bytes, most_headers
        self._committed = isolation == COMMITTED

    def chunks(self, span: Range) -> Iterator[list[SegmentRecord]]:
        """Yield the records of a range in lists of up to CHUNK_RECORDS, or of about CHUNK_BYTES plus one batch.

        Raises SegmentError for damaged batches, and CleantailError if a file has changed since its scan.
        """
        chunk: list[SegmentRecord] = []
        held_bytes = 0
        for record in self._records(span):
            chunk.append(record)
            held_bytes += len(record.key or b"") + len(record.value or b"")
            if len(chunk) >= CHUNK_RECORDS or held_bytes >= CHUNK_BYTES:
                yield chunk
                chunk, held_bytes = [], 0
        if chunk:
            yield chunk

    def _records(self, span: Range) -> Iterator[SegmentRecord]:
        aborted = self._aborted(span)
        for segment, at, header in self._headers(span.start):
            if header.base_offset >= span.end:
                return
            if header.is_control or (
                header.is_transactional and aborted.include(header.producer_id, header.base_offset)
            ):
                continue
            try:
                for record in records_of(header, segment.batch(at, header), self._limit_bytes, self._most_headers):
                    if span.start <= record.offset < span.end:
                        yield record
            except BatchProblem as e:
                segment.fail(at, str(e))

    def _aborted(self, span: Range) -> AbortedRecords:
        """Return the aborted batches of the range. None under read_uncommitted, because such consumers see aborted
        records."""
        aborted = AbortedRecords()
        if not self._committed:
            return aborted
        for segment, at, header in self._headers(span.start):
            is_behind = header.base_offset >= span.end
            if is_behind and aborted.are_known:
                return aborted
            if header.is_transactional and header.is_control:
                try:
                    was_aborted = is_abort_marker(header, segment.batch(at, header))
                except BatchProblem as e:
                    segment.fail(at, str(e))
                # the cleaner empties a marker only if no record of its transaction is left
                aborted.end(header.producer_id, header.base_offset, bool(was_aborted))
            elif header.is_transactional and header.record_count and not is_behind:
                aborted.begin(header.producer_id, header.base_offset)
        if not aborted.are_known:
            raise SegmentError(
                f"partition {span.partition}: a transaction below offset {span.end} no longer has a marker: a "
                "segment has changed since it was scanned; nothing was appended"
            )
        return aborted

    def _headers(self, start: int) -> Iterator[tuple[OpenSegment, int, BatchHeader]]:
        """Yield the batches from the one with offset `start` on, each with its open segment and position."""
        requests = self._log.segments
        following = [r.file.base_offset for r in requests[1:]]
        for request, next_base in zip(requests, [*following, None], strict=True):
            if next_base is not None and next_base <= start:
                continue
            with OpenSegment(request, self._limit_bytes) as segment:
                for at, header in segment.headers():
                    if header.next_offset > start:
                        yield segment, at, header

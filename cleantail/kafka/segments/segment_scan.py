"""Goes through one segment from its first byte to its last, and notes what the whole log needs to know of it.

Every batch is read and its checksum verified, before a record of the topic goes anywhere: what is cut or damaged is
told with file and position. Of a transaction only producer and first offset are noted, so a scan is small whatever the
segment has in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from cleantail.errors import OutsideError, SegmentError
from cleantail.kafka.segments.batch_header import HEADER_BYTES, BatchHeader, header_problem, parse_header
from cleantail.kafka.segments.batch_records import BatchProblem, require_whole
from cleantail.kafka.segments.log_folders import SegmentFile, require_same_file

ZEROS_BYTES = 1 << 20
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Says what is to be scanned: the batches of a file below the offset `end` (None: all of them). `is_active`: the
    file is its log's last one, and may end in zeros, which a broker preallocates."""

    file: SegmentFile
    is_active: bool = False
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Describes offsets from `start` to below `end` that are not in a file, whose next batch begins at the byte."""

    start: int
    end: int
    at_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """Says what a segment has below the `end` that was asked for.

    first_offset    of its first batch, end_offset where it has none
    end_offset      after its last batch, its base offset where it has none
    end_bytes       where its last batch ends
    has_more        whether the file goes on behind `end`
    last_epoch      leader epoch of its last batch
    cleaned_to      the offset up to which the file looks as if a cleaner was there, 0 where it does not
    rewritten_to    the offset up to which it proves that: the end of its last batch with fewer records than offsets
    gap             its last gap between batches, which a cut can make too
    ended           producers of which a transaction ends in it
    begun           producer -> first offset of the transaction that it begins and does not end
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
    gap: Gap | None = None


class OpenSegment:
    """Reads one segment's file by position. It is to be closed."""

    def __init__(self, request: ScanRequest, limit_bytes: int) -> None:
        """Raises CleantailError where the file is not what it was when it was found."""
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
        """Yields the headers of all batches below the end, with their positions. Raises SegmentError where one cannot
        be a batch, or does not follow on the one before it."""
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
            self._require_after(at, header, offset, epoch)
            if end is not None and header.next_offset > end:
                return
            yield at, header
            at, offset, epoch = at + header.size_bytes, header.next_offset, header.leader_epoch

    def batch(self, at: int, header: BatchHeader) -> bytes:
        """Returns the bytes of a batch. Raises SegmentError where the file ends in it."""
        data = os.pread(self._descriptor, header.size_bytes, at)
        if len(data) < header.size_bytes:
            self.fail(at, "the file ends in this batch: it is cut off")
        return data

    def is_filled_at(self, at: int) -> bool:
        """Returns whether the file goes on at a position with more than zeros."""
        return any(os.pread(self._descriptor, HEADER_BYTES, at))

    def fail(self, at: int, reason: str) -> NoReturn:
        """Raises SegmentError for what is wrong at a position."""
        raise SegmentError(f"{self._request.file.path}, byte {at}: {reason}; nothing was appended")

    def _require_after(self, at: int, header: BatchHeader, offset: int, epoch: int) -> None:
        if header.base_offset < offset:
            self.fail(at, f"a batch of offset {header.base_offset} where {offset} or more has to be: it is damaged")
        if header.leader_epoch < epoch:
            self.fail(at, f"leader epoch {header.leader_epoch} after {epoch}: an epoch never goes back; it is damaged")

    def _only_zeros_from(self, at: int) -> bool:
        while data := os.pread(self._descriptor, ZEROS_BYTES, at):
            if data.count(0) < len(data):
                return False
            at += len(data)
        return True


def scan_segment(request: ScanRequest, limit_bytes: int) -> SegmentScan:
    """Scans one segment. Raises SegmentError for what is cut or damaged, OutsideError where the file cannot be read."""
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
                cleaned_to, gap = header.base_offset, Gap(end, header.base_offset, at)
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

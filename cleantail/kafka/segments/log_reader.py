"""Reads ranges of offsets of a scanned log as a consumer would be shown them: in order, without markers, and under
read_committed without the records of transactions that were taken back.

A range knows the end of every transaction in it: the headers of the batches are gone through first, beyond the range
where a transaction ends there. No list of transactions has to come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from cleantail.config.input_limits import DEFAULT_LIMITS
from cleantail.errors import SegmentError
from cleantail.kafka.read_plan import COMMITTED, Range
from cleantail.kafka.segments.aborted_records import AbortedRecords
from cleantail.kafka.segments.batch_header import BatchHeader
from cleantail.kafka.segments.batch_records import BatchProblem, SegmentRecord, is_abort, records_of
from cleantail.kafka.segments.scanned_log import ScannedLog
from cleantail.kafka.segments.segment_scan import OpenSegment

CHUNK_RECORDS, CHUNK_BYTES = 10_000, 8 << 20


class LogReader:
    """Reads one log. `limit_bytes` bounds what a batch may have, packed and unpacked, `most_headers` what a record
    may."""

    def __init__(
        self, log: ScannedLog, isolation: str, limit_bytes: int, most_headers: int = DEFAULT_LIMITS.headers
    ) -> None:
        self._log, self._limit_bytes, self._most_headers = log, limit_bytes, most_headers
        self._committed = isolation == COMMITTED

    def chunks(self, span: Range) -> Iterator[list[SegmentRecord]]:
        """Yields the records of a range in lists of up to CHUNK_RECORDS, or of little more than CHUNK_BYTES and one
        batch. Raises SegmentError for what is damaged, and CleantailError where a file has changed since its scan."""
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
        """Returns which batches of the range were taken back: none that a read_uncommitted consumer would not see."""
        aborted = AbortedRecords()
        if not self._committed:
            return aborted
        for segment, at, header in self._headers(span.start):
            is_behind = header.base_offset >= span.end
            if is_behind and aborted.are_known:
                return aborted
            if header.is_transactional and header.is_control:
                try:
                    was_aborted = is_abort(header, segment.batch(at, header))
                except BatchProblem as e:
                    segment.fail(at, str(e))
                # the cleaner empties a marker only where no record of its transaction is left
                aborted.end(header.producer_id, header.base_offset, bool(was_aborted))
            elif header.is_transactional and header.record_count and not is_behind:
                aborted.begin(header.producer_id, header.base_offset)
        if not aborted.are_known:
            raise SegmentError(
                f"partition {span.partition}: a transaction below offset {span.end} has no marker any more: a segment "
                "has changed since it was looked through; nothing was appended"
            )
        return aborted

    def _headers(self, start: int) -> Iterator[tuple[OpenSegment, int, BatchHeader]]:
        """Yields the batches from the one with the offset `start` on, each with its open segment and position."""
        requests = self._log.segments
        following = [r.file.base_offset for r in requests[1:]]
        for request, next_base in zip(requests, [*following, None], strict=True):
            if next_base is not None and next_base <= start:
                continue
            with OpenSegment(request, self._limit_bytes) as segment:
                for at, header in segment.headers():
                    if header.next_offset > start:
                        yield segment, at, header

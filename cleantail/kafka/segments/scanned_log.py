"""A partition's log, put together from the scans of its segments: which file has which offsets, and what may be read.

1. In tiered storage files overlap where a leader changed, or a copy was tried twice: they are copies of one another up
   to where the later leader began. Of two files the one with the higher leader epoch is right, as in Kafka; of one
   epoch the one that goes further.
2. Offsets that no file has are missing, unless the broker's cleaner took their records out. Its checkpoint says how far
   it has come. Beyond that only a later batch with fewer records than offsets proves a cleaner (of the leader that
   a replica was copied from, or one whose checkpoint is not written yet); such offsets are named in a warning. Without
   the checkpoint a gap in a file counts as a cleaner's too.
3. A log ends at the broker's high watermark, where a checkpoint names it, else with its last batch. Below that the
   first transaction without a marker bounds what a read_committed consumer is shown: the last stable offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleantail.errors import SegmentError
from cleantail.kafka.read_plan import LogOffsets
from cleantail.kafka.segments.log_folders import LogFolder
from cleantail.kafka.segments.segment_scan import ScanRequest, SegmentScan


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """Describes a log whose segments are whole and follow on each other. `segments` are as they are to be read."""

    partition: int
    segments: tuple[ScanRequest, ...]
    offsets: LogOffsets
    warnings: tuple[str, ...] = ()


def scan_requests(log: LogFolder) -> list[ScanRequest]:
    """Returns what is to be scanned of a log: everything below the high watermark, where that is known."""
    last = log.segments[-1]
    return [
        ScanRequest(file, file is last, log.high_watermark)
        for file in log.segments
        if log.high_watermark is None or file is log.segments[0] or file.base_offset <= log.high_watermark
    ]


def settled(
    scans: Sequence[SegmentScan], scan_again: Callable[[Sequence[ScanRequest]], Iterable[SegmentScan]]
) -> list[SegmentScan]:
    """Returns the scans of the files that are to be read, ascending. A file that is read in part is scanned again as
    far as that: nothing is to be known of a transaction that a later leader never had. Files that cannot overlap, or
    have a gap where there can be none, are left as they are: `scanned_log` tells what is wrong with them."""
    if any(not scan.file.is_copy or scan.cleaned_to for scan in scans):
        return sorted(scans, key=lambda s: s.file.base_offset)
    while True:
        chosen = without_overlaps(scans)
        again = [ScanRequest(scan.file, False, to) for scan, to in chosen if to < scan.end_offset]
        if not again:
            return [scan for scan, _ in chosen]
        scans = [*(scan for scan, to in chosen if to >= scan.end_offset), *scan_again(again)]


def without_overlaps(scans: Sequence[SegmentScan]) -> list[tuple[SegmentScan, int]]:
    """Returns the scans whose files are to be read, each with the offset up to which it is."""
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
    """Returns the log of scans that do not overlap, ascending. Raises SegmentError where offsets are missing, where a
    batch has offsets of the next file, and where the log is shorter than the broker knows it to be."""
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
                f"begins at {base}: one of both is damaged; nothing was appended"
            )
        if before.last_epoch > after.last_epoch >= 0:
            raise SegmentError(
                f"{after.file.path}, byte 0: leader epoch {after.last_epoch} after {before.last_epoch} in "
                f"{before.file.path.name}: an epoch never goes back; nothing was appended"
            )
        if before.end_offset < first and not _is_cleaned(log, scans, first, before):
            raise SegmentError(
                f"{after.file.path}, byte 0: offsets {before.end_offset} to {first - 1} are missing before it: a "
                f"segment is not there, or {before.file.path.name} is cut off. {_cleaner_text(log)}"
            )
    for scan in scans:
        if scan.gap and not _is_cleaned(log, scans, scan.gap.end, scan):
            raise SegmentError(
                f"{scan.file.path}, byte {scan.gap.at_bytes}: offsets {scan.gap.start} to {scan.gap.end - 1} are "
                f"missing before it: batches were cut out. {_cleaner_text(log)}"
            )


def _is_cleaned(log: LogFolder, scans: Sequence[SegmentScan], offset: int, before: SegmentScan) -> bool:
    """Returns whether a cleaner has been as far as the offset: it cleans a log from its start on. `before` is the
    segment that ends before the gap, or has it."""
    if log.clean_point is None:
        return before.cleaned_to > 0 or offset <= max(scan.cleaned_to for scan in scans)
    return offset <= max(log.clean_point, *(scan.rewritten_to for scan in scans))


def _cleaner_text(log: LogFolder) -> str:
    if log.clean_point is None:
        return (
            "Where the broker's cleaner took these records out, its cleaner-offset-checkpoint has to be beside the "
            "partition's folder; nothing was appended"
        )
    return (
        f"The cleaner-offset-checkpoint beside the partition's folder says that the cleaner has come to offset "
        f"{log.clean_point}. If the broker cleans this log now, try again later; if this replica was copied from "
        "another broker that had cleaned it, read that broker's folder; nothing was appended"
    )


def _open_transactions(scans: Sequence[SegmentScan]) -> Mapping[int, int]:
    """Returns producer -> first offset of the transaction that has no marker yet."""
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
            f"partition {log.partition}: batches up to offset {cleaned} were cleaned, and the broker's "
            f"cleaner-offset-checkpoint says {log.clean_point}: another broker cleaned them, or this one is at it. "
            f"Offsets from {log.clean_point} to {cleaned - 1} that are not there count as cleaned"
        )
    if last.has_more:
        texts.append(
            f"partition {log.partition}: {last.file.path.name} goes on beyond offset {end}, the broker's high "
            "watermark by its checkpoint: what is not known to be replicated was not read"
        )
    if stable < end:
        texts.append(
            f"partition {log.partition}: a transaction that began at offset {stable} has no end in these segments: "
            "what comes after it was not read"
        )
    return tuple(texts)

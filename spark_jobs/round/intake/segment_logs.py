"""Append new records of a broker's log segments to the table, in one commit.

1. The segments are found (`segment_files`). Segments wholly below the table's position are skipped.
2. Spark tasks scan the others completely. Truncated, damaged or missing data is reported with file and position before
   any record is staged.
3. The log ends of the scan replace the brokers' answer. The rest is the same as for brokers (`kafka_reading`): plan,
   staging, comparison, and commit with the position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from cleantail.config.topic import Topic
from cleantail.config.unholdable import (
    ALL,
    HEADER_NAME,
    NO_TIMESTAMP_MS,
    TEXTS,
    TIMESTAMP,
    UNHELD,
    WAY_OUT,
    Keep,
    Reason,
    is_held_timestamp,
    timestamp_text,
)
from cleantail.errors import UnholdableError
from cleantail.kafka.read_plan import COMMITTED, BrokerPolicy, BrokerTopic, LogOffsets, Range
from cleantail.kafka.segment_batches import RawRecord, SegmentRecord
from cleantail.kafka.segment_files import (
    LogFolder,
    LogReader,
    ScannedLog,
    ScanRequest,
    SegmentScan,
    TopicFolders,
    find_logs,
    scan_requests,
    scan_segment,
    scanned_log,
    settled,
)
from cleantail.kafka.table_position import TablePosition, position_after_files, require_own_table
from cleantail.log.task_shares import parallelism
from cleantail.rounds.station_results import KafkaIngestResult
from cleantail.sources.kcat import Record
from spark_jobs.engine.tasks import run_tasks
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.kafka_reading import Progress, read_source
from spark_jobs.round.intake.kafka_records import ArrowReader, header_lists
from spark_jobs.round.intake.record_batches import ARROW_SCHEMA, unheld_batch

TASKS_PER_CORE = 4
"""More than one, because segments and their tasks differ in size."""


def read_segments(
    spark: SparkSession, topic: Topic, directory: Path, now_ms: int, progress: Progress
) -> KafkaIngestResult:
    """Read the directory's logs of the topic to their last stable offsets. After CleantailError nothing is appended."""
    require_own_table(topic)
    folders = find_logs(directory, segment_topic(topic))
    at = position_after_files(topic)
    # No transaction is open below the position, unless uncommitted records are read too.
    known = at.next_offsets if topic.source.isolation == COMMITTED else {}
    logs = [log.from_offset(known.get(log.partition, 0)) for log in folders.logs]
    progress("scanning the segments")
    limit_bytes = topic.platform.limits.batch_max_bytes
    scanned = tuple(_scanned(TopicTable.of(spark, topic), logs, limit_bytes))
    source = SegmentLogs(topic, folders, scanned, limit_bytes, topic.platform.limits.record_max_headers)
    result = read_source(spark, topic, source, now_ms, progress)
    warnings = (*(text for log in scanned for text in log.warnings), *result.warnings)
    return replace(result, kafka_topic=folders.topic, warnings=warnings)


def segment_topic(topic: Topic) -> str:
    """Return the topic's name in the names of a broker's folders."""
    return topic.kafka_topic if topic.source.kafka is not None else topic.line_topic or topic.topic


@dataclass(frozen=True, slots=True)
class SegmentLogs:
    """The scanned segments of a topic, as a LogSource."""

    topic: Topic
    folders: TopicFolders
    logs: tuple[ScannedLog, ...]
    limit_bytes: int
    most_headers: int
    progress_text: str = "comparing the segments with the table"
    is_current: bool = False

    def cleaner_configs(self) -> BrokerPolicy | None:
        return None  # a broker's folders lack these configs

    def position(self) -> TablePosition:
        """Return the table's position, records of files included. A log that the table lacks starts at its first
        segment, because a topic's folders may be read one after the other."""
        at = position_after_files(self.topic)
        if at.position is None:
            return at
        starts = {log.partition: log.offsets.start for log in self.logs}
        return replace(at, position=replace(at.position, next_offsets={**starts, **at.next_offsets}))

    def describe(self, at: TablePosition) -> BrokerTopic:
        """Return the logs as brokers would describe them, with the position's ids for missing ones. A log without
        segments above the position has nothing to read."""
        known = at.next_offsets
        logs = {p: LogOffsets(offset, offset, offset) for p, offset in known.items()}
        logs |= {log.partition: log.offsets for log in self.logs if log.offsets.end >= known.get(log.partition, 0)}
        cluster_id, topic_id = self.folders.cluster_id, self.folders.topic_id
        if at.position is not None:
            cluster_id, topic_id = cluster_id or at.position.cluster_id, topic_id or at.position.topic_id
        return BrokerTopic(cluster_id, self.folders.topic, topic_id, logs)

    def open_reader(self) -> Callable[[], ArrowReader]:
        return partial(SegmentReader, self.logs, self.topic.source.isolation, self.limit_bytes, self.most_headers)

    def note_committed(self, next_offsets: Mapping[int, int]) -> None:
        """Do nothing: only brokers have a consumer group."""


class SegmentReader:
    def __init__(self, logs: Sequence[ScannedLog], isolation: str, limit_bytes: int, most_headers: int) -> None:
        self._readers = {log.partition: LogReader(log, isolation, limit_bytes, most_headers) for log in logs}

    def batches(self, span: Range, keep: Keep) -> Iterator[pa.RecordBatch]:
        return (arrow_batch(span.partition, records, keep) for records in self._readers[span.partition].chunks(span))

    def close(self) -> None:
        """Do nothing: a file is closed after its last batch."""


def arrow_batch(partition: int, records: Sequence[SegmentRecord], keep: Keep = ALL) -> pa.RecordBatch:
    """Return records of one partition as an Arrow batch, as in `ArrowReader.batches`."""
    reasons = {n: reason for n, r in enumerate(records) if (reason := _unheld_reason(r))}
    if keep == UNHELD:
        found = [
            (Record(partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, ()), r.headers, reason)
            for r, reason in ((records[n], reason) for n, reason in reasons.items())
        ]
        return unheld_batch(found)
    if reasons:
        if keep == ALL:
            raise _unholdable(partition, records, reasons)
        records = [r for n, r in enumerate(records) if n not in reasons]
    arrays = [
        pa.array([partition] * len(records), pa.int32()),
        pa.array([r.offset for r in records], pa.int64()),
        pa.array(
            [None if r.timestamp == NO_TIMESTAMP_MS else r.timestamp * 1000 for r in records],
            ARROW_SCHEMA.field("timestamp").type,
        ),
        pa.array([r.timestamp_type for r in records], pa.int32()),
        pa.array([r.key for r in records], pa.binary()),
        pa.array([r.value for r in records], pa.binary()),
        header_lists([r.headers for r in records]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _unheld_reason(record: SegmentRecord) -> Reason | None:
    if not is_held_timestamp(record.timestamp):
        return TIMESTAMP
    return HEADER_NAME if isinstance(record, RawRecord) and record.has_bad_name else None


def _unholdable(partition: int, records: Sequence[SegmentRecord], reasons: Mapping[int, Reason]) -> UnholdableError:
    number, reason = min(reasons.items())
    what = timestamp_text(records[number].timestamp) if reason == TIMESTAMP else TEXTS[HEADER_NAME]
    where = f"partition {partition}, offset {records[number].offset}"
    return UnholdableError(f"{where}: {what}; nothing was appended. {WAY_OUT}")


def _scanned(table: TopicTable, logs: Sequence[LogFolder], limit_bytes: int) -> Iterator[ScannedLog]:
    scan = partial(_scan, table, limit_bytes)
    requests = [scan_requests(log) for log in logs]
    scans = scan([request for of_log in requests for request in of_log])
    for log, of_log in zip(logs, requests, strict=True):
        yield scanned_log(log, settled([next(scans) for _ in of_log], scan))


def _scan(table: TopicTable, limit_bytes: int, requests: Sequence[ScanRequest]) -> Iterator[SegmentScan]:
    """Yield the scans in the order of the requests. A task scans several small segments."""
    size = max(sum(r.file.size_bytes for r in requests) // (parallelism(table.platform.spark) * TASKS_PER_CORE), 1)
    tasks: list[list[ScanRequest]] = []
    filled = 0
    for request in requests:
        if not tasks or filled + request.file.size_bytes > size:
            tasks.append([])
            filled = 0
        tasks[-1].append(request)
        filled += request.file.size_bytes
    work = partial(_scan_task, limit_bytes)
    return (scan for of_task in run_tasks(table, work, tasks, "scan segments") for scan in of_task)


def _scan_task(limit_bytes: int, _: Mapping[str, str], requests: Sequence[ScanRequest]) -> list[SegmentScan]:
    return [scan_segment(request, limit_bytes) for request in requests]

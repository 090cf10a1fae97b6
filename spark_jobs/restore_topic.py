"""Run a planned restore: pin the records, check them, write them, read them back.

1. A branch pins the records, unless an earlier run of this restore created it. For the latest records, the rules of a
   round delete the superseded records on the branch. Later runs of the restore read the same branch.
2. Spark tasks read the timestamps. The restore fails before it writes if the topic would not keep or accept records.
3. Records that an earlier run wrote are compared with the archive, in all partitions, before any partition is written.
4. One task per partition appends the remaining records.
5. Each partition is read back from its beginning and compared, record by record, with the archive. Then the branch is
   dropped.

Records of erased keys are left out in each step. If more keys were erased meanwhile, the restore fails at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from cleantail.errors import CleantailError, ConflictError, RestoreMismatchError
from cleantail.human import counted
from cleantail.kafka.restore_plan import RestoredLog, RestorePlan, RestoreResult, denied_requests
from cleantail.kafka.restore_target import (
    PIN,
    RESTORE_PIN_JSON,
    LogFacts,
    RestorePin,
    TargetTopic,
    require_denied,
    require_fitting,
)
from cleantail.kafka.target_client import TargetBrokers
from cleantail.log.segments import DataFile
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine.registrations import registered_twice
from spark_jobs.engine.tasks import files_of, log_tasks, run_tasks, run_work, with_footers
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.snapshot_files import union_of
from spark_jobs.iceberg.tables import TopicTable, branch_name
from spark_jobs.restore_tasks import (
    Denied,
    LogProgress,
    RestoreTask,
    SnapshotLog,
    compare_log,
    read_log_facts,
    verify_log,
    write_log,
)
from spark_jobs.round.intake.denylist import denied_keys
from spark_jobs.round.make import FIND_REMOVALS, removed_positions


def pin_records(table: TopicTable, plan: RestorePlan) -> str:
    """Create the branch of the records to restore, and return its name."""
    pin, branch = plan.pin, branch_name(plan.stem)
    files = table.files_at(pin.snapshot_id)
    summary = {PIN: RESTORE_PIN_JSON.packed(pin)}
    if pin.mode == "log":
        files.delete_positions(table, branch, {}, (), summary)
        return branch
    partitions = sorted({file.partition for file in plan.files})
    works = tuple(_work(pin, p, [file for file in plan.files if file.partition == p]) for p in partitions)
    unit = WorkUnit("restore", 0, pin.now_ms, pin.snapshot_id, branch, works)
    tasks = log_tasks(table, unit, files)
    removals = run_work(table, FIND_REMOVALS, tasks)
    removed = union_of(removed_positions(removals, {}).values())
    files.delete_positions(table, branch, removed, registered_twice(tasks), summary)
    return branch


def _work(pin: RestorePin, partition: int, files: Sequence[DataFile]) -> PartitionWork:
    start, end = pin.starts.get(partition, 0), max(f.upper_offset for f in files) + 1
    records, size = sum(f.records for f in files), sum(f.live_bytes for f in files)
    return PartitionWork(
        partition=partition,
        first_dirty_offset=min(start, end),
        end_offset=end,
        log_start_offset=start,
        log_end_offset=end,
        bytes=size,
        dirty_records=records,
        dirty_bytes=size,
        read_bytes=size,
        records=records,
    )


def pinned_logs(table: TopicTable, pin: RestorePin, branch: str) -> list[SnapshotLog]:
    """Return the pinned records of all partitions, also empty ones. Raises ConflictError for a dropped branch."""
    files, logs = table.files_at(table.head_of(branch)), set(range(pin.partitions))
    log_files = with_footers(table, files.log_files(logs), files.layout, logs)
    return [
        SnapshotLog(
            partition=partition,
            files=files_of([PartitionWork(partition, 0, 0, 0, 0)], log_files),
            layout=files.layout,
            start=pin.starts.get(partition, 0),
            tombstones=pin.mode == "log",
            location=table.platform.warehouse,
            memory_bytes=table.platform.cleaner.cleantail_task_memory_bytes,
        )
        for partition in sorted(logs)
    ]


QUIET_S = 2.0
"""Seconds for which the end offsets of a partly restored topic must not change. A task of a killed run may still
write."""
SPECULATION = "spark.speculation"


@dataclass(frozen=True, slots=True)
class Restore:
    """One run of a restore. `settings` of the Kafka clients contain their login: do not log or show them."""

    table: TopicTable
    brokers: TargetBrokers
    settings: Mapping[str, str] = field(repr=False)
    progress: Callable[[str], None]

    def run(self, plan: RestorePlan, clock_ms: int) -> RestoreResult:
        """Run the plan. `clock_ms`: the real clock.

        Raises RestoreMismatchError if a record in Kafka differs from the archive's. Raises TargetError or
        TargetUnreachableError for errors of the brokers."""
        self._require_one_try()
        # 1. pin the records
        self.progress("pinning the records")
        branch = plan.branch or pin_records(self.table, plan)
        sources = pinned_logs(self.table, plan.pin, branch)
        # 2. refuse records that the topic would not keep
        self.progress("reading timestamps")
        denied = denied_keys(self.table, plan.pin.denied)
        facts = run_tasks(self.table, partial(read_log_facts, denied=denied), sources, "read the timestamps to restore")
        try:
            require_fitting(plan.target, facts, clock_ms)
        except CleantailError:
            if not plan.resumed:
                self.table.drop_branches([branch])
            raise
        # 3. compare what an earlier run wrote
        max_bytes = plan.target.number("max.message.bytes")
        tasks = [RestoreTask(source, plan.target.topic, max_bytes) for source in sources]
        compared = self._compared(plan.target, tasks, denied)
        # 4. write the rest
        self.progress("writing")
        tasks = [replace(task, proved=compared[task.partition]) for task in tasks]
        written = self._run(write_log, denied, tasks, "write the records")
        # 5. read everything back
        self.progress("reading back")
        verified = self._run(verify_log, denied, tasks, "read the restored records back")
        self._require_same_topic(plan.target)
        denied_now = denied_requests(self.table.topic, texts(self.table.load().properties()))
        require_denied(plan.target, branch, plan.pin.denied, denied_now)
        self.table.drop_branches([branch])
        return _result(plan, facts, compared, written, verified)

    def _run(
        self, work: Callable[..., LogProgress], denied: Denied, tasks: Sequence[RestoreTask], what: str
    ) -> list[LogProgress]:
        # The login is part of the function and not of the data, because Spark may write task data to a file.
        return run_tasks(self.table, partial(work, dict(self.settings), denied), tasks, what)

    def _require_one_try(self) -> None:
        """Raise CleantailError if Spark may run two attempts of a task at the same time, because both would write."""
        of_session = self.table.spark.sparkContext.getConf().get(SPECULATION, "false")
        if "true" in (of_session, self.table.platform.spark.conf.get(SPECULATION)):
            raise CleantailError(
                f"{SPECULATION} is true: Spark would let two tasks write one partition. Set it to false in "
                "platform.spark.conf for a restore; nothing was written"
            )

    def _compared(self, target: TargetTopic, tasks: Sequence[RestoreTask], denied: Denied) -> dict[int, int]:
        """Return partition -> number of records that an earlier run restored. Raises RestoreMismatchError if these are
        not the archive's first ones, ConflictError if a partition grows."""
        if not target.records:
            return {task.partition: 0 for task in tasks}
        self.progress("comparing records of an earlier run")
        time.sleep(QUIET_S)
        if (now := self._described(target)).ends != target.ends:
            moving = next(p for p, end in now.ends.items() if end != target.ends.get(p))
            raise ConflictError(
                f"topic {target.topic}: partition {moving} grows: another run of this restore, or another producer, "
                "writes into it; nothing was written. Try again when it has ended"
            )
        done = self._run(compare_log, denied, tasks, "compare restored records")
        return {of_log.partition: of_log.compared for of_log in done}

    def _require_same_topic(self, target: TargetTopic) -> None:
        now = self._described(target)
        if now.ends.keys() != target.ends.keys():
            raise RestoreMismatchError(
                f"topic {target.topic} had {counted(len(target.ends), 'partition')} when it was restored, and has "
                f"{len(now.ends)} now. Delete and recreate the topic, then restore again"
            )

    def _described(self, target: TargetTopic) -> TargetTopic:
        """Return the topic's current state. Raises RestoreMismatchError if it was deleted or recreated."""
        now = self.brokers.describe(target.topic)
        if now is None or now.topic_id != target.topic_id:
            raise RestoreMismatchError(f"topic {target.topic} was deleted or recreated while it was restored")
        return now


def _result(
    plan: RestorePlan,
    facts: Sequence[LogFacts],
    compared: Mapping[int, int],
    written: Sequence[LogProgress],
    verified: Sequence[LogProgress],
) -> RestoreResult:
    pin: RestorePin = plan.pin
    logs = (
        RestoredLog(
            log.partition,
            compared[log.partition],
            w.written,
            v.compared,
            log.first_offset,
            log.last_offset,
            log.erased,
        )
        for log, w, v in zip(facts, written, verified, strict=True)
    )
    without_type = sum(log.without_type for log in facts)
    return RestoreResult(pin.topic, pin.mode, pin.snapshot_id, plan.resumed, tuple(logs), without_type)

"""A restore from its plan to its end: pinned, looked at, written, and read back.

1. The records are pinned by a branch, unless an earlier run of this restore has done so. For the latest records the
   branch is made as a round makes its own: what does not win is deleted there. So one place says which record wins, and
   every later run of the restore reads what the first one has found.
2. Spark's tasks look at their timestamps; what the topic would not keep or not take is told before anything is written.
3. What an earlier run has written is compared with the archive, record by record, in all partitions before anything is
   written to one.
4. Each partition is written by one task, behind what it has.
5. Each is read back from its beginning and compared, record by record, to both ends. Then the branch goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from cleantail.errors import CleantailError, ConflictError, RestoreMismatchError
from cleantail.human import counted
from cleantail.kafka.restore_plan import RestoredLog, RestorePlan, RestoreResult
from cleantail.kafka.restore_target import PIN, RESTORE_PIN_JSON, LogFacts, RestorePin, TargetTopic, require_fitting
from cleantail.kafka.target_client import TargetBrokers
from cleantail.log.segments import DataFile
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine.registrations import registered_twice
from spark_jobs.engine.shared_logs import run_work
from spark_jobs.engine.tasks import files_of, log_tasks, run_tasks, with_footers
from spark_jobs.iceberg.snapshot_files import union_of
from spark_jobs.iceberg.tables import TopicTable, branch_name
from spark_jobs.restore_tasks import (
    LogProgress,
    LogSource,
    RestoreTask,
    compare_log,
    look_at_log,
    verify_log,
    write_log,
)
from spark_jobs.round.make import FIND_REMOVALS, removed_positions


def pin_records(table: TopicTable, plan: RestorePlan) -> str:
    """Makes the branch, and returns its name."""
    pin, branch = plan.pin, branch_name(plan.stem)
    files = table.files_at(pin.snapshot_id)
    summary = {PIN: RESTORE_PIN_JSON.packed(pin)}
    if pin.mode == "log":
        table.delete_positions(branch, files, {}, (), summary)
        return branch
    unit = WorkUnit("restore", 0, pin.now_ms, pin.snapshot_id, branch, _works(pin, plan.files))
    tasks = log_tasks(table, unit, files)
    removals = run_work(table, FIND_REMOVALS, tasks)
    removed = union_of(removed_positions(removals, {}).values())
    table.delete_positions(branch, files, removed, registered_twice(tasks), summary)
    return branch


def _works(pin: RestorePin, files: Sequence[DataFile]) -> tuple[PartitionWork, ...]:
    """Returns the logs as a round would have them that compacts all of each."""
    return tuple(_work(pin, p, [f for f in files if f.partition == p]) for p in sorted({f.partition for f in files}))


def _work(pin: RestorePin, partition: int, files: Sequence[DataFile]) -> PartitionWork:
    start, end = pin.starts.get(partition, 0), max(f.upper_offset for f in files) + 1
    records = sum(f.records for f in files)
    return PartitionWork(
        partition=partition,
        first_dirty_offset=min(start, end),
        end_offset=end,
        log_start_offset=start,
        log_end_offset=end,
        bytes=sum(f.live_bytes for f in files),
        dirty_records=records,
        dirty_bytes=sum(f.live_bytes for f in files),
        read_bytes=sum(f.live_bytes for f in files),
        records=records,
    )


def pinned_logs(table: TopicTable, pin: RestorePin, branch: str) -> list[LogSource]:
    """Returns the records of every partition, of those without any, too. Raises ConflictError where the branch is
    gone."""
    files, logs = table.files_at(table.head_of(branch)), set(range(pin.partitions))
    log_files = with_footers(table, files.log_files(logs), files.layout, logs)
    return [
        LogSource(
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
"""For so long a topic that was begun has to stay as it is: a task of a run that was killed may still be ending."""
SPECULATION = "spark.speculation"
Progress = Callable[[str], None]
Work = Callable[[Mapping[str, str], Mapping[str, str], RestoreTask], LogProgress]


@dataclass(frozen=True, slots=True)
class Restore:
    """Describes one run of a restore. `settings` are the clients', with their login: they are neither logged nor
    shown."""

    table: TopicTable
    brokers: TargetBrokers
    settings: Mapping[str, str] = field(repr=False)
    progress: Progress

    def run(self, plan: RestorePlan, clock_ms: int) -> RestoreResult:
        """Restores what is planned. `clock_ms`: the real clock. Raises RestoreMismatchError where a record in Kafka is
        not the archive's; TargetError and TargetUnreachableError as the brokers answer."""
        self._require_one_try()
        # 1. the records are fixed
        self.progress("pinning the records")
        branch = plan.branch or pin_records(self.table, plan)
        sources = pinned_logs(self.table, plan.pin, branch)
        # 2. what cannot be kept is told
        self.progress("looking at timestamps")
        facts = run_tasks(self.table, look_at_log, sources, "look at what is restored")
        try:
            require_fitting(plan.target, facts, clock_ms)
        except CleantailError:
            if not plan.resumed:
                self.table.drop_branches([branch])
            raise
        # 3. what is there is the archive's
        max_bytes = plan.target.number("max.message.bytes")
        tasks = [RestoreTask(source, plan.target.topic, max_bytes) for source in sources]
        compared = self._compared(plan.target, tasks)
        # 4. the rest is written
        self.progress("writing")
        tasks = [replace(task, proved=compared[task.partition]) for task in tasks]
        written = self._run(write_log, tasks, "write the records")
        # 5. all of it is read back
        self.progress("reading back")
        verified = self._run(verify_log, tasks, "read the restored records back")
        self._require_same_topic(plan.target)
        self.table.drop_branches([branch])
        return _result(plan, facts, compared, written, verified)

    def _run(self, work: Work, tasks: Sequence[RestoreTask], what: str) -> list[LogProgress]:
        # the login is in the function, not in the data: what is handed to tasks as data may lie in a file on the way
        return run_tasks(self.table, partial(work, dict(self.settings)), tasks, what)

    def _require_one_try(self) -> None:
        """Raises CleantailError where Spark would run a task twice at a time: both would write."""
        of_session = self.table.spark.sparkContext.getConf().get(SPECULATION, "false")
        if "true" in (of_session, self.table.platform.spark.conf.get(SPECULATION)):
            raise CleantailError(
                f"{SPECULATION} is true: Spark would let two tasks write one partition. Set it to false in "
                "platform.spark.conf for a restore; nothing was written"
            )

    def _compared(self, target: TargetTopic, tasks: Sequence[RestoreTask]) -> dict[int, int]:
        """Returns partition -> the records that are there and are the archive's first ones. Raises
        RestoreMismatchError where they are not, ConflictError where more come all the while."""
        if not target.records:
            return {task.partition: 0 for task in tasks}
        self.progress("comparing what an earlier run has written")
        time.sleep(QUIET_S)
        if (now := self._described(target)).ends != target.ends:
            moving = next(p for p, end in now.ends.items() if end != target.ends.get(p))
            raise ConflictError(
                f"topic {target.topic}: partition {moving} grows: another run of this restore writes into it, or "
                "somebody else does; nothing was written. Try again when it has ended"
            )
        return {done.partition: done.compared for done in self._run(compare_log, tasks, "compare what is restored")}

    def _require_same_topic(self, target: TargetTopic) -> None:
        """Raises RestoreMismatchError where the topic has become another one while it was written."""
        now = self._described(target)
        if now.ends.keys() != target.ends.keys():
            raise RestoreMismatchError(
                f"topic {target.topic} had {counted(len(target.ends), 'partition')} when it was restored, and has "
                f"{len(now.ends)} now"
            )

    def _described(self, target: TargetTopic) -> TargetTopic:
        """Returns the topic as it is now. Raises RestoreMismatchError where it is gone or another one."""
        now = self.brokers.describe(target.topic)
        if now is None or now.topic_id != target.topic_id:
            raise RestoreMismatchError(f"topic {target.topic} was deleted, or recreated, while it was restored")
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
        RestoredLog(log.partition, compared[log.partition], w.written, v.compared, log.first_offset, log.last_offset)
        for log, w, v in zip(facts, written, verified, strict=True)
    )
    without_type = sum(log.without_type for log in facts)
    return RestoreResult(pin.topic, pin.mode, pin.snapshot_id, plan.resumed, tuple(logs), without_type)

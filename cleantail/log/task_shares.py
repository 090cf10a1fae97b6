"""The memory budget of a round, and the number of tasks for a log. Pure: both depend only on metadata, so that `plan`
can show them.

The offset map (semantics.md 1.1, 3.8):

1. All threads share log.cleaner.dedupe.buffer.size. An entry takes 24 bytes, or 32 with a version.
2. The map may be filled up to log.cleaner.io.buffer.load.factor.
3. The budget bounds the memory, not the size of a log.

The tasks:

1. A log of at most one share is one task, with its offset map and its files.
2. A larger log is several tasks. Some of them map its dirty part, and the maps are merged. One task for each share
   processes its files. If the merged map fits into a task, it is sent to all tasks. Otherwise a filter is sent, and the
   records that pass it are shuffled by their key.
3. A share is an even part of the unit's records for each core, within two bounds. Below SHARE_RECORDS a task costs more
   than it saves. The dirty keys of a task must fit into its memory. Other records take no memory.
4. A cluster gives a task one core, and so one thread. A local master has all cores in one process, so a log that fits
   is one task. It gets threads in proportion to its records, each with the memory of a core.
5. Small logs share a task, because a separate task costs more than processing a small log.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform, Spark
from cleantail.config.platform_configs import CleanerConfigs
from cleantail.human import counted
from cleantail.log.work_units import PartitionWork, WorkUnit

ENTRY_BYTES = 24
"""Bytes of an entry of Kafka's SkimpyOffsetMap: a hash of 16 and an offset of 8."""
VERSIONED_ENTRY_BYTES = 32
"""Bytes of an entry with a version (KIP-280)."""
DEFAULT_CORES = 2
"""Cores of an executor without the setting."""
SHARE_RECORDS = 1_000_000
"""Records below which a log is always one task."""
PACK_RECORDS = 200_000
"""Maximum number of records of the logs that share a task. Processing them takes about ten times as long as a task's
start."""
KEY_BYTES = 96
"""Bytes of a dirty record in an offset map, which is a hash table: a key of about 40 bytes, its offset and number."""
RECORD_BYTES = 192
"""Bytes of a dirty record in a task: its entry in the map, and up to two records of its key with offset, rank and
position. A longer key spills earlier."""
BUCKET_RECORD_BYTES = 256
"""Bytes of a record without its key in the task of its bucket: as received, and as compared columns."""
BUCKET_KEYS = 4
"""Number of copies of a key in the task of its bucket: as received, joined with other records, and numbered."""
UNPACKED = 8
"""Usual maximum ratio of a key's size in memory to its size in the file, where common parts of keys are compressed."""


def keys_in_budget(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Return the maximum number of keys in the offset map of a round, by Kafka's formula.

    At least one, so that a round always makes progress.
    """
    return max(int(map_slots(cleaner, configs) * cleaner.log_cleaner_io_buffer_load_factor), 1)


def buffer_percent(keys: int, slots: int) -> float:
    """Return OffsetMap.utilization in percent, at most 100: keys that spill do not count."""
    return min(100 * keys / max(slots, 1), 100.0)


def map_slots(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Return OffsetMap.slots: the capacity of an offset map in keys, without the load factor."""
    entry_bytes = ENTRY_BYTES if configs.compaction_strategy == "offset" else VERSIONED_ENTRY_BYTES
    return cleaner.log_cleaner_dedupe_buffer_size // cleaner.log_cleaner_threads // entry_bytes


def round_end(full_at: int | None, last_keyed: int | None, end_offset: int) -> int:
    """Return the offset at which a round ends, possibly inside a segment (semantics.md 1.4).

    `end_offset`: the planned end (exclusive). `full_at`: offset of the record that fills the map, or None.
    `last_keyed`: offset of the last record with a key below the end. Kafka checks before each put
    whether the map is full. So a record after `full_at` ends the round even if its key is in the map.
    """
    if full_at is None or last_keyed is None or last_keyed <= full_at:
        return end_offset
    return full_at + 1


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """Limits of the tasks of a unit.

    share          records of a task, if a log has several tasks
    whole          maximum number of records of a log with one task
    dirty_records  maximum number of dirty records of a task: their keys, with all records of these, fit into its memory
    cores          maximum number of threads of a task: all cores of a local master, one of a cluster
    unit_records   number of records in all logs of the unit
    """

    share: int
    whole: float
    dirty_records: int
    cores: int
    unit_records: int

    def tasks(self, works: Sequence[PartitionWork]) -> int:
        """Return the number of tasks that process these logs together."""
        records = _records(works)
        dirty = sum(work.dirty_records for work in works)
        if records <= self.whole and dirty <= self.dirty_records * self.threads(works):
            return 1
        return max(-(-records // self.share), -(-dirty // self.dirty_records), 2)

    def packs(self, works: Iterable[PartitionWork]) -> list[tuple[PartitionWork, ...]]:
        """Return the logs of each task, by partition. Small logs share a task."""
        most = min(PACK_RECORDS, self.share, self.dirty_records)
        packs, room = list[list[PartitionWork]](), 0
        for work in sorted(works, key=lambda w: w.partition):
            if not packs or work.records > room:
                packs.append([])
                room = most
            packs[-1].append(work)
            room -= work.records
        return [tuple(pack) for pack in packs]

    def threads(self, works: Sequence[PartitionWork]) -> int:
        """Return the number of threads of the one task of these logs: their part of the cores."""
        return max(self.cores * _records(works) // max(self.unit_records, 1), 1)


def task_sizes(works: Sequence[PartitionWork], spark: Spark, memory_bytes: int) -> TaskSizes:
    """Return the sizes for a unit with these logs. `memory_bytes`: memory of a core for its task."""
    records, cores, local = _records(works), parallelism(spark), in_one_process(spark)
    share = max(SHARE_RECORDS, -(-records // cores))
    fitting = max(memory_bytes // RECORD_BYTES, 1)
    return TaskSizes(share, math.inf if local else share, fitting, _local_cores(spark.master) or 1, records)


def _records(works: Iterable[PartitionWork]) -> int:
    return sum(work.records for work in works)


def map_fits(dirty_records: int, key_bytes: int, memory_bytes: int) -> bool:
    """Return whether the offset map of this many dirty records fits into a task.

    `key_bytes`: bytes of the keys in their files, compressed.
    """
    return dirty_records * KEY_BYTES <= memory_bytes and key_bytes * UNPACKED <= memory_bytes


def bucket_count(records: int, shares: int, memory_bytes: int, key_bytes: int) -> int:
    """Return the number of tasks to which compared records are shuffled, so that evenly spread keys fit into memory.

    `key_bytes`: bytes of the records' keys in their files.
    """
    held = records * BUCKET_RECORD_BYTES + key_bytes * BUCKET_KEYS
    return max(-(-held // memory_bytes), shares)


def parallelism(spark: Spark) -> int:
    """Return the number of tasks that run at a time, from the settings."""
    conf = spark.conf
    if "spark.default.parallelism" in conf:
        return int(str(conf["spark.default.parallelism"]))
    if local := _local_cores(spark.master):
        return local
    executors = int(str(conf.get("spark.executor.instances", 1)))
    return max(executors * int(str(conf.get("spark.executor.cores", DEFAULT_CORES))), 1)


def one_of(spark: Spark, number: int) -> Spark:
    """Return the settings for one of `number` topics that run at the same time.

    The topic gets its part of a local master's cores, with their memory. On a cluster a task always has one core.
    """
    cores = _local_cores(spark.master)
    return spark if cores is None else spark.model_copy(update={"master": f"local[{max(cores // number, 1)}]"})


def in_one_process(spark: Spark) -> bool:
    """Return whether all cores belong to the driver's process."""
    return _local_cores(spark.master) is not None


def _local_cores(master: str) -> int | None:
    """Return the number of cores of a local master, or None for a cluster."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if local is None:
        return None
    return len(os.sched_getaffinity(0)) if local[1] == "*" else int(local[1] or 1)


_PARTITIONS_NAMED = 10


def ends_where_full(cleaner: CleanerConfigs) -> bool:
    """Return whether a round ends where a log's map is full. Then every log is one task."""
    return cleaner.cleantail_over_budget == "rounds"


def task_plan(unit: WorkUnit, platform: Platform, configs: KafkaConfigs, shared_files: bool = False) -> str:
    """Return the number of tasks for a unit's logs as text, with the reason.

    `shared_files`: a data file may have records of several logs, so such logs are processed together. The number of
    dirty records is an upper limit of the number of keys.
    """
    partitions = sorted(work.partition for work in unit.partitions)
    where = f"partition{'' if len(partitions) == 1 else 's'} {', '.join(map(str, partitions))}"
    if len(partitions) > _PARTITIONS_NAMED:
        where = counted(len(partitions), "partition")
    keys = max((w.dirty_records for w in unit.partitions), default=0)
    why = f"{counted(parallelism(platform.spark), 'core')}, at most {counted(keys, 'key')} in a partition"
    if ends_where_full(platform.cleaner):
        budget = counted(keys_in_budget(platform.cleaner, configs), "key")
        return f"{where}: a task for each partition, until its map of {budget} is full ({why})"
    sizes = task_sizes(unit.partitions, platform.spark, platform.cleaner.cleantail_task_memory_bytes)
    if shared_files and len(partitions) > 1:
        return f"{where}: {counted(sizes.tasks(unit.partitions), 'task')} for all, because they share files ({why})"
    shared = {w.partition: sizes.tasks([w]) for w in unit.partitions}
    several = [f"{n} for partition {p}" for p, n in sorted(shared.items()) if n > 1]
    if several:
        others = ", one for each other partition" if len(several) < len(shared) else ""
        share = f"a task has at most {counted(sizes.share, 'record')}"
        return f"{where}: tasks: {', '.join(several)}{others} ({why}; {share})"
    packs = len(sizes.packs(unit.partitions))
    return f"{where}: {'a task for each partition' if packs == len(partitions) else counted(packs, 'task')} ({why})"

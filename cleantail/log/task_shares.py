"""The memory budget of a round: how many keys an offset map holds, and where a round ends that would exceed it.

1. log.cleaner.dedupe.buffer.size is shared by all threads; an entry takes 24 bytes, with a version 32 (semantics.md
   1.1).
2. The map may be filled up to log.cleaner.io.buffer.load.factor.
3. The budget bounds what is held in memory, not what can be cleaned (semantics.md 3.8).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform, Spark
from cleantail.config.settings.cleaner_configs import CleanerConfigs
from cleantail.human import counted
from cleantail.log.work_units import PartitionWork, WorkUnit

ENTRY_BYTES = 24
"""Bytes of an entry of Kafka's SkimpyOffsetMap: a hash of 16 and an offset of 8 (semantics.md 1.1)."""
VERSIONED_ENTRY_BYTES = 32
"""Bytes of an entry that has a version of KIP-280 as well."""
DEFAULT_CORES = 2
"""Cores of an executor where no setting says how many it has."""
SHARE_RECORDS = 1_000_000
"""Records below which a log is never more than one task."""
PACK_RECORDS = 200_000
"""Records of the logs that share a task, at most: going through so many takes some ten times what a task costs."""
KEY_BYTES = 96
"""What an offset map takes of a dirty record: a key of some 40 bytes, its offset and number, in a table by its hash."""
RECORD_BYTES = 192
"""What a task holds of a dirty record: the map, and of its key up to two records, the dirty one and the one that was
there before, each with offset, rank and position. A longer key spills earlier."""
BUCKET_RECORD_BYTES = 256
"""What a record takes in the task that its key is shuffled to, beside its key: as it came, and as the columns that are
compared."""
BUCKET_KEYS = 4
"""So many times a key is held in that task: as it came, put together with the others, and numbered."""
UNPACKED = 8
"""So many times larger a key is at most in memory than in its file, as a rule: files pack what keys have in common."""


def keys_in_budget(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Returns how many keys the offset map of one round may hold, reckoned as Kafka does; at least one, so that a round
    always makes progress."""
    return max(int(map_slots(cleaner, configs) * cleaner.log_cleaner_io_buffer_load_factor), 1)


def buffer_percent(keys: int, slots: int) -> float:
    """Returns OffsetMap.utilization in percent: a map is never more than full, whatever spills beside it."""
    return min(100 * keys / max(slots, 1), 100.0)


def map_slots(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Returns OffsetMap.slots: how many keys an offset map has room for, without the load factor."""
    entry_bytes = ENTRY_BYTES if configs.compaction_strategy == "offset" else VERSIONED_ENTRY_BYTES
    return cleaner.log_cleaner_dedupe_buffer_size // cleaner.log_cleaner_threads // entry_bytes


def round_end(full_at: int | None, last_keyed: int | None, end_offset: int) -> int:
    """Returns where a round ends that was to end at `end_offset` (exclusive), possibly inside a segment (semantics.md
    1.4).

    `full_at` is the offset of the record that fills the map, None where none does. `last_keyed` is the offset of the
    last record with a key below the end. Kafka asks whether the map is full before each put, so a record after
    `full_at` ends the round even if its key is in the map.
    """
    if full_at is None or last_keyed is None or last_keyed <= full_at:
        return end_offset
    return full_at + 1


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """Says how much a task of a unit takes.

    share          records that a task goes through where its log is several tasks
    whole          records of a log that is one task, at most
    dirty_records  of so many a core has room for the keys, and for all records of these
    cores          those that a task can have as threads: all of a local master's, one of a cluster's
    unit_records   in all logs of the unit
    """

    share: int
    whole: float
    dirty_records: int
    cores: int
    unit_records: int

    def tasks(self, works: Sequence[PartitionWork]) -> int:
        """Returns how many tasks go through these logs together."""
        records = _records(works)
        dirty = sum(work.dirty_records for work in works)
        if records <= self.whole and dirty <= self.dirty_records * self.threads(works):
            return 1
        return max(-(-records // self.share), -(-dirty // self.dirty_records), 2)

    def packs(self, works: Iterable[PartitionWork]) -> list[tuple[PartitionWork, ...]]:
        """Returns the logs that one task takes each, by partition: small ones together, any other alone."""
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
        """Returns how many threads the one task of these logs has: their part of the cores."""
        return max(self.cores * _records(works) // max(self.unit_records, 1), 1)


def task_sizes(works: Sequence[PartitionWork], spark: Spark, memory_bytes: int) -> TaskSizes:
    """Returns the sizes for a unit that has these logs. `memory_bytes`: what a core has for its task."""
    records, cores, local = _records(works), parallelism(spark), in_one_process(spark)
    share = max(SHARE_RECORDS, -(-records // cores))
    fitting = max(memory_bytes // RECORD_BYTES, 1)
    return TaskSizes(share, math.inf if local else share, fitting, _local_cores(spark.master) or 1, records)


def _records(works: Iterable[PartitionWork]) -> int:
    return sum(work.records for work in works)


def map_fits(dirty_records: int, key_bytes: int, memory_bytes: int) -> bool:
    """Returns whether a task has room for the offset map of so many dirty records, beside what it reads. `key_bytes`:
    what the keys take in their files, packed."""
    return dirty_records * KEY_BYTES <= memory_bytes and key_bytes * UNPACKED <= memory_bytes


def bucket_count(records: int, shares: int, memory_bytes: int, key_bytes: int) -> int:
    """Returns to how many tasks the records that several shares compare are shuffled: a task has room for its own,
    where keys spread evenly. `key_bytes`: what the records' keys take in their files."""
    held = records * BUCKET_RECORD_BYTES + key_bytes * BUCKET_KEYS
    return max(-(-held // memory_bytes), shares)


def parallelism(spark: Spark) -> int:
    """Returns how many tasks run at a time, as far as the settings tell."""
    conf = spark.conf
    if "spark.default.parallelism" in conf:
        return int(str(conf["spark.default.parallelism"]))
    if local := _local_cores(spark.master):
        return local
    executors = int(str(conf.get("spark.executor.instances", 1)))
    return max(executors * int(str(conf.get("spark.executor.cores", DEFAULT_CORES))), 1)


def one_of(spark: Spark, number: int) -> Spark:
    """Returns the settings for one of so many topics that are worked on side by side: its part of a local master's
    cores, and of the memory that goes with them. A cluster gives a task one core in any case."""
    cores = _local_cores(spark.master)
    return spark if cores is None else spark.model_copy(update={"master": f"local[{max(cores // number, 1)}]"})


def in_one_process(spark: Spark) -> bool:
    """Returns whether all cores are those of the driver's process."""
    return _local_cores(spark.master) is not None


def _local_cores(master: str) -> int | None:
    """Returns how many cores a local master has; None where it is none."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if local is None:
        return None
    return len(os.sched_getaffinity(0)) if local[1] == "*" else int(local[1] or 1)


def ends_where_full(cleaner: CleanerConfigs) -> bool:
    """Returns whether a round ends where a log's map is full. Then every log is one task, however large it is."""
    return cleaner.cleantail_over_budget == "rounds"


def task_plan(unit: WorkUnit, platform: Platform, configs: KafkaConfigs, shared_files: bool = False) -> str:
    """Returns in words how a unit's logs are gone through, and why. `shared_files`: a data file may have records of
    several of them, so that they are gone through together.

    The number of dirty records, known from the files' bounds, is an upper limit of the number of keys.
    """
    cores = parallelism(platform.spark)
    budget = keys_in_budget(platform.cleaner, configs)
    keys = max((w.dirty_records for w in unit.partitions), default=0)
    sizes = (
        f"{counted(len(unit.partitions), 'log')} for {counted(cores, 'core')}, at most {counted(keys, 'key')} in one"
    )
    if ends_where_full(platform.cleaner):
        return f"{sizes}, budget {budget}: a task for each log, whose round ends where the map is full"
    sizes_of = task_sizes(unit.partitions, platform.spark, platform.cleaner.cleantail_task_memory_bytes)
    if shared_files and len(unit.partitions) > 1:
        together = counted(sizes_of.tasks(unit.partitions), "task")
        return f"{sizes}: {together} for all logs, which share files"
    shared = {w.partition: sizes_of.tasks([w]) for w in unit.partitions}
    several = [f"{n} for partition {p}" for p, n in sorted(shared.items()) if n > 1]
    if not several:
        packs = len(sizes_of.packs(unit.partitions))
        alone = packs == len(unit.partitions)
        return f"{sizes}: {'a task for each log' if alone else counted(packs, 'task')}"
    others = ", one for each other log" if len(several) < len(shared) else ""
    return f"{sizes}: tasks by shares of at most {counted(sizes_of.share, 'record')}: {', '.join(several)}{others}"

"""How many tasks go through a log: decided from metadata, so that `plan` can show it.

1. A log of at most a task's share is one task: its offset map and its files are gone through there.
2. A larger log is several tasks. Its dirty part is mapped by some of them, the maps are merged, and its files are gone
   through by as many tasks as there are shares. A merged map that fits into a task is shipped to all of them; of a
   larger one a filter is shipped, and the records that pass it are shuffled by their key.
3. A share is what each core gets where the records of the unit are dealt out evenly, within two bounds: below
   SHARE_RECORDS a task of its own costs more than it saves, and what a task holds of a key has to fit into its memory.
4. A cluster gives a task one core, and so one thread. The cores of a local master are all in one process: there a log
   is one task as long as it fits into the memory of all cores, and takes the threads and memory that are its part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleantail.config.platform import Platform, Spark
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.human import counted
from cleantail.log.policy.offset_map import keys_in_budget
from cleantail.log.work_units import PartitionWork, WorkUnit

DEFAULT_CORES = 2
"""Cores of an executor where no setting says how many it has."""


SHARE_RECORDS = 1_000_000
"""Records below which a log is never more than one task."""
RECORD_BYTES = 96
"""What a task holds of a record whose key is touched: the key, as text of some 40 bytes, its offset, rank and
position. A longer key spills earlier."""
BUCKET_RECORD_BYTES = 256
"""What a record takes in the task that its key is shuffled to: as it came, and as the columns that are compared."""
UNPACKED = 8
"""So many times larger a key is at most in memory than in its file, as a rule: files pack what keys have in common."""


@dataclass(frozen=True, slots=True)
class TaskSize:
    """Says how many records a task goes through at most: `whole` where it is the only one of its logs, else `share`."""

    share: int
    whole: int

    def tasks(self, works: Iterable[PartitionWork]) -> int:
        """Returns how many tasks go through these logs together."""
        records = sum(work.records for work in works)
        return 1 if records <= self.whole else -(-records // self.share)


def task_size(works: Sequence[PartitionWork], spark: Spark, memory_bytes: int) -> TaskSize:
    """Returns the size of the tasks of a unit that has these logs. `memory_bytes`: what a core has for its task."""
    records, cores, fitting = sum(work.records for work in works), parallelism(spark), memory_bytes // RECORD_BYTES
    share = max(SHARE_RECORDS, min(-(-records // cores), fitting))
    return TaskSize(share, max(share, fitting * cores) if in_one_process(spark) else share)


def threads_of_task(works: Iterable[PartitionWork], unit: Sequence[PartitionWork], spark: Spark) -> int:
    """Returns how many threads the only task of some logs of a unit has: its part of a local master's cores."""
    if not in_one_process(spark):
        return 1
    part = sum(work.records for work in works) / max(sum(work.records for work in unit), 1)
    return max(round(parallelism(spark) * part), 1)


def map_fits(dirty_records: int, key_bytes: int, memory_bytes: int) -> bool:
    """Returns whether a task has room for the offset map of so many dirty records, beside what it reads. `key_bytes`:
    what the keys take in their files, packed."""
    return dirty_records * RECORD_BYTES <= memory_bytes and key_bytes * UNPACKED <= memory_bytes


def bucket_count(records: int, shares: int, memory_bytes: int) -> int:
    """Returns to how many tasks the records that several shares compare are shuffled: a task has room for its own."""
    return max(-(-records * BUCKET_RECORD_BYTES // memory_bytes), shares)


def parallelism(spark: Spark) -> int:
    """Returns how many tasks run at a time, as far as the settings tell."""
    conf = spark.conf
    if "spark.default.parallelism" in conf:
        return int(str(conf["spark.default.parallelism"]))
    if local := _local(spark.master):
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    executors = int(str(conf.get("spark.executor.instances", 1)))
    return max(executors * int(str(conf.get("spark.executor.cores", DEFAULT_CORES))), 1)


def in_one_process(spark: Spark) -> bool:
    """Returns whether all cores are those of the driver's process."""
    return _local(spark.master) is not None


def _local(master: str) -> re.Match[str] | None:
    return re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Says how a unit's logs are gone through, and why. `by_rounds`: a round ends where a log's map is full."""

    reason: str
    by_rounds: bool


def task_plan(unit: WorkUnit, platform: Platform, configs: KafkaConfigs) -> TaskPlan:
    """Returns the plan of a unit.

    The number of dirty records, known from the files' bounds, is an upper limit of the number of keys.
    """
    cores = parallelism(platform.spark)
    budget = keys_in_budget(platform.cleaner, configs)
    keys = max((w.dirty_records for w in unit.partitions), default=0)
    sizes = (
        f"{counted(len(unit.partitions), 'log')} for {counted(cores, 'core')}, at most {counted(keys, 'key')} in one"
    )
    if platform.cleaner.cleantail_over_budget == "rounds":
        return TaskPlan(f"{sizes}, budget {budget}: a task for each log, whose round ends where the map is full", True)
    size = task_size(unit.partitions, platform.spark, platform.cleaner.cleantail_task_memory_bytes)
    shared = {w.partition: size.tasks([w]) for w in unit.partitions}
    several = [f"{n} for partition {p}" for p, n in sorted(shared.items()) if n > 1]
    if not several:
        return TaskPlan(f"{sizes}: a task for each log", False)
    others = ", one for each other log" if len(several) < len(shared) else ""
    return TaskPlan(
        f"{sizes}: tasks by shares of at most {counted(size.share, 'record')}: {', '.join(several)}{others}", False
    )

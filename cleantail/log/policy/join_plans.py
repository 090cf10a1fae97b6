"""How a round matches the records with its offset map: decided from metadata, so that `plan` can show it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cleantail.config.platform import Platform
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.human import counted
from cleantail.log.policy.offset_map import keys_in_budget
from cleantail.log.work_units import WorkUnit

HASH = "SHUFFLE_HASH"
BROADCAST = "BROADCAST"
MERGE = "MERGE"
"""Spark's names of the joins, as its hints have them."""
DEFAULT_CORES = 2


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """`grouped`: the files of a log are read by one task, so that its keys meet without a shuffle. `columnar`: that
    task matches the keys itself, column by column (spark_jobs.engine); `hint` is for where it cannot."""

    hint: str
    grouped: bool
    reason: str
    columnar: bool = False


def resolve_join(unit: WorkUnit, platform: Platform, configs: KafkaConfigs, adopted: bool) -> JoinPlan:
    """Returns the same records win by every plan; they differ in what moves and in what must fit into memory.

    The number of dirty records, known from the files' bounds, is an upper limit of the number of keys. `adopted`: a
    file of the table may hold several logs.
    """
    plan = _spark_join(unit, platform, configs)
    by_columns = columnar_enabled(platform) and configs.compaction_strategy == "offset" and not adopted
    if plan.hint == MERGE or not by_columns:
        return plan
    where = plan.reason.rpartition(":")[0]
    return replace(plan, columnar=True, reason=f"{where}: each log's keys matched by columns in one task")


def columnar_enabled(platform: Platform) -> bool:
    """Workers elsewhere need this Python and its packages, which only their owner knows."""
    chosen = platform.spark.columnar
    return chosen == "always" or (chosen == "auto" and platform.spark.master.startswith("local"))


def _spark_join(unit: WorkUnit, platform: Platform, configs: KafkaConfigs) -> JoinPlan:
    cores = parallelism(platform.spark.master, platform.spark.conf)
    budget = keys_in_budget(platform.cleaner, configs)
    dirty = sorted((w.dirty_records for w in unit.partitions), reverse=True)
    logs = f"{counted(len(dirty), 'log')} for {counted(cores, 'core')}"
    if len(dirty) >= cores:
        fits = sum(dirty[:cores]) <= budget
        size = f"at most {counted(sum(dirty[:cores]), 'key')} at a time, budget {budget}"
        if fits:
            return JoinPlan(HASH, True, f"{logs}, {size}: each log's map in the task that reads the log")
        return JoinPlan(MERGE, True, f"{logs}, {size}: each log sorted by the task that reads it, spilling to disk")
    size = f"at most {counted(sum(dirty), 'key')}, budget {budget}"
    if sum(dirty) <= budget:
        return JoinPlan(BROADCAST, False, f"{logs}, {size}: one map, broadcast")
    return JoinPlan(MERGE, False, f"{logs}, {size}: keys and offsets shuffled and sorted, spilling to disk")


def parallelism(master: str, conf: Mapping[str, object]) -> int:
    """Returns how many tasks run at a time, as far as the settings tell."""
    if "spark.default.parallelism" in conf:
        return int(str(conf["spark.default.parallelism"]))
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if local:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    executors = int(str(conf.get("spark.executor.instances", 1)))
    return max(executors * int(str(conf.get("spark.executor.cores", DEFAULT_CORES))), 1)

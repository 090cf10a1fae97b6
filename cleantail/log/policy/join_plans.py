"""How a round matches the records with its offset map: decided from metadata, so that `plan` can show it.

The same records win by every plan (semantics.md 3.8). Plans differ in what moves and in what must fit into memory:

1. With as many logs as cores, one task reads a log as a whole, and its map is in that task: nothing is shuffled.
2. With fewer logs than cores, one map of all logs is broadcast, so that no core is idle.
3. Where the maps would not fit into the budget, both sides are sorted and spill to disk.
4. A task that reads a log as a whole, or a broadcast map, may be replaced by DuckDB over columns. That needs the
   strategy `offset`, a table of Cleantail's own, and workers that have this Python.
"""

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
"""Spark's name of the join whose hint puts each log's map into the task that reads the log."""
BROADCAST = "BROADCAST"
MERGE = "MERGE"
"""Spark's name of the join that sorts both sides and spills to disk; HASH, BROADCAST and MERGE are Spark's hints."""
DEFAULT_CORES = 2
"""Cores of an executor where no setting says how many it has."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """Says how the records of a work unit meet the offset map, and why.

    With `grouped` one task reads the files of a log, so that its keys meet without a shuffle. With `columnar` that task
    matches the keys itself, column by column (spark_jobs.engine); `hint` is for where it cannot.
    """

    hint: str
    grouped: bool
    reason: str
    columnar: bool = False


def resolve_join(unit: WorkUnit, platform: Platform, configs: KafkaConfigs, adopted: bool) -> JoinPlan:
    """Returns the plan by which a work unit's records are matched, by the rules of the module docstring.

    The number of dirty records, known from the files' bounds, is an upper limit of the number of keys. `adopted` says
    that a file of the table may hold several logs.
    """
    plan = _spark_join(unit, platform, configs)
    by_columns = columnar_enabled(platform) and configs.compaction_strategy == "offset" and not adopted
    if plan.hint == MERGE or not by_columns:
        return plan
    sizes = plan.reason.rpartition(":")[0]
    return replace(plan, columnar=True, reason=f"{sizes}: each log's keys matched by columns in one task")


def columnar_enabled(platform: Platform) -> bool:
    """Returns whether tasks may match by columns. Workers elsewhere need this Python and its packages, which only their
    owner knows."""
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

"""A work unit as the table's own metadata plan it. The one that compact is handed came through Airflow's database,
where everybody who may edit the DAG may write: which logs are meant is taken from it, and no bound.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cleantail.catalogs import load_table, open_catalog
from cleantail.config import Platform, Topic
from cleantail.errors import HeldError
from cleantail.evaluate import plan_run
from cleantail.rolling_back import history_of
from cleantail.table_metadata import TableFacts, table_facts
from cleantail.work_units import PartitionWork, WorkUnit, branch_stem

BOUNDS = ("first_dirty_offset", "end_offset", "log_start_offset", "log_end_offset")
CLEAR = "Clear evaluate and what follows it, so that the run is planned anew"


def planned_unit(topic: Topic, platform: Platform, told: Mapping[str, Any]) -> WorkUnit:
    """The unit that evaluate has planned, planned once more at the snapshot that it read.

    Raises HeldError where the one that was told has other bounds, another name, or a snapshot that `main` never was at:
    the configuration has changed since, or somebody has changed the unit.
    """
    try:
        unit = WorkUnit.from_json(dict(told))
    except (KeyError, TypeError, ValueError) as e:
        raise _refused(f"it is no unit: {e!r}") from None
    return unit_at(topic, _facts(topic, platform, unit.base_snapshot_id), unit)


def unit_at(topic: Topic, facts: TableFacts, told: WorkUnit) -> WorkUnit:
    """The pure half of planned_unit; `facts` are of the snapshot that was read."""
    plans = [plan_run(topic, facts, now_ms=told.now_ms, force=force) for force in (False, True)]
    own = [{w.partition: w for unit in plan.units for w in unit.partitions} for plan in plans]
    if told.round != plans[0].round:
        raise _refused(f"its round would be {plans[0].round}, and is {told.round}")
    if told.branch != branch_stem(told.round, told.unit):
        raise _refused(f"no branch of its round is called {told.branch}")
    if not told.partitions or len({w.partition for w in told.partitions}) < len(told.partitions):
        raise _refused("it has no partition, or one twice")
    return replace(told, partitions=tuple(_work(work, own) for work in told.partitions))


def _work(told: PartitionWork, own: list[dict[int, PartitionWork]]) -> PartitionWork:
    """What a run does to the log, or one with `force`."""
    planned = [works[told.partition] for works in own if told.partition in works]
    if not planned:
        raise _refused(f"there is nothing to do in partition {told.partition}")
    for work in planned:
        if all(getattr(work, name) == getattr(told, name) for name in BOUNDS):
            return work
    right, wrong = (", ".join(f"{name} {getattr(w, name)}" for name in BOUNDS) for w in (planned[-1], told))
    raise _refused(f"partition {told.partition} has {right}, and not {wrong}")


def _facts(topic: Topic, platform: Platform, snapshot_id: int) -> TableFacts:
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    if table is None or all(commit.snapshot_id != snapshot_id for commit in history_of(table)):
        raise _refused(f"snapshot {snapshot_id} is not in the history of {topic.table}")
    return table_facts(table, snapshot_id=snapshot_id)


def _refused(why: str) -> HeldError:
    return HeldError(
        f"nothing was compacted: the work unit is not what the table's metadata say: {why}. The configuration or the "
        f"table has changed since evaluate, or somebody has changed the XCom. {CLEAR}"
    )

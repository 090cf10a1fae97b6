"""A work unit as the table's own metadata plan it. The one that compact is handed came through Airflow's database,
where everybody who may edit the DAG may write: which logs are meant is taken from it, and no bound.
"""

from __future__ import annotations

import os
from dataclasses import replace

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import HeldError, TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.own_namespace import current_releases
from cleantail.lake.runs.evaluate import plan_run
from cleantail.lake.runs.rollback_preview import history_of
from cleantail.lake.table_metadata import TableFacts, table_facts
from cleantail.log.work_units import WORK_UNIT_JSON, PartitionWork, WorkUnit, branch_stem
from cleantail.rounds.commit_summaries import Commit

BOUNDS = ("first_dirty_offset", "end_offset", "log_start_offset", "log_end_offset")
BEHIND_MS = 3_600_000
"""By so much the clock of who wrote a snapshot may be ahead of the one that planned a round of it."""
CLEAR = "Clear evaluate and what follows it, so that the run is planned anew"


def parsed_unit(text: str) -> WorkUnit:
    """Parses the unit that compact was handed. Raises HeldError where it is none."""
    try:
        return WORK_UNIT_JSON.value(text, "the work unit")
    except TableError as e:
        raise _refused(str(e)) from None


def planned_unit(topic: Topic, platform: Platform, unit: WorkUnit, clock_ms: int) -> WorkUnit:
    """Returns the unit that evaluate has planned, planned once more at the snapshot that it read; `clock_ms` reads the
    real clock.

    Raises HeldError where the one that was handed over has other bounds, another name, a snapshot that `main` never was
    at, or a clock at which that was not there: the configuration has changed since, or somebody has changed the unit.
    """
    base, facts = _base(topic, platform, unit.base_snapshot_id)
    if not platform.allow_clock:
        require_after(base, unit.now_ms, clock_ms)
    return unit_at(topic, facts, unit)


def require_after(base: Commit, now_ms: int, clock_ms: int) -> None:
    """Raises HeldError for a clock long before the snapshot that the round reads was made: horizons of tombstones are
    counted from it, and would have passed before readers saw them. A snapshot ahead of the real clock says nothing."""
    if now_ms < base.at_ms - BEHIND_MS and base.at_ms <= clock_ms:
        raise _refused(f"its now_ms {now_ms} is {base.at_ms - now_ms} ms before snapshot {base.snapshot_id} was made")


def unit_at(topic: Topic, facts: TableFacts, unit: WorkUnit) -> WorkUnit:
    """Returns the unit as the metadata plan it, the pure half of planned_unit; `facts` are of the snapshot that was
    read."""
    plans = [plan_run(topic, facts, now_ms=unit.now_ms, force=force) for force in (False, True)]
    planned_works = [{w.partition: w for planned in plan.units for w in planned.partitions} for plan in plans]
    if unit.round != plans[0].round:
        raise _refused(f"its round would be {plans[0].round}, and is {unit.round}")
    if unit.branch != branch_stem(unit.round, unit.unit):
        raise _refused(f"no branch of its round is called {unit.branch}")
    if not unit.partitions or len({w.partition for w in unit.partitions}) < len(unit.partitions):
        raise _refused("it has no partition, or one twice")
    return replace(unit, partitions=tuple(_work(work, planned_works) for work in unit.partitions))


def _work(work: PartitionWork, planned_works: list[dict[int, PartitionWork]]) -> PartitionWork:
    """Returns what a run does to the log, or one with `force`. Raises HeldError where the unit says something else."""
    candidates = [works[work.partition] for works in planned_works if work.partition in works]
    if not candidates:
        raise _refused(f"there is nothing to do in partition {work.partition}")
    for planned in candidates:
        if all(getattr(planned, name) == getattr(work, name) for name in BOUNDS):
            return planned
    right, wrong = (", ".join(f"{name} {getattr(w, name)}" for name in BOUNDS) for w in (candidates[-1], work))
    raise _refused(f"partition {work.partition} has {right}, and not {wrong}")


def _base(topic: Topic, platform: Platform, snapshot_id: int) -> tuple[Commit, TableFacts]:
    catalog = open_catalog(platform, os.environ)
    table = load_table(catalog, topic, platform)
    history = history_of(table) if table is not None else iter(())
    commit = next((commit for commit in history if commit.snapshot_id == snapshot_id), None)
    if table is None or commit is None:
        raise _refused(f"snapshot {snapshot_id} is not in the history of {topic.table}")
    return commit, table_facts(table, snapshot_id=snapshot_id, releases=current_releases(catalog, topic))


def _refused(why: str) -> HeldError:
    return HeldError(
        f"nothing was compacted: the work unit is not what the table's metadata say: {why}. The configuration or the "
        f"table has changed since evaluate, or somebody has changed the XCom. {CLEAR}"
    )

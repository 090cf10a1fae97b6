"""Evaluate one topic: the work of a run now, with reasons, from metadata. Starts no Spark, changes nothing.

A decision uses the real clock, or `now_ms`, which a user may set for a run:

1. A run must not begin with a clock ahead of the real one: snapshots, tombstones and segments would be removed too
   early.
2. A run's clock must not be behind the real one either, except for the difference between two machines. Horizons
   (semantics.md 1.5) are counted from this clock, and would be past before readers saw their tombstones.
3. The plan of a run, with its clock, reaches a job through Airflow's database. Editors of the DAG may write there. A
   job refuses a clock from before its run began: that time is Airflow's own, and no task can set it.
4. Expiry of snapshots and branches cannot be undone. So expiry uses the real clock if `now_ms` is ahead of that clock.
5. `platform.allow_clock` lifts all these limits, for trials.

The work unit that compact receives also came through Airflow's database, where every editor of the DAG may write.
Compact takes only the choice of logs from the unit, and no bound. It plans the unit again from the table's metadata.
"""

from __future__ import annotations

import time
from dataclasses import replace

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, HeldError, TableError
from cleantail.human import be, counted
from cleantail.lake.catalogs import kept_catalog, load_table, open_catalog
from cleantail.lake.facts_cache import FactsCache
from cleantail.lake.own_namespace import namespace_properties, readers_of
from cleantail.lake.reclaim_plan import resolve_reclaim
from cleantail.lake.releases import current_releases, releases_of
from cleantail.lake.table_metadata import TableFacts, history_of, require_partition, table_facts
from cleantail.log.due_work import DueWork, resolve_due_work, resolve_reconcile
from cleantail.log.log_state import LogState, keyless_note, resolve_log_state
from cleantail.log.partition_state import PartitionState
from cleantail.log.work_units import UNIT_BYTES, WORK_UNIT_JSON, PartitionWork, WorkUnit, branch_stem, pack, round_name
from cleantail.rounds.checked_round import ExpiryRequest
from cleantail.rounds.commit_summaries import Commit
from cleantail.rounds.run_plan import EvaluatedTopic, PlannedLog

SKEW_MS = 60_000
"""How far the clock of the deciding machine may be ahead of the working machine's."""
OLDEST_MS = 3_600_000
"""Maximum age of the clock of a job that was not started by an Airflow run."""


def expiry_clock_ms(platform: Platform, now_ms: int, clock_ms: int) -> int:
    """Return the clock for the expiry of snapshots and branches.

    It is `now_ms`, but never ahead of the real clock, which `clock_ms` reads. With platform.allow_clock it is `now_ms`.
    """
    return now_ms if platform.allow_clock else min(now_ms, clock_ms)


def require_real_clock(platform: Platform, now_ms: int, clock_ms: int) -> None:
    """Raise CleantailError if a run would begin with another clock than the real one, unless the platform allows it.

    A clock that is behind also does harm: horizons of tombstones and of remembered late versions are counted from it.
    The names of branches that are kept for a while also contain its time.
    """
    require_clock_not_ahead(platform, now_ms, clock_ms)
    if now_ms < clock_ms - SKEW_MS and not platform.allow_clock:
        raise CleantailError(
            f"now_ms {now_ms} is {clock_ms - now_ms} ms behind the clock: tombstones, remembered versions and "
            "branches of failed rounds would later be removed too early; nothing was changed. Leave it empty for "
            "the clock, or write `allow_clock: true` under `platform:` in defaults.yaml, for trials only"
        )


def require_clock_not_ahead(platform: Platform, now_ms: int, clock_ms: int, skew_ms: int = 0) -> None:
    """Raise CleantailError if a run would use a clock ahead of the real one, unless the platform allows it."""
    if now_ms > clock_ms + skew_ms and not platform.allow_clock:
        raise CleantailError(
            f"now_ms {now_ms} is {now_ms - clock_ms} ms ahead of the clock: snapshots, tombstones and segments would "
            "be removed too early; nothing was changed. Leave it empty for the clock, or write `allow_clock: true` "
            "under `platform:` in defaults.yaml, for trials only"
        )


def require_clock_of_run(platform: Platform, now_ms: int, began_ms: int | None, clock_ms: int) -> None:
    """Raise an error if the clock of a plan is wrong for its run.

    CleantailError: the plan's clock is ahead of the real clock. HeldError: the plan's clock is from before the run
    began. `began_ms`: when Airflow began the run; None if a job was started by hand.
    """
    require_clock_not_ahead(platform, now_ms, clock_ms, SKEW_MS)
    earliest_ms = clock_ms - OLDEST_MS if began_ms is None else began_ms - SKEW_MS
    if now_ms < earliest_ms and not platform.allow_clock:
        raise HeldError(
            f"now_ms {now_ms} of the plan is {earliest_ms - now_ms} ms before the run began: tombstones would be "
            f"removed before readers saw them; nothing was changed. The run was cleared without its `evaluate`, or its "
            f"XCom was changed. Clear evaluate and the tasks after it: the run is then planned again"
        )


def evaluate_topic(
    topic: Topic,
    *,
    now_ms: int,
    force: bool = False,
    partition: int | None = None,
    retry_quarantined: bool = False,
    reconcile: bool = False,
    later_round: bool = False,
    kept: FactsCache | None = None,
    unconverted: bool = False,
) -> EvaluatedTopic:
    """Plan a run of one topic at `now_ms`.

    `reconcile`: a user requests a reconciliation. `later_round`: as in resolve_due_work. `kept`: cached facts of
    unchanged tables, if many topics are evaluated. `unconverted`: as in read_facts. Snapshots and branches expire by
    the real clock if `now_ms` is ahead of it. Raises TableError if the catalog or the table is not usable.
    """
    facts = kept.of(topic) if kept is not None and not unconverted else read_facts(topic, unconverted)
    return plan_run(
        topic,
        facts,
        now_ms=now_ms,
        force=force,
        partition=partition,
        retry_quarantined=retry_quarantined,
        reconcile=reconcile,
        later_round=later_round,
        until_ms=expiry_clock_ms(topic.platform, now_ms, int(time.time() * 1000)),
    )


def read_facts(topic: Topic, unconverted: bool = False) -> TableFacts | None:
    """Fetch the table's current metadata, with the readers' positions and the releases of its namespace.

    Returns None if nothing was ingested yet. `unconverted`: skip deletes that a run has still to convert, so that what
    they delete counts as present.
    """
    catalog = kept_catalog(topic.platform)
    table = load_table(catalog, topic)
    if table is None:
        return None
    properties = namespace_properties(catalog, topic.own_namespace)
    releases = releases_of(topic, properties)
    return table_facts(table, readers_of(topic, properties), releases=releases, pass_foreign=unconverted)


def log_states(topic: Topic, facts: TableFacts | None, now_ms: int) -> tuple[LogState, ...]:
    """Return every log of the table, by partition number."""
    if facts is None:
        return ()
    return tuple(
        resolve_log_state(
            p,
            facts.files_of(p),
            facts.states.get(p, PartitionState()),
            facts.arrived_of(p),
            topic.config,
            now_ms,
            facts.position,
        )
        for p in facts.partitions
    )


def plan_run(
    topic: Topic,
    facts: TableFacts | None,
    *,
    now_ms: int,
    force: bool = False,
    partition: int | None = None,
    retry_quarantined: bool = False,
    reconcile: bool = False,
    later_round: bool = False,
    until_ms: int | None = None,
) -> EvaluatedTopic:
    """Plan a run from the table's metadata, the pure half of evaluate_topic.

    `until_ms`: the clock of expiry, by default `now_ms`. Raises TableError for a partition that the table does not
    have.
    """
    require_partition(topic, partition, facts.partitions if facts else [])
    logs = tuple(s for s in log_states(topic, facts, now_ms) if partition in (None, s.partition))
    readers = facts.readers if facts else ()
    how = {"force": force, "retry_quarantined": retry_quarantined, "later_round": later_round}
    work = resolve_due_work(logs, readers, topic.config, now_ms, **how)
    works = _works(logs, work, facts)
    round_id = round_name(now_ms, facts.sequence_number if facts else 0)
    unit_bytes = LONG_MAX if topic.columns else UNIT_BYTES  # an adopted table's file may hold several logs
    by_log = tuple(
        PlannedLog(log, d, r, keyless_note(log.cleanable_keyless, log.uncleanable_keyless, topic.config))
        for log, d, r in zip(logs, work.decisions, work.retentions, strict=True)
    )
    # if delete.retention.ms is 0, horizons that this run sets are due at once
    fresh_from = {} if topic.config.delete_retention_ms else {w.partition: w.first_dirty_offset for w in works}
    snapshot_id = (facts.snapshot_id or 0) if facts else 0
    return EvaluatedTopic(
        topic=topic.topic,
        round=round_id,
        now_ms=now_ms,
        reason=_reason(logs, works, work, topic.config) if logs else "the table has no records yet",
        by_log=by_log,
        snapshot_id=snapshot_id,
        units=pack(round_id, now_ms, snapshot_id, works, unit_bytes),
        sweep=ExpiryRequest(now_ms, work.sweep, fresh_from) if work.sweep else None,
        sweep_reason=work.sweep_reason,
        reclaim=resolve_reclaim(facts, topic.config, now_ms if until_ms is None else until_ms),
        readers=readers,
        holds=work.holds,
        records=sum(file.live_records for file in facts.files) if facts else 0,
        reconcile=resolve_reconcile(topic, logs, reconcile),
        # a file with records of several logs is listed once for each log
        shared_files=facts is not None and len({file.path for file in facts.files}) < len(facts.files),
    )


def _works(logs: tuple[LogState, ...], work: DueWork, facts: TableFacts | None) -> list[PartitionWork]:
    """Return the work on each log, most urgent first. Logs with only retention due come last.

    Such a log is left out after a user has rejected its round.
    """
    starts = {s.partition: r.log_start_offset for s, r in zip(logs, work.retentions, strict=True)}
    by_partition = {s.partition: s for s in logs}
    works = []
    for p in [*work.compact, *work.retain]:
        # 1. the bounds: at or above the log start that retention moves to, at or below the end of the round
        log, end = by_partition[p], work.ends[p]
        first = max(log.first_dirty_offset, starts[p])
        files = facts.files_of(p) if facts else ()
        # 2. what lies between them, from the metadata of the files
        due = PartitionWork(
            partition=p,
            first_dirty_offset=min(first, end),
            end_offset=end,
            log_start_offset=starts[p],
            log_end_offset=log.log_end_offset,
            bytes=log.total_bytes,
            dirty_records=sum(f.records_between(first, end) for f in files),
            dirty_bytes=sum(f.bytes_between(first, end) for f in files),
            read_bytes=sum(f.bytes_between(starts[p], end) for f in files),
            records=sum(f.records for f in files),
        )
        works.append(due)
    return works


def _reason(logs: tuple[LogState, ...], works: list[PartitionWork], work: DueWork, configs: KafkaConfigs) -> str:
    """Return how many logs are compacted or retained, or why no log is. Expiry and reclaim have their own reasons."""
    if works:
        return f"{len(works)} of {counted(len(logs), 'partition')} {be(len(works))} due"
    decided = work.decisions if configs.compacts else work.retentions
    kinds = [kind for kind, applies in (("compaction", configs.compacts), ("retention", configs.deletes)) if applies]
    reasons = sorted({decision.reason for decision in decided})
    more = f" (and {counted(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
    return f"no {' or '.join(kinds)} is due: {reasons[0]}{more}"


BOUNDS = ("first_dirty_offset", "end_offset", "log_start_offset", "log_end_offset")
BEHIND_MS = 3_600_000
"""How far the clock of a snapshot's writer may be ahead of the clock that planned its round."""
CLEAR = "Clear evaluate and all tasks after it, so that the run is planned again"


def parsed_unit(text: str) -> WorkUnit:
    """Parse the unit that compact received. Raises HeldError if the text is not a unit."""
    try:
        return WORK_UNIT_JSON.value(text, "the work unit")
    except TableError as e:
        raise _refused(str(e)) from None


def planned_unit(topic: Topic, unit: WorkUnit, clock_ms: int) -> WorkUnit:
    """Plan the unit of evaluate again, at the snapshot that evaluate read. `clock_ms` reads the real clock.

    Raises HeldError if the configuration or the unit was changed since. Signs of that are other bounds, another name, a
    snapshot that was never on `main`, or a clock from before that snapshot.
    """
    base, facts = _base(topic, unit.base_snapshot_id)
    if not topic.platform.allow_clock:
        require_clock_after(base, unit.now_ms, clock_ms)
    return unit_at(topic, facts, unit)


def require_clock_after(base: Commit, now_ms: int, clock_ms: int) -> None:
    """Raise HeldError if the clock is much earlier than the time of the snapshot that the round reads.

    Horizons of tombstones are counted from the clock, and would pass before readers saw the tombstones. A snapshot
    ahead of the real clock is ignored.
    """
    if now_ms < base.at_ms - BEHIND_MS and base.at_ms <= clock_ms:
        raise _refused(f"its now_ms {now_ms} is {base.at_ms - now_ms} ms before snapshot {base.snapshot_id} was made")


def unit_at(topic: Topic, facts: TableFacts, unit: WorkUnit) -> WorkUnit:
    """Plan the unit from the metadata, the pure half of planned_unit. `facts` are of the snapshot that was read."""
    plans = [plan_run(topic, facts, now_ms=unit.now_ms, force=force) for force in (False, True)]
    planned_works = [{w.partition: w for planned in plan.units for w in planned.partitions} for plan in plans]
    if unit.round != (own := round_name(unit.now_ms, facts.sequence_number)):
        raise _refused(f"its round is {unit.round}, and should be {own}")
    if unit.branch != branch_stem(unit.round, unit.unit):
        raise _refused(f"{unit.branch} is not a branch of its round")
    if not unit.partitions or len({w.partition for w in unit.partitions}) < len(unit.partitions):
        raise _refused("it has no partition, or the same partition twice")
    return replace(unit, partitions=tuple(_work(work, planned_works) for work in unit.partitions))


def _work(work: PartitionWork, planned_works: list[dict[int, PartitionWork]]) -> PartitionWork:
    """Return the work on the log that a run plans, with or without `force`. Raises HeldError if the unit differs."""
    candidates = [works[work.partition] for works in planned_works if work.partition in works]
    if not candidates:
        raise _refused(f"there is nothing to do in partition {work.partition}")
    for planned in candidates:
        if all(getattr(planned, name) == getattr(work, name) for name in BOUNDS):
            return planned
    right, wrong = (", ".join(f"{name} {getattr(w, name)}" for name in BOUNDS) for w in (candidates[-1], work))
    raise _refused(f"partition {work.partition} should have {right}, but has {wrong}")


def _base(topic: Topic, snapshot_id: int) -> tuple[Commit, TableFacts]:
    catalog = open_catalog(topic.platform)
    table = load_table(catalog, topic)
    if table is not None:
        for commit in history_of(table):
            if commit.snapshot_id == snapshot_id:
                return commit, table_facts(table, snapshot_id=snapshot_id, releases=current_releases(catalog, topic))
    raise _refused(f"snapshot {snapshot_id} is not in the history of {topic.table}")


def _refused(why: str) -> HeldError:
    return HeldError(
        f"nothing was compacted: the work unit does not match the table's metadata: {why}. The configuration or the "
        f"table has changed since evaluate, or a user has changed the XCom. {CLEAR}"
    )

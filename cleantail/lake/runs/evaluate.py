"""Says what a run of one topic would do now, and why: metadata in, RunPlan out. Starts no Spark, changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from cleantail.config.config_model import LONG_MAX
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.human import be, counted
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.kept_facts import KeptFacts
from cleantail.lake.own_namespace import namespace_properties, readers_of, releases_of
from cleantail.lake.runs.clocks import expiry_ms
from cleantail.lake.runs.reclaim_plan import resolve_reclaim
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.lake.table_metadata import TableFacts, require_partition, table_facts
from cleantail.log.due_work import DueWork, resolve_due_work, resolve_reconcile
from cleantail.log.log_state import LogState, keyless_note, resolve_log_state
from cleantail.log.partition_state import PartitionState
from cleantail.log.segments import DataFile
from cleantail.log.work_units import UNIT_BYTES, PartitionWork, pack, round_name


def evaluate_topic(
    topic: Topic,
    platform: Platform,
    *,
    now_ms: int,
    force: bool = False,
    partition: int | None = None,
    retry_quarantined: bool = False,
    reconcile: bool = False,
    later_round: bool = False,
    kept: KeptFacts | None = None,
    unconverted: bool = False,
) -> RunPlan:
    """Plans a run of one topic at `now_ms`. `reconcile`: a person asks for a reconciliation; `later_round`: as in
    resolve_due_work; `kept`: what is kept of tables that have not changed, where many topics are evaluated;
    `unconverted`: as in read_facts. Snapshots and branches expire by the real clock where `now_ms` is ahead of it.
    Raises TableError when catalog or table is not usable."""
    facts = kept.of(topic) if kept is not None and not unconverted else read_facts(topic, platform, unconverted)
    return plan_run(
        topic,
        facts,
        now_ms=now_ms,
        force=force,
        partition=partition,
        retry_quarantined=retry_quarantined,
        reconcile=reconcile,
        later_round=later_round,
        until_ms=expiry_ms(platform, now_ms, int(time.time() * 1000)),
    )


def read_facts(topic: Topic, platform: Platform, unconverted: bool = False) -> TableFacts | None:
    """Fetches the table's metadata as it stands, with what its namespace says of it: positions of readers, and
    releases. Returns None where nothing was ingested yet. `unconverted`: deletes that a run has still to convert are
    passed over, so that what they delete counts as if it were there."""
    catalog = kept_catalog(platform, os.environ)
    table = load_table(catalog, topic, platform)
    if table is None:
        return None
    properties = namespace_properties(catalog, topic.own_namespace)
    releases = releases_of(topic, properties)
    return table_facts(table, readers_of(topic, properties), releases=releases, pass_foreign=unconverted)


def log_states(topic: Topic, facts: TableFacts | None, now_ms: int) -> tuple[LogState, ...]:
    """Returns every log of the table, by partition number."""
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
) -> RunPlan:
    """Plans a run from the table's metadata, the pure half of evaluate_topic; `until_ms` is the clock of expiry,
    `now_ms` where none is given. Raises TableError for a partition that the table does not have."""
    require_partition(topic, partition, facts.partitions if facts else [])
    logs = tuple(s for s in log_states(topic, facts, now_ms) if partition in (None, s.partition))
    readers = facts.readers if facts else ()
    how = {"force": force, "retry_quarantined": retry_quarantined, "later_round": later_round}
    work = resolve_due_work(logs, readers, topic.config, now_ms, **how)
    works = _works(logs, work, facts)
    round_id = round_name(now_ms, facts.sequence_number if facts else 0)
    unit_bytes = LONG_MAX if topic.columns else UNIT_BYTES  # an adopted table's file may hold several logs
    return RunPlan(
        topic=topic.topic,
        round=round_id,
        now_ms=now_ms,
        reason=_reason(logs, works, work) if logs else "the table has no records yet",
        logs=logs,
        decisions=work.decisions,
        retentions=work.retentions,
        units=pack(round_id, now_ms, (facts.snapshot_id or 0) if facts else 0, works, unit_bytes),
        sweep=work.sweep,
        sweep_reason=work.sweep_reason,
        reclaim=resolve_reclaim(facts, topic.config, now_ms if until_ms is None else until_ms),
        readers=readers,
        holds=work.holds,
        fresh_from={} if topic.config.delete_retention_ms else {w.partition: w.first_dirty_offset for w in works},
        records=sum(file.live_records for file in facts.files) if facts else 0,
        reconcile=resolve_reconcile(topic, logs, reconcile),
        shared_files=facts is not None and _share_files(facts.files),
        keyless={
            s.partition: note
            for s in logs
            if (note := keyless_note(s.cleanable_keyless, s.uncleanable_keyless, topic.config))
        },
    )


def _share_files(files: Sequence[DataFile]) -> bool:
    """Returns whether a data file has records of several logs: then it is there once for each."""
    return len({file.path for file in files}) < len(files)


def _works(logs: tuple[LogState, ...], work: DueWork, facts: TableFacts | None) -> list[PartitionWork]:
    """Returns what is to be done, most urgent first; logs of which only retention is due come last, without those whose
    round a person has rejected."""
    starts = {s.partition: r.log_start_offset for s, r in zip(logs, work.retentions, strict=True)}
    by_partition = {s.partition: s for s in logs}
    works = []
    for p in [*work.compact, *work.retain]:
        # 1. the bounds: never below the log start that retention moves to, nor above where the round ends
        log, end = by_partition[p], work.ends[p]
        first = max(log.first_dirty_offset, starts[p])
        files = facts.files_of(p) if facts else ()
        # 2. what lies between them, by the metadata of the files
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


def _reason(logs: tuple[LogState, ...], works: list[PartitionWork], work: DueWork) -> str:
    if works:
        return f"{len(works)} of {counted(len(logs), 'partition')} {be(len(works))} due"
    if work.sweep:
        return f"tombstones of {len(work.sweep)} of {counted(len(logs), 'partition')} are due, and nothing else"
    reasons = sorted({d.reason for d in work.decisions})
    more = f" (and {counted(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
    return f"nothing is due: {reasons[0]}{more}"

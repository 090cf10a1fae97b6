"""Reclaim space when it is due: rewrite files with many deleted records, merge small ones, expire snapshots.

A group of neighbouring files becomes one, in offset order, without the deleted records: written to a branch,
counted, then swapped on `main` in one commit. A killed run leaves finished groups done and the rest as it was.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark.sql import functions as F

from cleantail.config.columns import quoted
from cleantail.config.platform import Platform
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.errors import ConflictError, TableError
from cleantail.human import counted
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.neighbours import (
    may_delete_files,
    named_by_metadata,
    require_inner_files,
    require_inner_metadata_log,
    require_separate_folder,
)
from cleantail.lake.runs.clocks import expiry_ms
from cleantail.lake.runs.evaluate import read_facts
from cleantail.lake.runs.reclaim_plan import resolve_reclaim
from cleantail.log.policy.shares import parallelism
from cleantail.log.segments import DataFile
from cleantail.rounds.reclaim_results import ReclaimResult, RewrittenGroup
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.commits import replace_files
from spark_jobs.iceberg.file_removal import expire_snapshots, remove_orphans, require_own_files
from spark_jobs.iceberg.iceberg_reads import each
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import append_reclaim
from spark_jobs.round.upkeep.evidence_upkeep import merge_evidence
from spark_jobs.round.upkeep.side_tables import reclaim_side_tables

logger = logging.getLogger("cleantail.reclaim")

MIN_ORPHAN_AGE_MS = 86_400_000
"""Iceberg refuses to remove orphans younger than a day: they may belong to a commit under way."""


def reclaim_topic(table: TopicTable, platform: Platform, now_ms: int) -> ReclaimResult:
    """Does what resolve_reclaim finds due; a group that lost against another writer is left for the next time.

    Raises TableError, before the table is changed, where files that are not its own could be deleted.

    1. The side tables are reclaimed, whether or not anything is due in the table itself.
    2. Branches that nobody needs any more are dropped: those of killed runs, and of failed rounds past their time.
    3. Groups of files are rewritten; what they have freed gets a row of evidence, also where a later group fails.
    4. Snapshots past their time expire, and files that no snapshot knows are removed where they are surely its own.
    """
    facts, clock_ms = read_facts(table.topic, platform), int(time.time() * 1000)
    until_ms = expiry_ms(platform, now_ms, clock_ms)
    plan = resolve_reclaim(facts, table.topic.config, until_ms)
    result = ReclaimResult((plan.reason,), failed_branches_dropped=len(plan.branches))
    if facts is None:
        return result
    ages = Ages.of(table.topic.config, until_ms, min(now_ms, clock_ms))
    snapshots, orphans = reclaim_side_tables(table, platform, ages.oldest_ms, ages.orphans_before_ms)
    result = replace(result, side_snapshots_expired=snapshots, side_orphans_removed=orphans)
    if not plan.due:
        return result
    location, alone = require_own(table, platform)
    table.drop_stale_branches()
    for branch in plan.branches:
        table.drop_branch(branch)
    try:
        for group in rewrite_groups(table, plan.groups, parallelism(platform.spark.master, platform.spark.conf)):
            result = result.with_group(group)
    finally:
        if result.reclaimed_bytes > 0:
            append_reclaim(table, platform, result.reclaimed_bytes, now_ms)
    expired = expire_snapshots(table.spark, table.load(), ages.oldest_ms, location)
    removed = remove_orphans(table.spark, table.load(), ages.orphans_before_ms, location) if alone else 0
    merged = merge_evidence(table, platform)
    return replace(result, expired_snapshots=expired, orphans_removed=removed, evidence_files_merged=merged)


@dataclass(frozen=True, slots=True)
class Ages:
    """Before when (Unix ms) snapshots expire, and files that no snapshot knows may go."""

    oldest_ms: int
    orphans_before_ms: int

    @classmethod
    def of(cls, configs: KafkaConfigs, until_ms: int, now_ms: int) -> Ages:
        """Returns the ages of a run. A file's age is the file system's: `now_ms` is the earlier of the run's clock and
        the real one, so that no file of a commit under way is old."""
        age_ms = max(configs.cleantail_orphan_retention_ms, MIN_ORPHAN_AGE_MS)
        return cls(until_ms - configs.cleantail_snapshot_retention_ms, now_ms - age_ms)


def rewrite_groups(table: TopicTable, groups: Sequence[Sequence[DataFile]], cores: int) -> Iterator[RewrittenGroup]:
    """Rewrites each group as one task of Spark, `cores` of them at a time, and yields those that were swapped on
    `main`. After an error no further group is begun, and what was staged is dropped."""
    with ThreadPoolExecutor(cores) as threads:
        staged = [threads.submit(stage_group, table, group, number) for number, group in enumerate(groups)]
        try:
            for group, rewritten in zip(groups, staged, strict=True):
                new_files = swap_group(table, group, rewritten.result())
                if new_files is not None:
                    yield RewrittenGroup(len(group), new_files, freed_bytes(table))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            for rewritten in staged:
                if not rewritten.cancelled() and rewritten.exception() is None:
                    table.drop_branch(rewritten.result().branch)
            raise


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The branch that has a group's live records as new files, and the snapshot from which they were written."""

    branch: str
    base_snapshot_id: int


def stage_group(table: TopicTable, group: Sequence[DataFile], number: int) -> Rewritten:
    """Writes the live records of the group, in offset order, onto a branch. One task reads, sorts and writes them:
    nothing is shuffled, and the groups are as many tasks as there are cores."""
    base = int(table.load().currentSnapshot().snapshotId())
    branch = branch_name(f"rw_{base}_{number}")
    columns = table.topic.columns
    partition, offset = (columns.partition, columns.offset) if columns else (PARTITION, OFFSET)
    of_log = F.col(quoted(partition)) == group[0].partition
    live = table.stored_at(base).where(F.col("_file").isin(sorted(f.path for f in group)) & of_log)
    table.create_branch(branch, base)
    try:
        table.append_to(branch, live.coalesce(1).sortWithinPartitions(quoted(offset)), as_it_is=True)
    except BaseException:
        table.drop_branch(branch)
        raise
    return Rewritten(branch, base)


def swap_group(table: TopicTable, group: Sequence[DataFile], rewritten: Rewritten) -> int | None:
    """Puts the new files in the old ones' place. Returns their number; None where another writer was faster.

    Raises TableError, with `main` unchanged, when the rewritten records are not those of the old files.
    """
    branch, base = rewritten.branch, rewritten.base_snapshot_id
    try:
        written, expected = table.added_records(branch), sum(f.live_records for f in group)
        if written != expected:
            raise TableError(
                f"rewriting {counted(len(group), 'file')} gave {counted(written, 'record')} for {expected}; "
                "nothing was changed"
            )
        sequence_number, paths = max(f.data_sequence_number for f in group), {f.path for f in group}
        return replace_files(table, branch, paths, base, sequence_number, {"cleantail.operation": "reclaim"})
    except ConflictError as e:
        logger.warning("%s is left for the next run: %s", branch, e)
        return None
    finally:
        table.drop_branch(branch)


def freed_bytes(table: TopicTable) -> int:
    """Returns by how much the last rewrite made the data files smaller; 0 where it did not."""
    summaries = [snapshot.summary() for snapshot in each(table.load().snapshots())]
    last = [s for s in summaries if s.get("cleantail.operation") == "reclaim"][-1]
    sizes = [int(last.get(name) or 0) for name in ("removed-files-size", "added-files-size")]
    return max(sizes[0] - sizes[1], 0)


def require_own(table: TopicTable, platform: Platform) -> tuple[str, bool]:
    """Returns the table's location, and whether files there that no snapshot knows are surely its own. Raises
    TableError where its folder is shared with another table, or where it names files beyond its folder.

    An adopted table's folder was chosen by somebody else: where the catalog does not show all of its tables, no
    file there is known to be an orphan.
    """
    catalog = open_catalog(platform, os.environ)
    seen = load_table(catalog, table.topic, platform)
    if seen is None:
        raise TableError(f"table {table.topic.table} is gone")
    if not may_delete_files(seen.properties):
        return seen.location(), True
    unseen = require_separate_folder(catalog, platform, seen)
    require_inner_metadata_log(table.topic.table, seen.location(), seen.metadata)
    require_inner_files(table.topic.table, seen.location(), named_by_metadata(seen))
    require_own_files(table.spark, table.name, seen.location())
    alone = not unseen or table.topic.columns is None
    if unseen:
        logger.warning("%s: %s", unseen, "no orphans are removed" if not alone else "their folders are not known")
    return seen.location(), alone

"""Reclaim space when it is due: rewrite files with many deleted records, merge small ones, expire snapshots.

A group of neighbouring files becomes one, or a few of the table's target size, in offset order, without the deleted
records (rewriting). A killed run leaves finished groups done and the rest as it was.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, replace
from functools import partial

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform
from cleantail.errors import TableError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.neighbours import (
    may_delete_files,
    named_by_metadata,
    require_inner_files,
    require_separate_folder,
)
from cleantail.lake.runs.clocks import expiry_ms
from cleantail.lake.runs.evaluate import read_facts
from cleantail.lake.runs.reclaim_plan import resolve_reclaim
from cleantail.lake.table_folder import oldest_own_file_ms, require_safe_commits
from cleantail.rounds.station_results import ReclaimResult
from spark_jobs.iceberg.file_removal import expire_snapshots, past_unreadable, remove_orphans, require_own_files
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import append_reclaim
from spark_jobs.round.released_logs import note_rewritten
from spark_jobs.round.upkeep.evidence_upkeep import merge_evidence
from spark_jobs.round.upkeep.rewriting import rewrite_groups
from spark_jobs.round.upkeep.side_tables import reclaim_side_tables

logger = logging.getLogger("cleantail.reclaim")

MIN_ORPHAN_AGE_MS = 86_400_000
"""Iceberg refuses to remove orphans younger than a day: they may belong to a commit under way."""


def reclaim_topic(table: TopicTable, platform: Platform, now_ms: int) -> ReclaimResult:
    """Does what resolve_reclaim finds due; a group that lost against another writer is left for the next time.

    Raises TableError, before the table is changed, where files are to be deleted and one could be another's.

    1. The side tables are reclaimed, whether or not anything is due in the table itself.
    2. Branches that nobody needs any more are dropped: those of killed runs, and of failed rounds past their time.
    3. Groups of files are rewritten; what they have freed gets a row of evidence, also where a later group fails.
    4. The evidence's small files are merged where they are many.
    5. Where snapshots are past their time they expire, and files that no snapshot knows are removed where they are
       surely its own. To look for such files each time would cost more than a round of a small topic.
    """
    if table.exists():
        note_rewritten(table, now_ms)
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
    own = partial(require_own, table, platform)
    folder = past_unreadable(table.load, ages.oldest_ms, own) if plan.expired_snapshots else None
    table.drop_stale_branches()
    table.drop_branches(plan.branches)
    try:
        for rewritten in rewrite_groups(table, platform, plan.groups):
            result = result.with_files(rewritten)
    finally:
        if result.reclaimed_bytes > 0:
            append_reclaim(table, platform, result.reclaimed_bytes, now_ms)
    result = replace(result, evidence_files_merged=merge_evidence(table, platform))
    if folder is None:
        return result
    expired = expire_snapshots(table.spark, table.load, ages.oldest_ms, folder.location)
    removed = remove_orphans(table.spark, table.load(), ages.orphans_before_ms, folder.location, folder.since_ms)
    reasons = (*result.reasons, folder.kept) if folder.kept else result.reasons
    return replace(result, reasons=reasons, expired_snapshots=expired, orphans_removed=removed)


@dataclass(frozen=True, slots=True)
class Ages:
    """Says before when (Unix ms) snapshots expire, and files that no snapshot knows may go."""

    oldest_ms: int
    orphans_before_ms: int

    @classmethod
    def of(cls, configs: KafkaConfigs, until_ms: int, now_ms: int) -> Ages:
        """Returns the ages of a run. A file's age is the file system's: `now_ms` is the earlier of the run's clock and
        the real one, so that no file of a commit under way is old."""
        age_ms = max(configs.cleantail_orphan_retention_ms, MIN_ORPHAN_AGE_MS)
        return cls(until_ms - configs.cleantail_snapshot_retention_ms, now_ms - age_ms)


KEPT = "files that no snapshot knows stay in the folder of an adopted table: cleantail.adopted.orphans is keep"


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """Describes the folder of a table that is the table's own. `since_ms`: when (Unix ms) the table was made, None if
    no file there that no snapshot knows may go; `kept`: why not, empty if one may."""

    location: str
    since_ms: int | None
    kept: str = ""


def require_own(table: TopicTable, platform: Platform) -> OwnFolder:
    """Returns the table's folder. Raises TableError where it is shared with another table, or where the table names
    files beyond its folder.

    Another user chose an adopted table's folder. No file there counts as an orphan unless the topic's YAML says so, and
    the catalogs show all of their tables.
    """
    catalog = open_catalog(platform, os.environ)
    seen = load_table(catalog, table.topic, platform)
    if seen is None:
        raise TableError(f"table {table.topic.table} is gone")
    if not may_delete_files(seen.properties):
        return OwnFolder(seen.location(), None)
    unseen = require_separate_folder(catalog, platform, seen)
    since_ms = oldest_own_file_ms(seen)
    require_safe_commits(seen)
    require_inner_files(table.topic.table, seen.location(), named_by_metadata(seen))
    require_own_files(table.spark, table.name, seen.location())
    if table.topic.columns is None:
        if unseen:
            logger.warning("%s: their folders are not known", unseen)
        return OwnFolder(seen.location(), since_ms)
    if table.topic.config.cleantail_adopted_orphans == "keep":
        return OwnFolder(seen.location(), None, KEPT)
    if unseen:
        return OwnFolder(seen.location(), None, f"{unseen}: no orphans are removed")
    return OwnFolder(seen.location(), since_ms)

"""Reclaim of a topic's side tables: what was deleted from them leaves the disk by the rules of the topic's table."""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from typing import Any

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError, TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.neighbours import (
    may_delete_files,
    named_by_metadata,
    require_inner_files,
    require_separate_folder,
)
from cleantail.lake.side_tables import side_tables
from cleantail.lake.table_folder import oldest_own_file_ms, require_safe_commits
from spark_jobs.iceberg.branches import created_at_s
from spark_jobs.iceberg.commits import drop_branches
from spark_jobs.iceberg.file_removal import (
    REWRITING,
    actions_of,
    expire_snapshots,
    past_unreadable,
    remove_orphans,
    require_own_files,
)
from spark_jobs.iceberg.iceberg_reads import iceberg_table
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.tables import STALE_BRANCH_S, TopicTable
from spark_jobs.round.upkeep.branch_rewriting import merge_beside

logger = logging.getLogger("cleantail.side_tables")


def reclaim_side_tables(
    table: TopicTable, platform: Platform, oldest_ms: int, orphans_before_ms: int
) -> tuple[int, int]:
    """Rewrites files of which rows were deleted, expires snapshots older than `oldest_ms`, and removes files that no
    snapshot knows and that are older than `orphans_before_ms`. One that shares its place with another table is left
    alone, with a warning: the topic's own table is not to wait for it. Returns how many snapshots expired, and how
    many files were removed."""
    snapshots = orphans = 0
    for suffix, seen in side_tables(table.topic, platform).items():
        name = f"{table.name[:-1]}{suffix}`"
        if not may_delete_files(seen.properties):
            continue
        load = partial(iceberg_table, table.spark, name)
        try:
            since_ms = past_unreadable(load, oldest_ms, partial(_require_own, table, platform, seen, name))
        except TableError as e:
            logger.warning("no file of %s is removed: %s", name, e)
            continue
        before_s = time.time() - STALE_BRANCH_S
        drop_branches(load, [b for b in map(str, each(load().refs().keySet())) if created_at_s(b) < before_s])
        _rewrite_deleted(table, name, load())
        snapshots += expire_snapshots(table.spark, load, oldest_ms, seen.location())
        orphans += remove_orphans(table.spark, load(), orphans_before_ms, seen.location(), since_ms)
    return snapshots, orphans


def _require_own(table: TopicTable, platform: Platform, seen: Any, name: str) -> int | None:
    """Returns when (Unix ms) the side table was made."""
    plain = ".".join(seen.name()[-2:])
    require_separate_folder(open_catalog(platform, os.environ), platform, seen)
    require_safe_commits(seen)
    require_inner_files(plain, seen.location(), named_by_metadata(seen))
    require_own_files(table.spark, name, seen.location())
    return oldest_own_file_ms(seen)


def _rewrite_deleted(table: TopicTable, name: str, iceberg: Any) -> None:
    """Rewrites files with deleted rows: whoever deletes rows may write delete files, which leave the rows where they
    are."""
    current = iceberg.currentSnapshot()
    if current is None or int(current.summary().getOrDefault("total-delete-files", "0")) == 0:
        return
    try:
        merge_beside(table, name, None, 1)
        return
    except ConflictError as e:  # deletes of several files, or by values
        logger.info("Iceberg's own action rewrites %s: %s", name, e)
    rewrite = actions_of(table.spark).rewriteDataFiles(iceberg).binPack().option("delete-file-threshold", "1")
    with REWRITING:
        rewrite.option("min-input-files", "1").option("remove-dangling-deletes", "true").execute()
    iceberg.refresh()

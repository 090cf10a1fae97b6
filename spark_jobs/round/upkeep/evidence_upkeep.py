"""Keep the evidence quick to read: each round appends two small files, and a page opens all files of its topic.

Iceberg's own actions do it: rows stay as they are, files of other topics too, and rounds may append meanwhile.
"""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from typing import Any

from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE, quoted
from cleantail.errors import ConflictError, TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.neighbours import named_by_metadata, require_inner_files, require_separate_folder
from cleantail.lake.table_folder import oldest_own_file_ms
from spark_jobs.iceberg.file_removal import (
    expire_snapshots,
    past_unreadable,
    remove_orphans,
    require_own_files,
)
from spark_jobs.iceberg.iceberg_reads import iceberg_table
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.upkeep.branch_rewriting import merge_beside

logger = logging.getLogger("cleantail.evidence_upkeep")

MIN_FILES = 64
"""So many small files of a topic become one: about 30 rounds."""
UNUSED_AFTER_MS = 86_400_000
"""A day: somebody may be reading an older state, or writing a file that no snapshot knows yet."""


def merge_evidence(table: TopicTable, platform: Platform) -> int:
    """Merges the topic's files in the evidence table where there are many, and removes files that nothing refers to any
    more. Returns how many were merged; 0 where another writer was faster.

    Where the table's last snapshot says that it has few files in all, no list of files is read.
    """
    name = quoted(f"{platform.catalog.name}.{platform.catalog.namespace}.{EVIDENCE}")
    if not table.spark.catalog.tableExists(name):
        return 0
    evidence = iceberg_table(table.spark, name)
    if files_in_all(evidence) < MIN_FILES:
        return 0
    of_topic = table.jvm.org.apache.iceberg.expressions.Expressions.equal("topic", table.topic.topic)
    merged = 0
    try:
        merged = merge_beside(table, name, of_topic, MIN_FILES)
        if merged:
            _remove_unused(table, platform, name)
    except ConflictError as e:
        logger.warning("the rest of the evidence is left for the next time: %s", e)
    except TableError as e:
        logger.warning("no file of the evidence is removed: %s", e)
    return merged


def files_in_all(iceberg: Any) -> int:
    """Returns how many data files a table has by its last snapshot's summary."""
    snapshot = iceberg.currentSnapshot()
    return 0 if snapshot is None else int(snapshot.summary().get("total-data-files") or 0)


def _remove_unused(table: TopicTable, platform: Platform, name: str) -> None:
    """Removes the files that no snapshot uses, with those that PyIceberg's expiry leaves behind. Raises TableError, and
    removes none, where some could be another table's."""
    catalog = open_catalog(platform, os.environ)
    seen = catalog.load_table(f"{platform.catalog.namespace}.{EVIDENCE}")
    require_separate_folder(catalog, platform, seen)
    require_inner_files(EVIDENCE, seen.location(), named_by_metadata(seen))
    before_ms, load = int(time.time() * 1000) - UNUSED_AFTER_MS, partial(iceberg_table, table.spark, name)
    past_unreadable(load, before_ms, partial(require_own_files, table.spark, name, seen.location()))
    since_ms = oldest_own_file_ms(seen)
    expire_snapshots(table.spark, load, before_ms, seen.location())
    remove_orphans(table.spark, load(), before_ms, seen.location(), since_ms)

"""Reclaim space when it is due: rewrite files with many deleted records, merge small files, expire snapshots.

A group of neighbouring files becomes one file, or a few of the table's target size, in offset order and without the
deleted records.

1. A pyarrow task (spark_jobs.engine.rewrite_task) rewrites a batch of groups, and one commit swaps the files. If the
   task refuses a group, Spark rewrites it on a branch (staged_rewrites).
2. If another writer changed a file of a batch, its groups are rewritten and swapped one by one. Only the changed group
   waits for the next run.
3. After a killed run, finished batches stay done and the others are unchanged. Orphan files remain.

Deleted rows of a topic's side tables leave the disk by the same rules. Small files of side tables and of the evidence
are merged, because a run may append one or two, and a page opens them all. Files of other topics stay, and their rounds
may append meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from pyspark.sql import functions as F

from cleantail.config.topic_table import (
    ERASED_KEYS,
    ERASURES,
    EVIDENCE,
    LARGE_METADATA,
    PARTITION,
    SMALL_METADATA,
    quoted,
)
from cleantail.errors import CleantailError, ConflictError, TableError
from cleantail.human import counted
from cleantail.lake.catalogs import kept_catalog, load_table, open_catalog, side_tables
from cleantail.lake.evaluate import expiry_clock_ms, read_facts
from cleantail.lake.foreign_errors import explained
from cleantail.lake.neighbours import (
    may_delete_files,
    named_by_metadata,
    require_inner_files,
    require_separate_folder,
)
from cleantail.lake.reclaim_plan import kept_number, resolve_reclaim, rewrite_batches
from cleantail.lake.recorded_rounds import load_evidence
from cleantail.lake.storage_locations import (
    keep_first_metadata,
    oldest_own_file_ms,
    require_safe_commits,
    stored_bytes,
)
from cleantail.log.task_shares import parallelism
from cleantail.rounds.commit_summaries import OPERATION, RECLAIM
from cleantail.rounds.run_plan import Group
from cleantail.rounds.station_results import PROPERTY_STORED, STORED_JSON, ReclaimResult, RewrittenFiles, StoredBytes
from spark_jobs.engine.written_files import RefusedError
from spark_jobs.iceberg.commits import Replacement, change_properties, drop_branches, replace_files
from spark_jobs.iceberg.file_removal import (
    REWRITING,
    actions_of,
    expire_snapshots,
    past_unreadable,
    remove_orphans,
    require_own_files,
)
from spark_jobs.iceberg.iceberg_reads import asked_again, iceberg_table
from spark_jobs.iceberg.java_calls import each, texts
from spark_jobs.iceberg.tables import STALE_BRANCH_S, TopicTable, created_at_s
from spark_jobs.quality.data_docs import remove_results, stored_results_bytes
from spark_jobs.round.evidence import append_reclaim, summarize_days
from spark_jobs.round.released_logs import note_rewritten
from spark_jobs.round.staged_rewrites import Plans, Staged, drop_staged, merge_small_files, stage

logger = logging.getLogger("cleantail.reclaim")

MIN_FILES = 64
"""Minimum number of small files to merge: of a log in a side table, or of a topic in the evidence."""
UNUSED_AFTER_MS = 86_400_000
"""Minimum age of removed files, a day: a reader may use an older snapshot, or a writer may not have committed yet."""


def merge_files_of(table: TopicTable, of: str) -> int:
    """Merge the topic's files in a table of Cleantail's own, such as the evidence, if there are many, and remove unused
    files. `of`: the table's name without the namespace.

    Returns the number of merged files. Reads no file list if the table has few files.
    """
    name = quoted(f"{table.platform.catalog.name}.{table.platform.catalog.namespace}.{of}")
    merged = 0
    with _left_to_the_next_run(of):
        if not table.spark.catalog.tableExists(name):
            return 0
        snapshot = iceberg_table(table.spark, name).currentSnapshot()
        if snapshot is None or int(snapshot.summary().get("total-data-files") or 0) < MIN_FILES:
            return 0
        of_topic = table.jvm.org.apache.iceberg.expressions.Expressions.equal("topic", table.topic.topic)
        merged = merge_small_files(table, name, of_topic, MIN_FILES)
        if merged:
            remove_unused_of(table, of)
    return merged


@contextmanager
def _left_to_the_next_run(of: str) -> Iterator[None]:
    """Only warn about an error of a table of Cleantail's own, such as a commit of another writer.

    Its files can wait, and the topic's own table must be reclaimed."""
    try:
        yield
    except Exception as e:
        error = e if isinstance(e, CleantailError) else explained(e)
        if error is None:
            raise
        logger.warning("files of %s are left to the next run: %s", of, error)


def remove_unused_of(table: TopicTable, of: str) -> None:
    """Remove the files that no snapshot of a table of Cleantail's own uses, including those that PyIceberg's expiry
    leaves. Only warns, and removes no file, if one could belong to another table."""
    catalog, own = open_catalog(table.platform), f"{table.platform.catalog.namespace}.{of}"
    seen, name = catalog.load_table(own), quoted(f"{table.platform.catalog.name}.{own}")
    before_ms, load = int(time.time() * 1000) - UNUSED_AFTER_MS, partial(iceberg_table, table.spark, name)
    with _left_to_the_next_run(of):
        require_separate_folder(catalog, table.platform, seen)
        require_inner_files(of, seen.location(), named_by_metadata(seen))
        past_unreadable(load, before_ms, partial(require_own_files, table.spark, name, seen.location()))
        since_ms = oldest_own_file_ms(seen)
        keep_first_metadata(seen)
        expire_snapshots(table.spark, load, before_ms, seen.location())
        remove_orphans(table.spark, load(), before_ms, seen.location(), since_ms)


def reclaim_side_tables(table: TopicTable, oldest_ms: int, orphans_before_ms: int) -> tuple[int, int]:
    """Rewrite files with deleted rows, merge small files, expire snapshots older than `oldest_ms`, remove orphans older
    than `orphans_before_ms`. Returns the numbers of expired snapshots and of removed files.

    Only warns if a side table shares its folder with another table: the topic's own table is reclaimed anyway."""
    snapshots = orphans = 0
    for suffix, seen in side_tables(table.topic).items():
        name = f"{table.name[:-1]}{suffix}`"
        if not may_delete_files(seen.properties):
            continue
        load = partial(iceberg_table, table.spark, name)
        try:
            since_ms = past_unreadable(load, oldest_ms, partial(require_own_side, table, seen, name))
        except (TableError, ConflictError) as e:
            logger.warning("no file of %s is removed: %s", name, e)
            continue
        before_s = time.time() - STALE_BRANCH_S
        drop_branches(load, [b for b in map(str, each(load().refs().keySet())) if created_at_s(b) < before_s])
        if lacks := {key: value for key, value in SMALL_METADATA.items() if key not in seen.properties}:
            change_properties(load, lacks)
        _rewrite_side(table, name, load())
        snapshots += expire_snapshots(table.spark, load, oldest_ms, seen.location())
        orphans += remove_orphans(table.spark, load(), orphans_before_ms, seen.location(), since_ms)
    return snapshots, orphans


def require_own_side(table: TopicTable, seen: Any, name: str) -> int | None:
    """Check that the side table's files are its own. Returns the time (Unix ms) of its oldest file."""
    plain = ".".join(seen.name()[-2:])
    require_separate_folder(open_catalog(table.platform), table.platform, seen)
    require_safe_commits(seen)
    require_inner_files(plain, seen.location(), named_by_metadata(seen))
    require_own_files(table.spark, name, seen.location())
    since_ms = oldest_own_file_ms(seen)
    keep_first_metadata(seen)
    return since_ms


def _rewrite_side(table: TopicTable, name: str, iceberg: Any) -> None:
    """Rewrite files with deleted rows, which delete files only hide. Merge a log's small files if there are many."""
    summary = {} if (current := iceberg.currentSnapshot()) is None else texts(current.summary())
    try:
        if int(summary.get("total-delete-files", 0)) > 0:
            merge_small_files(table, name, None, 1)
        if int(summary.get("total-data-files", 0)) >= MIN_FILES:
            logs = table.spark.table(f"{name}.partitions").where(F.col("file_count") >= MIN_FILES)
            for row in asked_again(logs.select(F.col(f"partition.{PARTITION}")).collect):
                of_log = table.jvm.org.apache.iceberg.expressions.Expressions.equal(PARTITION, row[0])
                merge_small_files(table, name, of_log, MIN_FILES)
        return
    except ConflictError as e:  # position deletes that cover several files, or equality deletes
        logger.info("Iceberg's own action rewrites %s: %s", name, e)
    rewrite = actions_of(table.spark).rewriteDataFiles(iceberg).binPack().option("delete-file-threshold", "1")
    with REWRITING:
        rewrite.option("min-input-files", "1").option("remove-dangling-deletes", "true").execute()
    asked_again(iceberg.refresh)


Batch = Sequence[Group]
AHEAD = 2
"""Maximum number of batches per core that wait for their swap."""


def rewrite_groups(table: TopicTable, groups: Sequence[Group]) -> Iterator[RewrittenFiles]:
    """Rewrite the groups, a batch in each Spark task, and yield the files swapped on `main`. One task per core runs at
    a time. After an error, no batch starts and staged files are dropped."""
    cores, plans, numbers = parallelism(table.platform.spark), Plans(table, groups), count()
    waiting, batches = deque[tuple[Batch, Future[Staged]]](), iter(rewrite_batches(groups))

    def staged_now(batch: Batch) -> Staged:
        return stage(table, batch, plans, next(numbers))

    with ThreadPoolExecutor(cores) as threads:
        try:
            while True:
                while len(waiting) < AHEAD * cores and (begun := next(batches, None)):
                    waiting.append((begun, threads.submit(staged_now, begun)))
                if not waiting:
                    return
                batch, staged = waiting.popleft()
                yield from _swapped(table, batch, staged.result, staged_now)
        except BaseException:
            threads.shutdown(cancel_futures=True)
            for _, staged in waiting:
                if not staged.cancelled() and staged.exception() is None:
                    drop_staged(table, staged.result())
            raise


def _swapped(
    table: TopicTable, batch: Batch, staged: Callable[[], Staged], stage_now: Callable[[Batch], Staged]
) -> Iterator[RewrittenFiles]:
    """Swap a batch. If that fails, stage and swap each of its groups alone."""
    try:
        yield swap(table, batch, staged())
    except (ConflictError, RefusedError) as e:
        if len(batch) == 1:
            logger.warning("left for the next run: %s: %s", counted(len(batch[0]), "file"), e)
            return
        logger.info("%s are rewritten one by one: %s", counted(len(batch), "group"), e)
        for group in batch:
            yield from _swapped(table, [group], partial(stage_now, [group]), stage_now)


def swap(table: TopicTable, batch: Batch, staged: Staged) -> RewrittenFiles:
    """Replace the old files by the new. If another writer was faster, delete the new files: ConflictError."""
    tasks = [file.task for file in staged.old]
    old = [(task.file(), list(each(task.deletes()))) for task in tasks]
    replacement = Replacement(kept_number(batch[0]), old, staged.new)
    try:
        branches = () if staged.branch is None else (staged.branch,)
        made = replace_files(table, replacement, staged.snapshot_id, {OPERATION: RECLAIM}, branches=branches)
    except ConflictError:
        drop_staged(table, staged)
        raise
    # After any other error `main` may have the new files, so they stay.
    removed, added = (int(made.get(name) or 0) for name in ("removed-files-size", "added-files-size"))
    return RewrittenFiles(len(staged.old), len(staged.new), max(removed - added, 0))


MIN_ORPHAN_AGE_MS = 86_400_000
"""Iceberg refuses to remove orphans younger than a day: they may belong to an open commit."""


def reclaim_topic(table: TopicTable, now_ms: int, by_person: bool = False) -> ReclaimResult:
    """Do the work that resolve_reclaim finds due, with the same `by_person`.

    Groups that another writer changed wait for the next run.

    Raises TableError, with the table unchanged, if a file to delete could belong to another table.

    1. The side tables are reclaimed, also if no work is due in the table itself.
    2. Unneeded branches are dropped: those of killed runs, and of failed rounds past their retention.
    3. Groups of files are rewritten. A row of evidence records the freed bytes, also if a later group fails.
    4. Small files of the evidence are merged if there are many.
    5. Snapshots past their retention expire. Orphans are removed only if some do, because listing files each time would
       cost more than a round of a small topic. For the same reason, results, Data Docs and rows of evidence past
       cleantail.evidence.retention.ms are removed only then. After rows of evidence, unused files of the evidence are
       removed too.

    An error of the evidence is only a warning, and its files wait for the next run.
    """
    if table.exists():
        note_rewritten(table, now_ms)
    facts, clock_ms = read_facts(table.topic), int(time.time() * 1000)
    until_ms = expiry_clock_ms(table.platform, now_ms, clock_ms)
    plan = resolve_reclaim(facts, table.topic.config, until_ms, by_person)
    result = ReclaimResult((plan.reason,), failed_branches_dropped=len(plan.branches))
    if facts is None:
        return result
    oldest_ms = until_ms - table.topic.config.cleantail_snapshot_retention_ms
    # The file system dates files by the real clock. By a later clock, files of an open commit would seem old.
    orphan_age_ms = max(table.topic.config.cleantail_orphan_retention_ms, MIN_ORPHAN_AGE_MS)
    orphans_before_ms = min(now_ms, clock_ms) - orphan_age_ms
    snapshots, orphans = reclaim_side_tables(table, oldest_ms, orphans_before_ms)
    result = replace(result, side_snapshots_expired=snapshots, side_orphans_removed=orphans)
    if not plan.due:
        return result
    folder = past_unreadable(table.load, oldest_ms, partial(require_own, table)) if plan.expired_snapshots else None
    table.drop_stale_branches()
    table.drop_branches(plan.branches)
    _shrink_metadata(table)
    try:
        for rewritten in rewrite_groups(table, plan.groups):
            result = result.with_files(rewritten)
    finally:
        if result.reclaimed_bytes > 0:
            append_reclaim(table, result.reclaimed_bytes, now_ms)
    for of in (ERASURES, ERASED_KEYS):
        merge_files_of(table, of)
    result = replace(result, evidence_files_merged=merge_files_of(table, EVIDENCE))
    if folder is None:
        return result
    result = replace(result, results_removed=remove_results(table.topic, until_ms))
    expired = expire_snapshots(table.spark, table, oldest_ms, folder.location, _stored(table, clock_ms))
    removed = remove_orphans(table.spark, table.load(), orphans_before_ms, folder.location, folder.since_ms)
    reasons = (*result.reasons, folder.kept) if folder.kept else result.reasons
    result = replace(result, reasons=reasons, expired_snapshots=expired, orphans_removed=removed)
    with _left_to_the_next_run(EVIDENCE):
        if summarized := summarize_days(table, until_ms):
            remove_unused_of(table, EVIDENCE)
            result = replace(result, evidence_rows_summarized=summarized)
    return result


def _stored(table: TopicTable, at_ms: int) -> dict[str, str]:
    """Return the property with the topic's bytes. An error is only logged: a metric must not stop a reclaim."""
    try:
        catalog = kept_catalog(table.platform)
        seen, evidence = load_table(catalog, table.topic), load_evidence(catalog, table.platform)
        metadata, data = stored_bytes(seen) if seen is not None else (0, 0)
        snapshot = evidence.current_snapshot() if evidence is not None else None
        summary = snapshot.summary if snapshot is not None else None
        of_evidence = int(summary.get("total-files-size") or 0) if summary is not None else 0
        found = StoredBytes(at_ms, data, metadata, stored_results_bytes(table.topic), of_evidence)
    except Exception as e:  # each store has its own errors
        logger.warning("the stored bytes of %s were not measured: %s", table.topic.table, type(e).__name__)
        return {}
    return {PROPERTY_STORED: STORED_JSON.text(found)}


def _shrink_metadata(table: TopicTable) -> None:
    """Replace LARGE_METADATA of a topic table by SMALL_METADATA. Other values stay: a user has set them."""
    there = texts(table.load().properties())
    large = [name for name, values in LARGE_METADATA.items() if there.get(name) in values]
    if table.topic.columns is None and large:
        table.set_properties({name: SMALL_METADATA[name] for name in large})


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """The folder of a table. `since_ms`: time (Unix ms) of its oldest file, None if orphans must stay. `kept`: why they
    stay, may be empty."""

    location: str
    since_ms: int | None
    kept: str = ""


def require_own(table: TopicTable) -> OwnFolder:
    """Return the table's folder. Raises TableError if another table shares it, or the table names files outside it.

    Another user chose an adopted table's folder. Its orphans are removed only if the topic's YAML allows that and the
    catalogs list all their tables.
    """
    catalog = open_catalog(table.platform)
    seen = load_table(catalog, table.topic)
    if seen is None:
        raise TableError(f"table {table.topic.table} was dropped")
    if not may_delete_files(seen.properties):
        return OwnFolder(seen.location(), None)
    unseen = require_separate_folder(catalog, table.platform, seen)
    since_ms = oldest_own_file_ms(seen)
    require_safe_commits(seen)
    require_inner_files(table.topic.table, seen.location(), named_by_metadata(seen))
    require_own_files(table.spark, table.name, seen.location())
    if table.topic.columns is None:
        if unseen:
            logger.warning("%s: their folders are not known", unseen)
        keep_first_metadata(seen)
        return OwnFolder(seen.location(), since_ms)
    if table.topic.config.cleantail_adopted_orphans == "keep":
        kept = "orphan files stay in the folder of an adopted table: cleantail.adopted.orphans is keep"
        return OwnFolder(seen.location(), None, kept)
    if unseen:
        return OwnFolder(seen.location(), None, f"{unseen}: no orphans are removed")
    return OwnFolder(seen.location(), since_ms)

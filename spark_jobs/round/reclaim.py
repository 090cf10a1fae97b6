"""Reclaim space when it is due: rewrite files with many deleted records, merge small ones, expire snapshots.

A group of neighbouring files becomes one, or a few of the table's target size, in offset order, without the deleted
records. A killed run leaves finished groups done and the rest as it was.

1. A batch of groups is rewritten by a task of spark_jobs.engine.rewrite_task, which reads and writes with pyarrow, and
   swapped in one commit. A group that such a task refuses is rewritten by Spark onto a branch (staged_rewrites).
2. Where another writer has changed a file of a batch meanwhile, its groups are rewritten and swapped one by one: only
   the changed one is left for the next run.
3. A killed run leaves finished batches done, the rest as it was, and files that no snapshot knows.

What was deleted from a topic's side tables leaves the disk by the same rules. The evidence is kept quick to read: each
round appends two small files, and a page opens all files of its topic. Iceberg's own actions merge them: rows stay as
they are, files of other topics too, and rounds may append meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import EVIDENCE, quoted
from cleantail.errors import ConflictError, TableError
from cleantail.human import counted
from cleantail.lake.catalogs import load_table, open_catalog, side_tables
from cleantail.lake.evaluate import expiry_ms, read_facts
from cleantail.lake.neighbours import (
    may_delete_files,
    named_by_metadata,
    require_inner_files,
    require_separate_folder,
)
from cleantail.lake.run_plan import Group, kept_number, resolve_reclaim, rewrite_batches
from cleantail.lake.storage_locations import oldest_own_file_ms, require_safe_commits
from cleantail.log.task_shares import parallelism
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.station_results import ReclaimResult, RewrittenFiles
from spark_jobs.engine.written_files import RefusedError
from spark_jobs.iceberg.commits import drop_branches, replace_files
from spark_jobs.iceberg.file_removal import (
    REWRITING,
    actions_of,
    expire_snapshots,
    past_unreadable,
    remove_orphans,
    require_own_files,
)
from spark_jobs.iceberg.iceberg_reads import iceberg_table
from spark_jobs.iceberg.jvm.java_collections import each, elements_of
from spark_jobs.iceberg.jvm.many_calls import ask
from spark_jobs.iceberg.tables import STALE_BRANCH_S, TopicTable, created_at_s
from spark_jobs.round.evidence import append_reclaim
from spark_jobs.round.released_logs import note_rewritten
from spark_jobs.round.staged_rewrites import Plans, Staged, drop_staged, merge_beside, stage

logger = logging.getLogger("cleantail.reclaim")

MIN_FILES = 64
"""So many small files of a topic become one: about 30 rounds."""
UNUSED_AFTER_MS = 86_400_000
"""A day: somebody may be reading an older state, or writing a file that no snapshot knows yet."""


def merge_evidence(table: TopicTable) -> int:
    """Merges the topic's files in the evidence table where there are many, and removes files that nothing refers to any
    more. Returns how many were merged; 0 where another writer was faster.

    Where the table's last snapshot says that it has few files in all, no list of files is read.
    """
    name = quoted(f"{table.platform.catalog.name}.{table.platform.catalog.namespace}.{EVIDENCE}")
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
            _remove_unused(table, name)
    except ConflictError as e:
        logger.warning("the rest of the evidence is left for the next time: %s", e)
    except TableError as e:
        logger.warning("no file of the evidence is removed: %s", e)
    return merged


def files_in_all(iceberg: Any) -> int:
    """Returns how many data files a table has by its last snapshot's summary."""
    snapshot = iceberg.currentSnapshot()
    return 0 if snapshot is None else int(snapshot.summary().get("total-data-files") or 0)


def _remove_unused(table: TopicTable, name: str) -> None:
    """Removes the files that no snapshot uses, with those that PyIceberg's expiry leaves behind. Raises TableError, and
    removes none, where some could be another table's."""
    catalog = open_catalog(table.platform)
    seen = catalog.load_table(f"{table.platform.catalog.namespace}.{EVIDENCE}")
    require_separate_folder(catalog, table.platform, seen)
    require_inner_files(EVIDENCE, seen.location(), named_by_metadata(seen))
    before_ms, load = int(time.time() * 1000) - UNUSED_AFTER_MS, partial(iceberg_table, table.spark, name)
    past_unreadable(load, before_ms, partial(require_own_files, table.spark, name, seen.location()))
    since_ms = oldest_own_file_ms(seen)
    expire_snapshots(table.spark, load, before_ms, seen.location())
    remove_orphans(table.spark, load(), before_ms, seen.location(), since_ms)


def reclaim_side_tables(table: TopicTable, oldest_ms: int, orphans_before_ms: int) -> tuple[int, int]:
    """Rewrites files of which rows were deleted, expires snapshots older than `oldest_ms`, and removes files that no
    snapshot knows and that are older than `orphans_before_ms`. One that shares its place with another table is left
    alone, with a warning: the topic's own table is not to wait for it. Returns how many snapshots expired, and how
    many files were removed."""
    snapshots = orphans = 0
    for suffix, seen in side_tables(table.topic).items():
        name = f"{table.name[:-1]}{suffix}`"
        if not may_delete_files(seen.properties):
            continue
        load = partial(iceberg_table, table.spark, name)
        try:
            since_ms = past_unreadable(load, oldest_ms, partial(_require_own, table, seen, name))
        except TableError as e:
            logger.warning("no file of %s is removed: %s", name, e)
            continue
        before_s = time.time() - STALE_BRANCH_S
        drop_branches(load, [b for b in map(str, each(load().refs().keySet())) if created_at_s(b) < before_s])
        _rewrite_deleted(table, name, load())
        snapshots += expire_snapshots(table.spark, load, oldest_ms, seen.location())
        orphans += remove_orphans(table.spark, load(), orphans_before_ms, seen.location(), since_ms)
    return snapshots, orphans


def _require_own(table: TopicTable, seen: Any, name: str) -> int | None:
    """Returns when (Unix ms) the side table was made."""
    plain = ".".join(seen.name()[-2:])
    require_separate_folder(open_catalog(table.platform), table.platform, seen)
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


Batch = Sequence[Group]
AHEAD = 2
"""So many batches for each core are rewritten before their turn to be swapped comes."""


def rewrite_groups(table: TopicTable, groups: Sequence[Group]) -> Iterator[RewrittenFiles]:
    """Rewrites the groups and yields what was swapped on `main`. A task of Spark rewrites a batch of them; as many are
    under way as there are cores. After an error none is begun any more, and what was staged is dropped."""
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
    """Yields what was swapped. Where the groups of a batch could not be swapped together, each is staged anew and
    swapped alone."""
    try:
        yield swap(table, batch, staged())
    except (ConflictError, RefusedError) as e:
        if len(batch) == 1:
            logger.warning("%s is left for the next run: %s", counted(len(batch[0]), "file"), e)
            return
        logger.info("%s are rewritten one by one: %s", counted(len(batch), "group"), e)
        for group in batch:
            yield from _swapped(table, [group], partial(stage_now, [group]), stage_now)


def swap(table: TopicTable, batch: Batch, staged: Staged) -> RewrittenFiles:
    """Puts the new files in the old ones' place. Raises ConflictError, with the new files deleted, where another writer
    was faster."""
    tasks = [file.task for file in staged.old]
    old = list(zip(ask(tasks, "file"), elements_of(ask(tasks, "deletes")), strict=True))
    summary = {OPERATION: "reclaim"}
    try:
        made = replace_files(table, staged.new, old, staged.snapshot_id, kept_number(batch[0]), summary)
    except ConflictError:
        drop_staged(table, staged)
        raise
    # after any other error `main` may have the files: they are left
    if staged.branch is not None:
        table.drop_branches([staged.branch])
    return RewrittenFiles(len(staged.old), len(staged.new), _freed_bytes(made))


def _freed_bytes(summary: Mapping[str, str]) -> int:
    """Returns by how much a rewrite made the data files smaller; 0 where it did not."""
    sizes = [int(summary.get(name) or 0) for name in ("removed-files-size", "added-files-size")]
    return max(sizes[0] - sizes[1], 0)


MIN_ORPHAN_AGE_MS = 86_400_000
"""Iceberg refuses to remove orphans younger than a day: they may belong to a commit under way."""


def reclaim_topic(table: TopicTable, now_ms: int) -> ReclaimResult:
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
    facts, clock_ms = read_facts(table.topic), int(time.time() * 1000)
    until_ms = expiry_ms(table.platform, now_ms, clock_ms)
    plan = resolve_reclaim(facts, table.topic.config, until_ms)
    result = ReclaimResult((plan.reason,), failed_branches_dropped=len(plan.branches))
    if facts is None:
        return result
    ages = Ages.of(table.topic.config, until_ms, min(now_ms, clock_ms))
    snapshots, orphans = reclaim_side_tables(table, ages.oldest_ms, ages.orphans_before_ms)
    result = replace(result, side_snapshots_expired=snapshots, side_orphans_removed=orphans)
    if not plan.due:
        return result
    own = partial(require_own, table)
    folder = past_unreadable(table.load, ages.oldest_ms, own) if plan.expired_snapshots else None
    table.drop_stale_branches()
    table.drop_branches(plan.branches)
    try:
        for rewritten in rewrite_groups(table, plan.groups):
            result = result.with_files(rewritten)
    finally:
        if result.reclaimed_bytes > 0:
            append_reclaim(table, result.reclaimed_bytes, now_ms)
    result = replace(result, evidence_files_merged=merge_evidence(table))
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


def require_own(table: TopicTable) -> OwnFolder:
    """Returns the table's folder. Raises TableError where it is shared with another table, or where the table names
    files beyond its folder.

    Another user chose an adopted table's folder. No file there counts as an orphan unless the topic's YAML says so, and
    the catalogs show all of their tables.
    """
    catalog = open_catalog(table.platform)
    seen = load_table(catalog, table.topic)
    if seen is None:
        raise TableError(f"table {table.topic.table} is gone")
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
        return OwnFolder(seen.location(), since_ms)
    if table.topic.config.cleantail_adopted_orphans == "keep":
        return OwnFolder(seen.location(), None, KEPT)
    if unseen:
        return OwnFolder(seen.location(), None, f"{unseen}: no orphans are removed")
    return OwnFolder(seen.location(), since_ms)

"""Expire snapshots of a table, and delete files that no snapshot names.

Iceberg only finds the files here; this module deletes them. A path outside the table's own location stays, even if
the table's metadata name it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from cleantail.errors import ConflictError, OvertakenError, TableError, UnknownCommitError
from cleantail.lake.neighbours import may_delete_files, require_inner_files
from cleantail.lake.storage_locations import FIRST_METADATA, files_outside, location_of, surely_inside, table_folders
from spark_jobs.iceberg.commits import Committed, Load, conflict, require_same_main, send
from spark_jobs.iceberg.iceberg_reads import asked_again, on_local_disk
from spark_jobs.iceberg.java_calls import each, entries, texts

logger = logging.getLogger("cleantail.file_removal")
T = TypeVar("T")
ACTION_TRIES = 4
REWRITING = Lock()
"""Lock during a rewrite by Iceberg's own action. The action's first use in a JVM registers a catalog of rewrites, which
two threads cannot do at the same time."""


def require_own_files(spark: SparkSession, name: str, location: str) -> None:
    """Raise TableError if any snapshot of the table names a file outside its location. One query of Spark reads one
    file of each folder, and each file whose name has a percent sign."""
    named = f"SELECT file_path AS path FROM {name}.all_files UNION ALL SELECT path FROM {name}.all_manifests"
    folder, file = "regexp_extract(path, '^(.*/)[^/]*$', 1)", "substring_index(path, '/', -1)"
    odd = f"if(instr({file}, '%') > 0, {file}, '')"
    query = f"SELECT min(path) AS path FROM ({named}) GROUP BY {folder}, {odd}"
    rows = asked_again(lambda: spark.sql(query).collect())
    require_inner_files(name.replace("`", "").partition(".")[2], location, (row["path"] for row in rows))


def expire_snapshots(
    spark: SparkSession, to: Committed | Load, older_than_ms: int, location: str, noted: Mapping[str, str] | None = None
) -> int:
    """Expire snapshots older than `older_than_ms`, and return their number. `to`: as in send.

    The current snapshot of each branch stays. If the table's `gc.enabled` is false, none expires. `location` is the
    table's location when it was checked: another user may have moved it since. `noted`: properties that the commit
    sets, if any snapshot expires.

    Cleantail makes the commit (spark_jobs.iceberg.commits). Iceberg's action then compares the table as loaded before
    with the current table, and returns the files that only expired snapshots have.
    """
    load = to if callable(to) else to.load
    before = [load() for _ in range(ACTION_TRIES)]
    if not may_delete_files(texts(before[0].properties())):
        return 0
    there = {int(snapshot.snapshotId()) for snapshot in each(before[0].snapshots())}

    def stage(iceberg: Any, transaction: Any) -> None:
        expiry = transaction.expireSnapshots().expireOlderThan(max(older_than_ms, 0)).retainLast(1)
        expiry.cleanExpiredFiles(False).commit()
        if not transaction.currentMetadata().changes().isEmpty():
            require_same_main(_jvm(spark), transaction)
            update = transaction.updateProperties()
            for name, value in (noted or {}).items():
                update.set(name, value)
            update.commit()

    left = {int(snapshot.snapshotId()) for snapshot in each(send(to, stage).snapshots())}
    if gone := there - left:
        expired = _with_next(before, lambda table: _files_of_expired(spark, table))
        _delete(spark, before[0], expired, location)
    return len(gone)


def forget_snapshots(load: Load, snapshots: Iterable[int], refs: Mapping[str, int]) -> None:
    """Drop these branches and tags, and expire these snapshots, in one commit that deletes no file. Raises
    ConflictError if a branch or tag has moved to another snapshot than the one in `refs`."""
    gone = sorted(snapshots)

    def stage(iceberg: Any, transaction: Any) -> None:
        there = entries(iceberg.refs())
        if moved := [n for n in refs if n in there and int(there[n].snapshotId()) != refs[n]]:
            raise ConflictError(f"{moved[0]} of {iceberg.name()} was moved meanwhile")
        if dropped := there.keys() & refs.keys():
            manage = transaction.manageSnapshots()
            for name in sorted(dropped):
                manage = (manage.removeBranch if there[name].isBranch() else manage.removeTag)(name)
            manage.commit()
        if left := [snapshot_id for snapshot_id in gone if iceberg.snapshot(snapshot_id) is not None]:
            # no other snapshot expires by its age
            expiry = transaction.expireSnapshots().cleanExpiredFiles(False).expireOlderThan(0)
            for snapshot_id in left:
                expiry = expiry.expireSnapshotId(snapshot_id)
            expiry.commit()

    send(load, stage)


def delete_unreached(spark: SparkSession, table: Any, paths: Iterable[str], location: str) -> None:
    """Delete files that the caller has seen in the table, and that its metadata no longer reach."""
    _delete(spark, table, ((path, "erased") for path in paths), location)


def _files_of_expired(spark: SparkSession, before: Any) -> list[tuple[str, str]]:
    """Return path and kind of the files that `before` has and the table no longer has."""
    action = actions_of(spark).expireSnapshots(before).expireOlderThan(0).retainLast(1)
    files = DataFrame(action.expireFiles().toDF(), spark).select("path", "type").distinct().collect()
    return [(row["path"], row["type"]) for row in files]


def _with_next(tables: Iterable[Any], action: Callable[[Any], T]) -> T:
    """Return the action's result for the first table for which the catalog answers."""
    *few, last = tables
    for table in few:
        try:
            return action(table)
        except Py4JJavaError as e:
            if not isinstance(conflict(e), OvertakenError | UnknownCommitError):
                raise
    return action(last)


def past_unreadable(load: Load, older_than_ms: int, action: Callable[[], T]) -> T:
    """Return the action's result. If a metadata file is missing, remove unreadable snapshots, and run the action again.

    Two kinds of snapshots are removed and named in a warning. No branch or tag leads to the first kind. The second kind
    is older than `older_than_ms` and not the head of a branch or tag. Raises the action's error if no such snapshot
    exists, and TableError if the head of a branch or tag is unreadable.
    """
    try:
        return action()
    except Exception as e:
        if "NotFoundException" not in str(e) or not _forget_unreadable(load, older_than_ms):
            raise
    return action()


def _forget_unreadable(load: Load, older_than_ms: int) -> list[int]:
    iceberg = load()
    heads = {int(ref.snapshotId()): name for name, ref in entries(iceberg.refs()).items()}
    held, waiting = set[int](), list(heads)
    while waiting:
        snapshot = iceberg.snapshot(waiting.pop())
        if snapshot is not None and int(snapshot.snapshotId()) not in held:
            held.add(int(snapshot.snapshotId()))
            waiting += [] if snapshot.parentId() is None else [int(snapshot.parentId())]
    unreadable = [s for s in each(iceberg.snapshots()) if not _is_readable(iceberg, s)]
    for snapshot in unreadable:
        if name := heads.get(int(snapshot.snapshotId())):
            raise TableError(
                f"snapshot {snapshot.snapshotId()} of {iceberg.name()} cannot be read: files of its metadata are "
                f"missing. Branch or tag {name} points to it: drop it, or restore the files. Nothing was deleted"
            )
    gone = [
        number
        for snapshot in unreadable
        if (number := int(snapshot.snapshotId())) not in held or int(snapshot.timestampMillis()) < older_than_ms
    ]
    if gone:
        logger.warning("%s: snapshots %s cannot be read, and are removed", iceberg.name(), gone)

        def stage(_: Any, transaction: Any) -> None:
            expiry = transaction.expireSnapshots().cleanExpiredFiles(False)
            for number in gone:
                expiry = expiry.expireSnapshotId(number)
            expiry.commit()

        send(load, stage)
    return gone


def _is_readable(table: Any, snapshot: Any) -> bool:
    """Return whether the snapshot's manifest list, and all manifests that it names, exist."""
    io = table.io()
    if not io.newInputFile(snapshot.manifestListLocation()).exists():
        return False
    return all(io.newInputFile(manifest.path()).exists() for manifest in each(snapshot.allManifests(io)))


def remove_orphans(spark: SparkSession, table: Any, older_than_ms: int, location: str, since_ms: int | None) -> int:
    """Remove files that no snapshot refers to from the table's own folders, and return their number.

    Killed runs leave such files in `data` and `metadata`. `location` is as in expire_snapshots. Files from before
    `since_ms`, when the table was created, are not its own. No file is removed if `since_ms` is None or `gc.enabled` is
    false. A first metadata file stays: another catalog may have its table (cleantail.lake.storage_locations).
    """
    properties = texts(table.properties())
    if since_ms is None or not may_delete_files(properties):
        return 0
    orphans = [path for path in _orphans(spark, table, older_than_ms) if not FIRST_METADATA.search(path)]
    earlier = set(_orphans(spark, table, since_ms)) if orphans else set()
    folders = table_folders(location, properties)
    inner = [path for path in orphans if any(surely_inside(location_of(path), folder) for folder in folders)]
    if len(inner) < len(orphans):
        logger.warning(
            "%d files below %s are not in the table's folders, and stay", len(orphans) - len(inner), location
        )
    if earlier:
        logger.warning("%d files below %s are older than the table, and stay", len(earlier), location)
    removed = [path for path in inner if path not in earlier]
    _delete(spark, table, ((path, "orphan") for path in removed), location)
    return len(removed)


def _orphans(spark: SparkSession, table: Any, older_than_ms: int) -> list[str]:
    collected = _jvm(spark).java.util.stream.Stream.builder()  # a Consumer of Java that deletes nothing
    action = actions_of(spark).deleteOrphanFiles(table).olderThan(max(older_than_ms, 0)).deleteWith(collected)
    # by Iceberg's own file IO, or for local files by Hadoop
    result = action.usePrefixListing(not on_local_disk(table)).execute()
    return [str(path) for path in each(result.orphanFileLocations())]


def _delete(spark: SparkSession, table: Any, files: Iterable[tuple[str, str]], location: str) -> None:
    """Delete files, in bulk if the store can. A file that is not below the location stays, and a warning names it."""
    by_kind: dict[str, list[str]] = {}
    for path, kind in files:
        by_kind.setdefault(kind, []).append(path)
    jvm = _jvm(spark)
    for kind, paths in by_kind.items():
        foreign = set(files_outside(paths, location))
        for path in sorted(foreign):
            logger.warning("%s is outside the location %s of its table, and stays", path, location)
        if inner := [path for path in paths if path not in foreign]:
            jvm.org.apache.iceberg.CatalogUtil.deleteFiles(table.io(), inner, kind, True)


def actions_of(spark: SparkSession) -> Any:
    return _jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm

"""Commit changes of Iceberg tables through the JVM, and find out which changes the catalog accepted, regardless of its
answer. No other module of the jobs sends a change. Four other modules stage changes (docs/architecture.md, decision 9).

1. A change is staged in a transaction: appends, deletes, rewrites, branches and properties become one metadata file.
2. A change is sent once, and only onto the metadata from which it was staged. Iceberg's own `commit` and
   `commitTransaction` send a change again after a refusal, and delete its manifests. Both are wrong if the catalog
   accepted the first try.
3. After any answer but success, the table is loaded again and searched for the change's own mark: the ids of its
   snapshots. The mark of a change without snapshots is the references and properties that it sets. If the mark is
   found, the change was accepted.
4. If the mark is not found, and another commit came first or the answer is unclear, the change is staged again
   (COMMITS). At most one of two tries on one state can be accepted.
5. If the result stays unclear after all tries, UnknownCommitError is raised. Files of such a change are never deleted.
6. A commit deletes old metadata files only of a topic's own table in Cleantail's own namespace, where only Cleantail
   writes the metadata. `reclaim` deletes files that are surely a table's own. The server of a REST catalog deletes by
   itself. A commit is not sent if the server would delete a file of another table.

A crash leaves the old state or the new one. Appends to `main` meanwhile neither block nor break a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from cleantail.adopt.adoption import VECTORS_VERSION
from cleantail.config.topic import Topic
from cleantail.config.topic_table import COLUMNS
from cleantail.errors import CleantailError, ConflictError, OvertakenError, TableError, UnknownCommitError
from cleantail.lake.neighbours import may_delete_files
from cleantail.lake.storage_locations import DELETES_OLD_METADATA, HEAD_BYTES, require_inner_log, uuid_in
from cleantail.log.partition_state import PROPERTY_DENYLIST, LeftOut, aged_marks, with_left_out
from cleantail.log.source_position import PROPERTY_POSITION
from cleantail.log.work_units import ROUND_BRANCH
from cleantail.retries import COMMITS
from cleantail.rounds.commit_summaries import OPERATION, REGISTERED_ONCE, Commit, writer_entries
from spark_jobs.iceberg.iceberg_reads import (
    SNAPSHOTS,
    BranchChange,
    KeptFile,
    added_by,
    asked_again,
    data_files_of,
    files_with_deletes,
    history,
    identity,
    is_ancestor,
    kinds_of,
    marked,
    on_local_disk,
    properties_after,
    require_history,
    require_own_deletes,
)
from spark_jobs.iceberg.java_calls import RELOCATED, each, entries, static, texts
from spark_jobs.iceberg.log_files import format_version

logger = logging.getLogger("cleantail.commits")
T = TypeVar("T")
Load = Callable[[], Any]
"""Loads an Iceberg `Table` from the catalog."""
UNKNOWN = {
    "CommitStateUnknownException",
    "ServiceUnavailableException",
    "ServiceFailureException",
    "RESTException",
    "UncheckedSQLException",
}
"""Exceptions after which the catalog may have accepted a commit, or may accept it later."""
OVERTAKEN = {"CommitFailedException", "RetryableValidationException"}
"""Exceptions of a commit that may be tried again on the current table. The second means that another commit has taken
row ids meanwhile."""
MARKED = {"AddSnapshot", "SetSnapshotRef", "RemoveSnapshotRef", "RemoveSnapshots", "SetProperties", "RemoveProperties"}
"""Updates of a table's metadata that `_is_taken` can recognize."""
Registrations = Mapping[str, tuple[tuple[int, tuple[tuple[str, int], ...]], ...]]
"""Data file -> (sequence number, its delete files) of each of its registrations, in their order."""


class Committed(Protocol):
    """A topic's table (spark_jobs.iceberg.tables)."""

    @property
    def topic(self) -> Topic: ...

    @property
    def jvm(self) -> Any: ...

    def load(self) -> Any: ...

    def stage_deletes(
        self,
        branch: str,
        base_snapshot_id: int,
        change: BranchChange,
        summary: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> None: ...


# 1. send a change


def send(
    to: Committed | Load,
    stage: Callable[[Any, Any], None],
    refused: Callable[[Py4JJavaError], Exception] | None = None,
) -> Any:
    """Commit the change of `stage`, and return the accepted metadata, or the table's present metadata without a change.

    `to`: a topic's table, or a function that loads another table. `stage`: called with the `Table` and a new
    `Transaction` on it. `refused`: translates an exception of Iceberg (default: `conflict`). Raises the result of
    `refused`, the errors of `stage`, and UnknownCommitError.
    """
    refused, sent = refused or conflict, list[Any]()
    load, deletes_old = (to, False) if callable(to) else (to.load, _is_own(to.topic))

    def once() -> Any:
        try:
            iceberg = load()
            transaction = asked_again(iceberg.newTransaction)
        except (Py4JJavaError, CleantailError) as e:
            raise (_unknown(e) if sent else e) from None
        if (taken := _taken_of(sent, transaction.table())) is not None:
            return taken
        tries = len(sent)
        try:
            stage(iceberg, transaction)
            start, metadata = transaction.startMetadata(), transaction.currentMetadata()
            if metadata.changes().isEmpty():
                return metadata
            operations = transaction.underlyingOps()
            keeps = not deletes_old and can_keep(operations)
            if not keeps:
                _require_own_deletions(iceberg, start, metadata, reads=not deletes_old)
            sent.append(metadata)
            before_commit(iceberg, metadata)
            if keeps:
                commit_and_keep(operations, start, metadata)
            else:
                operations.commit(start, metadata)
            return metadata
        except IllegalArgumentException as e:
            error = void(e)
        except Py4JJavaError as e:
            error = refused(e)
        if len(sent) > tries:
            try:
                taken = _taken_of(sent, load())
            except (Py4JJavaError, CleantailError) as e:
                raise _unknown(e) from None
            if taken is not None:
                return taken
        raise error from None

    return COMMITS.run(once)


DELETING = "org.apache.iceberg.BaseMetastoreTableOperations"
"""The class that commits to a SQL, Hive or Glue catalog. The client of a REST catalog deletes nothing, but its server
may."""


def can_keep(operations: Any) -> bool:
    """Return whether commit_and_keep can commit with these operations."""
    kind, *_ = _steps(operations._gateway_client)
    return bool(kind.isInstance(operations))


def commit_and_keep(operations: Any, start: Any, metadata: Any) -> None:
    """Replace the metadata `start` by `metadata`, without deleting old metadata files. Raises the errors of
    `operations.commit`.

    With `write.metadata.delete-after-commit.enabled` Iceberg's client deletes the files that leave the table's metadata
    log, with the login of this process. The log may name any file, because every writer of the table can change it,
    also between two tries of a commit. Iceberg cannot skip the deletion for one commit, so this function calls the
    steps around it.
    """
    client = operations._gateway_client
    _, swap, refresh = _steps(client)
    for step, arguments in ((swap, (operations, start, metadata)), (refresh, (operations,))):
        values = JavaClass("java.util.ArrayList", client)()
        for value in arguments:
            values.add(value)
        step.invokeWithArguments(values)


@cache
def _steps(client: Any) -> tuple[Any, Any, Any]:
    """Return the class DELETING, and its protected methods that swap the metadata and that invalidate its cached
    metadata. A method handle raises the method's own errors, as a direct call does."""
    kind = JavaClass(DELETING, client)._java_lang_class
    methods = {str(method.getName()): method for method in kind.getDeclaredMethods()}
    lookup = JavaClass("java.lang.invoke.MethodHandles", client).publicLookup()

    def step(name: str) -> Any:
        methods[name].setAccessible(True)
        return lookup.unreflect(methods[name])

    return kind, step("doCommit"), step("requestRefresh")


MORE_EXECUTORS = f"{RELOCATED}.util.concurrent.MoreExecutors"


def new_update(transaction: Any, kind: str) -> Any:
    """Return an update of the table, such as `newRowDelta`, whose commit becomes part of the transaction.

    The commit deletes manifests that it has merged into others: `Transaction` itself does so only in
    `commitTransaction`. On a local disk the thread that commits also reads the manifests. Iceberg would pass each of
    about four steps to other threads, and sleep for 10 ms before it looks whether they are done.
    """
    staged = transaction.table()
    table = JavaClass("org.apache.iceberg.BaseTable", transaction._gateway_client)(staged.operations(), staged.name())
    update = getattr(table, kind)()
    if on_local_disk(table):
        update = update.scanManifestsWith(static(table, MORE_EXECUTORS, "newDirectExecutorService")())
    return update


def before_commit(iceberg: Any, metadata: Any) -> None:
    """Check the metadata before their commit to the loaded table. Raises CleantailError to prevent the commit."""


def _is_own(topic: Topic) -> bool:
    """Return whether Cleantail alone writes the metadata of the topic's table."""
    return topic.columns is None and topic.table.rpartition(".")[0] == topic.own_namespace


def _require_own_deletions(iceberg: Any, start: Any, metadata: Any, reads: bool) -> None:
    """Raise TableError if this commit could delete a metadata file of another table.

    Such a file of the metadata log is outside the table's location, or it leaves the log and has another UUID. The
    UUID is in the first bytes of a file, which are read only with `reads`. If the catalog deletes no metadata files,
    the table passes.
    """
    if not metadata.propertyAsBoolean(DELETES_OLD_METADATA, False):
        return
    before, after = ([str(entry.file()) for entry in each(log.previousFiles())] for log in (start, metadata))
    require_inner_log(str(iceberg), str(metadata.location()), before)
    for path in sorted({*before} - {*after}) if reads else ():
        try:
            stream = iceberg.io().newInputFile(path).newStream()
            try:
                head = bytes(stream.readNBytes(HEAD_BYTES))
            finally:
                stream.close()
        except Py4JJavaError as e:
            if "NotFoundException" in kinds_of(e):  # deleted earlier
                continue
            raise TableError(f"{path}, which {iceberg} names, cannot be read: {java_message(e)}") from None
        if uuid_in(head, path) != str(start.uuid()).lower():
            raise TableError(
                f"table {iceberg} has {DELETES_OLD_METADATA}=true, and its log of metadata names {path}, which is not "
                f"surely its own: a commit would delete it; nothing was changed. Set the property to false until the "
                f"log names no such file"
            )


def _taken_of(sent: Iterable[Any], table: Any) -> Any | None:
    return next((metadata for metadata in sent if _is_taken(metadata, table)), None)


def _is_taken(metadata: Any, table: Any) -> bool:
    """Return whether the table has the change of these metadata: one of its snapshots, whose ids are random. For a
    change without a snapshot, the table must have every reference and property."""
    updates = [(str(update.getClass().getSimpleName()), update) for update in each(metadata.changes())]
    made = [int(update.snapshot().snapshotId()) for kind, update in updates if kind == "AddSnapshot"]
    if made:
        return any(table.snapshot(snapshot_id) is not None for snapshot_id in made)
    if any(kind not in MARKED for kind, _ in updates):
        return False
    refs, properties, gone = dict[str, int | None](), dict[str, str | None](), list[Any]()
    for kind, update in updates:
        match kind:
            case "SetSnapshotRef":
                refs[str(update.name())] = int(update.snapshotId())
            case "RemoveSnapshotRef":
                refs[str(update.name())] = None
            case "SetProperties":
                properties |= texts(update.updated())
            case "RemoveProperties":
                properties |= dict.fromkeys(map(str, each(update.removed())))
            case "RemoveSnapshots":
                gone += each(update.snapshotIds())
    there, set_now = table.refs(), texts(table.properties())
    heads = {name: there.get(name) for name in refs}
    return (
        {name: None if ref is None else int(ref.snapshotId()) for name, ref in heads.items()} == refs
        and {name: set_now.get(name) for name in properties} == properties
        and all(table.snapshot(snapshot_id) is None for snapshot_id in gone)
    )


def repeat(action: Callable[[], T]) -> T:
    """Run an action that may run twice, such as CREATE IF NOT EXISTS, and repeat it if the answer is unclear."""

    def once() -> T:
        try:
            return action()
        except Py4JJavaError as e:
            error = conflict(e)
        raise error from None

    return COMMITS.run(once)


def write_onto(load: Load, branch: str, write: Callable[[], None]) -> None:
    """Let Spark write onto a branch to which only this process writes, again if the commit was not accepted. Two
    commits do no harm, because only the files of the branch's last commit are read."""
    before = load().snapshot(branch).snapshotId()

    def once() -> None:
        if load().snapshot(branch).snapshotId() == before:
            write()

    repeat(once)


# 2. interpret an answer


def java_message(error: Py4JJavaError) -> str:
    """Return class and message of the JVM's exception, without its stack."""
    exception = error.java_exception
    return f"{exception.getClass().getSimpleName()}: {str(exception.getMessage()).splitlines()[0]}"


def conflict(error: Py4JJavaError) -> Exception:
    """Translate Iceberg's exception. Returns it unchanged if none of these fits:

    OvertakenError: another commit came first. ConflictError: the commits of others make this commit void.
    UnknownCommitError: the catalog may have accepted the commit.
    """
    message, kinds = f"the table changed in a way that makes this result void: {java_message(error)}", kinds_of(error)
    if kinds & UNKNOWN:
        return _unknown(error)
    if kinds & OVERTAKEN:
        return OvertakenError(message)
    return ConflictError(message) if "ValidationException" in kinds else error


def overtaken(error: Py4JJavaError) -> Exception:
    """Translate as `conflict` does, for a commit that checks its base by itself. After a refusal by Iceberg, such a
    commit may be tried again on the current table."""
    refused = conflict(error)
    return OvertakenError(str(refused)) if isinstance(refused, ConflictError) else refused


def void(error: IllegalArgumentException) -> Exception:
    """Return a ConflictError if Iceberg's message means a conflict, or the error itself."""
    if "Cannot find snapshot with ID" in str(error):
        return ConflictError(f"the snapshot that the round read has expired, so its result is void: {error}")
    if "is not an ancestor" in str(error):  # the base has left the history of `main`
        return ConflictError(f"the snapshot that the round read was rolled back, so its result is void: {error}")
    if "Must use DVs" in str(error):  # position deletes for a table of format version 3
        return ConflictError(f"the table was upgraded after the round had begun, so its result is void: {error}")
    return error


def _unknown(error: Exception) -> UnknownCommitError:
    return UnknownCommitError(java_message(error) if isinstance(error, Py4JJavaError) else str(error))


# 3. branches and properties


def create_branch(to: Committed | Load, branch: str, snapshot_id: int | None) -> None:
    """Create a branch at the snapshot, or at `main`. Replaces a branch of this name from a killed run."""
    send(to, lambda iceberg, transaction: _create_branch(iceberg, transaction, branch, snapshot_id))


def drop_branches(to: Committed | Load, branches: Collection[str]) -> None:
    """Drop the branches that still exist, in one commit, with snapshots as in `_drop`."""
    table = None if callable(to) else to
    send(to, lambda iceberg, transaction: _drop(iceberg, transaction, branches, table))


def change_properties(to: Committed | Load, updates: Mapping[str, str], removals: Iterable[str] = ()) -> None:
    send(to, lambda _, transaction: _set(transaction, updates, removals))


def _create_branch(iceberg: Any, transaction: Any, branch: str, snapshot_id: int | None) -> None:
    refs = transaction.manageSnapshots()
    if iceberg.refs().containsKey(branch):
        refs = refs.removeBranch(branch)
    (refs.createBranch(branch) if snapshot_id is None else refs.createBranch(branch, snapshot_id)).commit()


def _drop(iceberg: Any, transaction: Any, branches: Iterable[str], table: Committed | None = None) -> None:
    """Drop the branches that still exist, and the snapshots that only the dropped branches of rounds lead to.

    A round adds a snapshot on its branch, and each snapshot takes some hundred bytes in each later metadata file. After
    the drop no snapshot has the round's files, and `reclaim` removes them as orphans. If `reclaim` may not remove
    orphans of the table, the snapshots stay until they expire, and the expiry removes their files. Snapshots of other
    branches also stay until then, because their data files should not outlive them. `table`: None if all snapshots
    stay.
    """
    there = iceberg.refs()
    gone = [branch for branch in dict.fromkeys(branches) if there.containsKey(branch)]
    if not gone:
        return
    refs = transaction.manageSnapshots()
    for branch in gone:
        refs.removeBranch(branch)
    refs.commit()
    if table is None:
        return
    may_be_orphans = table.topic.columns is None or table.topic.config.cleantail_adopted_orphans == "remove"
    if not may_be_orphans or not may_delete_files(texts(iceberg.properties())):
        return
    snapshots = table.jvm.java.util.ArrayList()
    for snapshot in _only_on(table.jvm, iceberg, [branch for branch in gone if branch.startswith(ROUND_BRANCH)]):
        snapshots.add(snapshot)
    if not snapshots.isEmpty():
        operations = transaction.table().operations()
        now = operations.current()
        without = table.jvm.org.apache.iceberg.TableMetadata.buildFrom(now).removeSnapshots(snapshots)
        operations.commit(now, without.build())


def _only_on(jvm: Any, iceberg: Any, branches: Collection[str]) -> list[Any]:
    """Return the snapshots that only these branches lead to. An earlier head of `main` stays, even if others rolled
    `main` back, because it shows the lost commits."""
    refs = {name: int(ref.snapshotId()) for name, ref in entries(iceberg.refs()).items()}
    others = [head for name, head in refs.items() if name not in branches]
    of_main = iceberg.history().toString()  # one call, not two for each entry
    is_ancestor_of = static(jvm, SNAPSHOTS, "isAncestorOf")
    found: dict[int, Any] = {}
    for branch in branches:
        snapshot = iceberg.snapshot(refs[branch])
        while snapshot is not None and (number := int(snapshot.snapshotId())) not in found:
            if f"snapshotId={number}}}" in of_main or any(is_ancestor_of(iceberg, head, number) for head in others):
                break
            found[number] = snapshot
            snapshot = iceberg.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
    return list(found.values())


def _set(transaction: Any, properties: Mapping[str, str], removed: Iterable[str] = ()) -> None:
    update = transaction.updateProperties()
    for key, value in properties.items():
        update.set(key, value)
    for key in removed:
        update.remove(key)
    update.commit()


def require_same_main(jvm: Any, transaction: Any) -> None:
    """Make the catalog refuse the transaction if `main` moves.

    A REST catalog compares a reference only if the change sets it. So the transaction sets `main` to another value, and
    back."""
    operations = transaction.table().operations()
    now = operations.current()
    if (main := now.ref("main")) is None:
        return
    iceberg = jvm.org.apache.iceberg
    other = iceberg.SnapshotRef.builderFrom(main).minSnapshotsToKeep(1 + (main.minSnapshotsToKeep() or 0)).build()
    operations.commit(now, iceberg.TableMetadata.buildFrom(now).setRef("main", other).setRef("main", main).build())


def with_summary(update: Any, summary: Mapping[str, str]) -> Any:
    for key, value in summary.items():
        update.set(key, value)
    return update


def _snapshot_of(metadata: Any) -> int:
    return int(metadata.currentSnapshot().snapshotId())


def note_history(table: Committed, at_ms: int) -> bool:
    """Adapt the properties if others rewrote main's history. Returns whether `main` lost a published round."""
    gone = False

    def stage(_: Any, transaction: Any) -> None:
        nonlocal gone
        properties, removed, gone = properties_after(table.jvm, transaction.table(), table.topic.table, at_ms)
        if properties or removed:
            _set(transaction, properties, removed)

    send(table, stage)
    return gone


# 4. appends


def append_files(
    table: Committed,
    files: Sequence[Any],
    properties: Mapping[str, str],
    summary: Mapping[str, str],
    left_out: Sequence[LeftOut] = (),
    present: Collection[str] | None = None,
    now_ms: int = 0,
    denylist: str | None = None,
    branches: Collection[str] = (),
) -> Any:
    """Append data files to `main`, with the properties, in one commit, and return its metadata. The commit also drops
    `branches`, on which the files were staged.

    The properties mark that the files were appended. If the table already has one of them, raises ConflictError, with
    nothing appended. Another driver that counts as dead may still run on another machine, where no lock of this machine
    stops it. `left_out`: records of the source that the files lack. `present`: as in aged_marks; None keeps all
    marks. `denylist`: the table's property when the ingestion began.
    """

    def stage(iceberg: Any, transaction: Any) -> None:
        there = texts(transaction.table().properties())
        if faster := sorted(name for name in properties if name in there):
            raise ConflictError(f"another ingestion into {table.topic.table} has set {faster[0]}: nothing was appended")
        require_denylist(table, there, denylist)
        require_history(table.jvm, transaction.table(), table.topic.table)
        _append(new_update(transaction, "newAppend"), files, summary)
        marks = marked(transaction, table.topic.table, ingested=True)
        retention_ms = table.topic.config.cleantail_ingested_retention_ms
        aged, gone = ({}, ()) if present is None else aged_marks(there, present, now_ms, retention_ms)
        left = with_left_out(there, table.topic.table, left_out)
        _set(transaction, {**aged, **properties, **left, **marks}, gone)
        _drop(iceberg, transaction, branches)

    return send(table, stage)


def require_denylist(table: Committed, properties: Mapping[str, str], known: str | None) -> None:
    """Raise ConflictError if keys were erased since the ingestion began, because it may have records of these keys."""
    if properties.get(PROPERTY_DENYLIST) != known:
        raise ConflictError(
            f"keys of topic {table.topic.topic} were erased while records were read: nothing was appended; ingest again"
        )


@dataclass(frozen=True, slots=True)
class Advance:
    """A move of the position in a commit: its text `before` (None at a first read) and `after`, and the summary of the
    snapshot.

    `base_snapshot_id`: a first read continues after the table's files at this snapshot. `name`: the table property
    that has the position. `left_out`: records that the commit skips. `denylist`, `branches`: as in append_files.
    """

    before: str | None
    after: str
    summary: Mapping[str, str]
    base_snapshot_id: int | None = None
    name: str = PROPERTY_POSITION
    left_out: tuple[LeftOut, ...] = ()
    denylist: str | None = None
    branches: tuple[str, ...] = ()


def append_and_advance(table: Committed, files: Sequence[Any], advance: Advance) -> None:
    """Append the data files to `main` and move the position, both or neither. Raises ConflictError, with nothing
    appended, if another ingestion has moved the position.

    Each such commit makes a snapshot, even without records, so that a catalog refuses the later of two commits.
    """

    def stage(iceberg: Any, transaction: Any) -> None:
        now, snapshot = transaction.table(), transaction.table().currentSnapshot()
        properties = texts(now.properties())
        text = properties.get(advance.name)
        # with a position, no file can be beyond it
        same_files = advance.before is not None or advance.base_snapshot_id == (
            None if snapshot is None else int(snapshot.snapshotId())
        )
        if text != advance.before or not same_files:
            raise ConflictError(f"another ingestion into {table.topic.table} was faster: nothing was appended")
        require_denylist(table, properties, advance.denylist)
        require_history(table.jvm, now, table.topic.table)
        append = new_update(transaction, "newAppend") if files else transaction.newFastAppend()
        _append(append, files, advance.summary)
        left_out = with_left_out(properties, table.topic.table, advance.left_out)
        marks = marked(transaction, table.topic.table, ingested=True)
        _set(transaction, {advance.name: advance.after, **left_out, **marks})
        _drop(iceberg, transaction, advance.branches)

    send(table, stage)


def publish_branch(
    load: Load, branch: str, files: Sequence[Any], check: Callable[[Mapping[str, str]], None] | None = None
) -> None:
    """Append a branch's files to `main` and drop the branch. `check` gets the table's properties, and may raise."""

    def stage(iceberg: Any, transaction: Any) -> None:
        if check is not None:
            check(texts(transaction.table().properties()))
        _append(new_update(transaction, "newAppend"), files, {})
        _drop(iceberg, transaction, [branch])

    send(load, stage)


def drop_files(load: Load, paths: Collection[str]) -> None:
    """Remove data files from the table, with all of their rows."""

    def stage(iceberg: Any, transaction: Any) -> None:
        # not by path, because for a text py4j calls another method of that name, which returns nothing
        files = files_with_deletes(iceberg, int(iceberg.currentSnapshot().snapshotId()))
        delete = new_update(transaction, "newDelete")
        for file, _ in files:
            if str(file.location()) in paths:
                delete.deleteFile(file)
        delete.commit()

    send(load, stage)


def _append(append: Any, files: Iterable[Any], summary: Mapping[str, str]) -> None:
    for file in files:
        append.appendFile(file)
    with_summary(append, summary).commit()


# 5. deletes: staged on a round's branch, and replayed onto `main`
#
# If a sink has registered a file more than once, the file is registered once before records of it are deleted, because
# deletes hide a record in every registration of its file. This takes one commit for each sequence number of such files,
# because a rewrite gives all of its files the same number. These commits come right before the round's commit, in the
# same transaction.


def stage_deletes(
    jvm: Any,
    to: Committed | Load,
    branch: str,
    base_snapshot_id: int,
    change: BranchChange,
    summary: Mapping[str, str],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Create the branch at the base, with the change on it, and set properties. Replaces a branch of this name from a
    killed run. Raises ConflictError."""

    def stage(iceberg: Any, transaction: Any) -> None:
        _stage_branch(jvm, iceberg, transaction, branch, base_snapshot_id, change, summary)
        if properties:
            _set(transaction, properties)

    send(to, stage)


def _stage_branch(
    jvm: Any,
    iceberg: Any,
    transaction: Any,
    branch: str,
    base_snapshot_id: int,
    change: BranchChange,
    summary: Mapping[str, str],
) -> None:
    _create_branch(iceberg, transaction, branch, base_snapshot_id)
    rest = _register_once(jvm, iceberg, transaction, change, base_snapshot_id, branch)
    delta = new_update(transaction, "newRowDelta").toBranch(branch).validateFromSnapshot(base_snapshot_id)
    _add(delta, rest)
    with_summary(delta, summary).commit()


def with_uncommitted(
    table: Committed, branch: str, base_snapshot_id: int, change: BranchChange, summary: Mapping[str, str]
) -> Any:
    """Return the table with the branch that stage_deletes would commit. Only this process has it; its manifests are
    written. Raises ConflictError as stage_deletes does."""
    iceberg, jvm = table.load(), table.jvm
    try:
        transaction = asked_again(iceberg.newTransaction)
        _stage_branch(jvm, iceberg, transaction, branch, base_snapshot_id, change, summary)
        metadata = transaction.currentMetadata()
    except IllegalArgumentException as e:
        raise void(e) from None
    except Py4JJavaError as e:
        raise conflict(e) from None
    operations = jvm.org.apache.iceberg.StaticTableOperations(metadata, iceberg.io())
    return jvm.org.apache.iceberg.BaseTable(operations, iceberg.name())


def commit_branch(table: Committed, uncommitted: Any, branch: str) -> None:
    """Commit the branch of a table of with_uncommitted, with the same snapshot. Raises ConflictError if another commit
    came first: Iceberg accepts no snapshot with a used sequence number."""
    head = uncommitted.snapshot(branch)

    def stage(_: Any, transaction: Any) -> None:
        operations = transaction.table().operations()
        now = operations.current()
        builder = table.jvm.org.apache.iceberg.TableMetadata.buildFrom(now)
        operations.commit(now, builder.setBranchSnapshot(head, branch).build())

    send(table, stage)


def delete_uncommitted(uncommitted: Any, branch: str) -> None:
    """Delete the manifests that only the branch of a table of with_uncommitted has. Other files stay for `reclaim`."""
    head, io = uncommitted.snapshot(branch), uncommitted.io()
    try:
        own = [manifest for manifest in each(head.allManifests(io)) if manifest.snapshotId() == head.snapshotId()]
        for path in (*(str(manifest.path()) for manifest in own), str(head.manifestListLocation())):
            io.deleteFile(path)
    except Py4JJavaError as e:
        logger.warning("files of a round stay until reclaim removes orphans: %s", java_message(e))


def publish_deletes(
    table: Committed,
    branch_changes: Sequence[BranchChange],
    partitions: set[int],
    base_snapshot_id: int,
    properties: Mapping[str, str],
    summary: Mapping[str, str],
    branches: Iterable[str] = (),
    before: Mapping[str, str] | None = None,
    schema_ids: Iterable[int] = (),
) -> int:
    """Replay the delete files of the partitions onto `main`, drop their branches, and return the new snapshot's id.

    `before`: the table's properties from which the new properties were made. If one of these has changed, another
    driver has published, perhaps this same round, because a driver that counts as dead may still run. `schema_ids`: of
    the heads of the branches.

    A delete file of an adopted table may cover several logs. Then the partitions are all of them or none. A round that
    removes nothing also makes a snapshot, whose summary allows an undo.

    Raises ConflictError in these cases: the base snapshot was removed; a data file with new deletes was rewritten or
    got other deletes since; a file that is kept once was registered again.
    """
    if table.topic.columns is None:
        branch_changes = [change.of_partitions(partitions) for change in branch_changes]
    change = reduce(_joined, branch_changes, BranchChange((), (), 0)) if partitions else BranchChange((), (), 0)
    by_position = "PARQUET" in [file.format().toString() for file in change.added]

    def stage(iceberg: Any, transaction: Any) -> None:
        if before is not None:
            now_set = texts(transaction.table().properties())
            if changed := sorted(name for name in properties if now_set.get(name) != before.get(name)):
                raise ConflictError(f"{table.topic.table}: {changed[0]} was changed after the round read it")
        require_history(table.jvm, transaction.table(), table.topic.table)
        if not is_ancestor(table.jvm, transaction.table(), base_snapshot_id):
            raise ConflictError(
                "the snapshot that the round read was rolled back or has expired, so its result is void"
            )
        _require_columns(table, transaction.table(), schema_ids)
        since = base_snapshot_id
        if by_position or change.kept:
            now = _same_deletes_since(table.jvm, iceberg, base_snapshot_id, change)
            since = now if by_position else since
        if partitions:
            rest = _register_once(table.jvm, iceberg, transaction, change, since)
            delta = new_update(transaction, "newRowDelta").validateFromSnapshot(since).validateDeletedFiles()
            replay(table.jvm, delta, rest, by_position)
            with_summary(delta, summary).commit()
        _drop(iceberg, transaction, branches, table)
        marks = marked(transaction, table.topic.table, published=True) if partitions else {}
        _set(transaction, {**properties, **marks})

    return _snapshot_of(send(table, stage, overtaken if by_position else conflict))


def _require_columns(table: Committed, iceberg: Any, schema_ids: Iterable[int]) -> None:
    """Raise TableError unless each mapped column has the name and field id of the round's snapshots."""
    mapped = table.topic.columns.paths if table.topic.columns else {name: name for name in COLUMNS}
    now, schemas = iceberg.schema(), iceberg.schemas()
    for staged in map(schemas.get, {*schema_ids} - {now.schemaId()}):
        for name, path in mapped.items() if staged is not None else ():
            before, field = staged.findField(path), now.findField(path)
            if before is None or (field is not None and field.fieldId() == before.fieldId()):
                continue
            new_name = now.findColumnName(before.fieldId())
            became = f"is now called {new_name}" if new_name else "was dropped"
            raise TableError(
                f"{table.topic.table}: column {path} ({name}) {became}: it was changed after the round was staged, and "
                "nothing was published. Name the column in `columns` of the topic, or give the table its column back"
            )


def _joined(one: BranchChange, other: BranchChange) -> BranchChange:
    return BranchChange(one.added + other.added, one.removed + other.removed, 0, one.kept + other.kept)


def _register_once(
    jvm: Any, iceberg: Any, transaction: Any, change: BranchChange, since: int, branch: str | None = None
) -> BranchChange:
    """Commit rewrites after which each file in `change.kept` is registered once, and return the rest of the change.

    The rewrite also removes a file's old delete files, because Iceberg drops delete files that are older than all other
    files. It adds a new deletion vector. Position deletes may follow later, by a row delta that checks that no others
    were added since.
    """
    if not change.kept:
        return change
    paths = {str(kept.file.location()) for kept in change.kept}
    removed, added = _deletes_of(iceberg, since, paths), _by_data_file(jvm, change.added, paths)
    at_once = [path for path in removed if format_version(iceberg) >= VECTORS_VERSION]
    for sequence_number in sorted({kept.sequence_number for kept in change.kept}):
        rewrite = new_update(transaction, "newRewrite").validateFromSnapshot(since).dataSequenceNumber(sequence_number)
        rewrite = rewrite.toBranch(branch) if branch else rewrite
        for file in (k.file for k in change.kept if k.sequence_number == sequence_number):
            path = str(file.location())
            # a copy has no manifest position, so that Iceberg removes the file from all manifests
            copy = jvm.org.apache.iceberg.DataFiles.builder(iceberg.specs().get(file.specId())).copy(file).build()
            rewrite.deleteFile(copy).addFile(copy)
            for delete in removed.get(path, ()):
                rewrite.deleteFile(delete)
            for delete in added.get(path, ()) if path in at_once else ():
                rewrite.addFile(delete)
        with_summary(rewrite, {OPERATION: REGISTERED_ONCE}).commit()
    done = {identity(f) for files in removed.values() for f in files}
    done |= {identity(f) for path in at_once for f in added.get(path, ())}
    left = [tuple(f for f in files if identity(f) not in done) for files in (change.added, change.removed)]
    return replace(change, added=left[0], removed=left[1])


def _deletes_of(iceberg: Any, snapshot_id: int, paths: Collection[str]) -> dict[str, list[Any]]:
    """Return path -> the delete files of all its registrations in a snapshot. A snapshot's own list of removed files
    lacks the bounds that assign position deletes to one data file."""
    by_file: dict[str, dict[tuple[str, int], Any]] = {}
    for file, deletes in files_with_deletes(iceberg, snapshot_id):
        if deletes and (path := str(file.location())) in paths:
            by_file.setdefault(path, {}).update((identity(delete), delete) for delete in deletes)
    return {path: list(deletes.values()) for path, deletes in by_file.items()}


def _by_data_file(jvm: Any, deletes: Iterable[Any], paths: Collection[str]) -> dict[str, list[Any]]:
    by_file: dict[str, list[Any]] = {}
    some = list(deletes)
    for path, delete in zip(data_files_of(jvm, some), some, strict=True):
        if path in paths:
            by_file.setdefault(path, []).append(delete)
    return by_file


def _same_deletes_since(jvm: Any, iceberg: Any, base_snapshot_id: int, change: BranchChange) -> int:
    """Return the table's current snapshot. Raises ConflictError unless the data files of the change are registered as
    in the base, with the same delete files.

    For deletion vectors Iceberg itself checks this. For position deletes Iceberg checks only whether any were added.
    From the returned snapshot on, that check is correct. From the base on, it would also refuse harmless commits.
    """
    now = int(iceberg.currentSnapshot().snapshotId())
    if now == base_snapshot_id:
        return now
    if not any(commit.snapshot_id == base_snapshot_id for commit in history(iceberg)):
        raise ConflictError("the snapshot that the round read was rolled back or has expired, so its result is void")
    touched = {*data_files_of(jvm, change.added), *(str(k.file.location()) for k in change.kept)}
    before, after = (_registrations(iceberg, snapshot_id, change.kept) for snapshot_id in (base_snapshot_id, now))
    for path in sorted(touched):
        if after.get(path) != before.get(path):
            raise ConflictError(f"{path} was rewritten, registered again or got other deletes after the round read it")
    return now


def _registrations(iceberg: Any, snapshot_id: int, kept: Iterable[KeptFile]) -> Registrations:
    """Return the registrations of each data file of a snapshot. Sequence numbers count only for files in `kept`."""
    once = {str(k.file.location()) for k in kept}
    by_path: dict[str, list[tuple[int, tuple[tuple[str, int], ...]]]] = {}
    for file, deletes in files_with_deletes(iceberg, snapshot_id):
        path = str(file.location())
        arrived = int(file.dataSequenceNumber()) if path in once else 0
        by_path.setdefault(path, []).append((arrived, tuple(sorted(identity(delete) for delete in deletes))))
    return {path: tuple(sorted(registrations)) for path, registrations in by_path.items()}


def replay(jvm: Any, delta: Any, change: BranchChange, by_position: bool) -> None:
    """Replay the delete files. Each data file that a round changes then has one, which replaces the base's."""
    referenced, once = jvm.java.util.ArrayList(), {str(k.file.location()) for k in change.kept}
    _add(delta, change)
    # the transaction itself has removed and added each file that is kept once
    for path in data_files_of(jvm, change.added):
        if path not in once:
            referenced.add(path)
    delta.validateDataFilesExist(referenced)
    if by_position:
        delta.validateNoConflictingDeleteFiles()


def _add(delta: Any, change: BranchChange) -> None:
    for file in change.removed:
        delta.removeDeletes(file)
    for file in change.added:
        delta.addDeletes(file)


# 6. rewrites and rollbacks


@dataclass(frozen=True, slots=True)
class Replacement:
    """Data files to replace, each with its delete files in the base, by new ones.

    The new files keep the sequence number of the old files, which rounds compare. With None they get a new number.
    """

    sequence_number: int | None
    old: Sequence[tuple[Any, Sequence[Any]]]
    new: Sequence[Any]

    def require_own_deletes(self, jvm: Any) -> None:
        require_own_deletes(jvm, [(str(file.location()), deletes) for file, deletes in self.old])

    def stage(self, transaction: Any, base_snapshot_id: int, summary: Mapping[str, str]) -> None:
        rewrite = new_update(transaction, "newRewrite").validateFromSnapshot(base_snapshot_id)
        if self.sequence_number is not None:
            rewrite = rewrite.dataSequenceNumber(self.sequence_number)
        for file, deletes in self.old:
            for gone in (file, *deletes):
                rewrite.deleteFile(gone)
        for file in self.new:
            rewrite.addFile(file)
        with_summary(rewrite, summary).commit()


def replace_files(
    table: Committed,
    replacement: Replacement,
    base_snapshot_id: int,
    summary: Mapping[str, str],
    load: Load | None = None,
    branches: Collection[str] = (),
) -> dict[str, str]:
    """Replace data files, and drop `branches`, on which the new ones were staged, in one commit. Returns the snapshot's
    summary. `load`: of a side table. Raises ConflictError if an old file has changed since the base."""
    replacement.require_own_deletes(table.jvm)

    def stage(iceberg: Any, transaction: Any) -> None:
        replacement.stage(transaction, base_snapshot_id, summary)
        _drop(iceberg, transaction, branches)

    done = send(load or table, stage)
    return texts(done.currentSnapshot().summary())


def replace_and_forget(
    jvm: Any, load: Load, replacements: Sequence[Replacement], base_snapshot_id: int, summary: Mapping[str, str]
) -> None:
    """Replace data files as replace_files does, all in one commit. The new head of `main` also forgets what earlier
    commits removed.

    A manifest names removed files, with bounds of their columns, until the manifest is written again. Raises
    ConflictError if an old file has changed since the base.
    """
    for one in replacements:
        one.require_own_deletes(jvm)

    def stage(_: Any, transaction: Any) -> None:
        for one in replacements:
            one.stage(transaction, base_snapshot_id, summary)
        _forget_removed(jvm, transaction, summary)

    send(load, stage)


def _forget_removed(jvm: Any, transaction: Any, summary: Mapping[str, str]) -> None:
    table = transaction.table()
    current = table.currentSnapshot()
    if current is None:
        return
    data, deletes = (
        [manifest for manifest in each(manifests) if manifest.hasDeletedFiles()]
        for manifests in (current.dataManifests(table.io()), current.deleteManifests(table.io()))
    )
    if not data and not deletes:
        return
    rewrite = new_update(transaction, "rewriteManifests")
    if data:
        removed = jvm.java.util.ArrayList()
        for manifest in data:
            removed.add(manifest)
        # a function of Guava, because Py4J passes no function of Python to Java
        one_manifest = static(jvm, "com.google.common.base.Functions", "constant")("")
        among_removed = getattr(JavaClass("com.google.common.base.Predicates", jvm._gateway_client), "in")(removed)
        rewrite = rewrite.clusterBy(one_manifest).rewriteIf(among_removed)
    for manifest in deletes:  # clusterBy leaves them as they are
        rewrite = rewrite.deleteManifest(manifest)
        if manifest.hasExistingFiles() or manifest.hasAddedFiles():
            rewrite = rewrite.addManifest(_without_removed(jvm, table, manifest))
    with_summary(rewrite, summary).commit()


def _without_removed(jvm: Any, table: Any, manifest: Any) -> Any:
    """Write a manifest of delete files again, without removed files."""
    metadata, io = table.operations().current(), table.io()
    specs, of_java = metadata.specsById(), jvm.org.apache.iceberg.ManifestFiles
    added_in = {int(snapshot.sequenceNumber()): snapshot.snapshotId() for snapshot in each(metadata.snapshots())}
    output = io.newOutputFile(table.operations().metadataFileLocation(f"{uuid4()}-m0.avro"))
    spec = specs.get(manifest.partitionSpecId())
    writer = of_java.writeDeleteManifest(metadata.formatVersion(), spec, output, None)
    reader = of_java.readDeleteManifest(manifest, io, specs)
    try:
        for file in each(reader):
            number = file.fileSequenceNumber()
            # an expired snapshot has no number in the metadata, and its id is of no use
            writer.existing(file, added_in.get(number, manifest.snapshotId()), file.dataSequenceNumber(), number)
    finally:
        reader.close()
        writer.close()
    return writer.toManifestFile()


@dataclass(frozen=True, slots=True)
class Rollback:
    """The new content of `main`: a snapshot of its history (None: nothing), an empty commit with `summary`, then the
    appends again. `removed`: names of properties to remove."""

    to_snapshot_id: int | None
    appends: tuple[int, ...]
    properties: Mapping[str, str]
    summary: Mapping[str, str]
    removed: tuple[str, ...] = ()


def roll_back(table: Committed, plan: Callable[[Sequence[Commit], Mapping[str, str]], Rollback]) -> int:
    """Make `main` the snapshot that `plan` names, with the appends that it keeps, and return the new snapshot's id.

    `plan`: called with main's history, newest first, and the table's properties. The rollback is one commit, only onto
    the metadata for which it was planned. After another writer's commit it is planned again. Raises ConflictError if
    another commit came first in every try.
    """

    def stage(_: Any, transaction: Any) -> None:
        iceberg = transaction.table()
        require_history(table.jvm, iceberg, table.topic.table)
        rollback = plan(list(history(iceberg)), texts(iceberg.properties()))
        appends = [(iceberg.snapshot(s), added_by(iceberg, s)) for s in rollback.appends]
        _go_back(table, transaction, rollback.to_snapshot_id)
        _append(transaction.newFastAppend(), (), rollback.summary)
        for snapshot, files in appends:
            _append(transaction.newFastAppend(), files, writer_entries(texts(snapshot.summary())))
        marks = marked(transaction, table.topic.table, published=True, ingested=True)
        _set(transaction, {**rollback.properties, **marks}, rollback.removed)

    return _snapshot_of(send(table, stage))


def _go_back(table: Committed, transaction: Any, snapshot_id: int | None) -> None:
    """Set `main` to the snapshot, or remove it (None). Iceberg has no call for the latter."""
    if snapshot_id is not None:
        transaction.manageSnapshots().setCurrentSnapshot(snapshot_id).commit()
        return
    operations = transaction.table().operations()
    now = operations.current()
    before = table.jvm.org.apache.iceberg.TableMetadata.buildFrom(now).removeRef("main").build()
    operations.commit(now, before)

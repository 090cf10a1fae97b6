"""Erase keys from a topic's tables: the topic table and its side tables. Each pass does these steps:

1. A scan by another engine (cleantail.erasure.proof) finds the files that hold the keys, in every snapshot, branch and
   tag, and below the table's location. A branch or tag of another owner that reaches such a file ends the erasure with
   an error, unless a person has excluded it by name.
2. A round removes every record of the keys. Like the topic's other rounds, it is checked, approved if necessary, and
   published.
3. The files with such records are rewritten without them. The same commit removes the files' bounds from manifests. No
   round reads side tables, so this commit also removes the records of side tables. A row of evidence counts these
   records.
4. The names of all files to remove are recorded, with their snapshots, and Cleantail's own branches that reach them.
   Then the snapshots expire with the branches, and the files are deleted.
5. Another scan finds which of these files are gone. They are recorded as removed, also those that a killed run removed.
   The scan proves that nothing is left. If records with the keys arrived meanwhile, the next pass begins.

Every step reads the table again, and does only what is left. So the same command continues after a kill at any point.
A file that no snapshot reaches is deleted only if this erasure has recorded its name, or if it is older than a day. Any
other file may belong to an open commit.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import KEY
from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.erasure.object_versions import ObjectVersions, object_versions
from cleantail.erasure.proof import NO_KEYS, Holding, TableScan, engine, scan_table
from cleantail.erasure.requests import HIDDEN, PUBLISHING, REMOVED, REWRITTEN
from cleantail.errors import CleantailError, ConflictError, TableError
from cleantail.human import counted
from cleantail.lake.catalogs import load_table, open_catalog, side_tables
from cleantail.lake.evaluate import read_facts
from cleantail.lake.neighbours import GC_ENABLED, may_delete_files
from cleantail.log.quarantine import kept_until_ms
from cleantail.log.round_state import ERASE
from cleantail.log.work_units import ROUND_BRANCH
from cleantail.retries import ROUNDS
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.commit_summaries import OPERATION, ROUND
from spark_jobs.engine.rewrite_task import rewrite_all
from spark_jobs.engine.table_files import delete_files, new_data_files
from spark_jobs.engine.tasks import run_tasks
from spark_jobs.engine.written_files import RefusedError
from spark_jobs.iceberg.commits import Load, Replacement, replace_and_forget
from spark_jobs.iceberg.file_columns import layout_of
from spark_jobs.iceberg.file_removal import delete_unreached, forget_snapshots
from spark_jobs.iceberg.iceberg_reads import history, iceberg_table
from spark_jobs.iceberg.java_calls import each
from spark_jobs.iceberg.snapshot_files import PlannedFile, planned_files
from spark_jobs.iceberg.tables import RESTORE_PREFIX, TopicTable, created_at_s
from spark_jobs.round.approvals import BRANCH_LETTERS
from spark_jobs.round.evidence import append_erased_rows
from spark_jobs.round.reclaim import MIN_ORPHAN_AGE_MS, require_own, require_own_side
from spark_jobs.round.run import Run, drop_if_waiting, erase_round
from spark_jobs.round.staged_rewrites import rewrite_task

if TYPE_CHECKING:
    from pyiceberg.table import Table

logger = logging.getLogger("cleantail.erase")
PASSES = 5
"""Maximum number of passes. A pass is repeated because writers may have added records with the keys."""
BATCH_BYTES = 32 << 20
"""Small files share a task up to this size."""
ERASE_FILES = "erase files"
"""The operation of a commit that replaces files with erased keys."""
VERSIONS = "versions"
"""The name by which a person excludes older versions of a bucket's objects (`--exclude versions`)."""
Note = Callable[[str, Mapping[str, Any]], None]
"""Records an event of the request: its name, and its details with counts and names only."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A table of the topic. `name`: without the catalog; `quoted`: with it. `load`: by Spark. `seen`: by PyIceberg.
    `paths`: of its key."""

    name: str
    quoted: str
    load: Load
    seen: Callable[[], Table]
    paths: tuple[str, ...]
    is_topic: bool

    def scan(self, keys: ErasedKeys | None) -> TableScan:
        return scan_table(self.seen(), keys, self.paths)


Scans = Mapping[Place, TableScan]
Left = dict[Place, list[str]]
"""Table -> the files that still have to be removed."""


@dataclass(slots=True)
class Done:
    """What all passes and runs have done so far. Files, snapshots and branches: those to remove, by the table's name.
    `hidden`: by the log's number. `removed`: what was recorded as gone."""

    hidden: dict[str, int] = field(default_factory=dict)
    rounds: list[str] = field(default_factory=list)
    inventory: dict[str, dict[str, int]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    snapshots: dict[str, list[int]] = field(default_factory=dict)
    branches: dict[str, list[str]] = field(default_factory=dict)
    removed: Mapping[str, Any] = field(default_factory=dict)
    keys_found: int = 0

    @classmethod
    def of(cls, details: Mapping[str, Mapping[str, Any]]) -> Done:
        """Continue what earlier runs recorded. `details`: by the name of the event."""
        done = cls()
        hidden, rewritten, removed = (details.get(event, {}) for event in (HIDDEN, REWRITTEN, REMOVED))
        done.hidden |= dict(hidden.get("records", {}))
        done.rounds += hidden.get("rounds", ())
        done.keys_found = hidden.get("keys_found", 0)
        done.inventory |= {name: dict(of_table) for name, of_table in hidden.get("inventory", {}).items()}
        done.files |= {name: list(names) for name, names in rewritten.get("to_remove", {}).items()}
        done.snapshots |= {name: list(ids) for name, ids in rewritten.get("snapshots", {}).items()}
        done.branches |= {name: list(names) for name, names in rewritten.get("branches", {}).items()}
        done.removed = removed
        return done

    def count(self, hidden: Mapping[str, Any]) -> None:
        """Add a published round, as _to_hide returns it."""
        for log, records in hidden["records"].items():
            self.hidden[log] = self.hidden.get(log, 0) + records
        self.rounds.append(hidden["round"])

    def plan(self, place: str, forgotten: Unreached) -> None:
        self.snapshots[place] = sorted({*self.snapshots.get(place, ()), *forgotten.snapshots})
        self.branches[place] = sorted({*self.branches.get(place, ()), *forgotten.refs})

    def gone(self, scans: Scans) -> dict[str, Any]:
        """Return the files, snapshots and branches to remove that are gone by these scans."""
        gone: dict[str, dict[str, list[Any]]] = {"files": {}, "snapshots": {}, "branches": {}}
        for name, scan in ((place.name, scan) for place, scan in scans.items() if place.name in self.files):
            gone["files"][name] = [file for file in self.files[name] if scan.is_gone(file)]
            gone["snapshots"][name] = [number for number in self.snapshots.get(name, ()) if number not in scan.lists]
            gone["branches"][name] = [branch for branch in self.branches.get(name, ()) if branch not in scan.refs]
        return gone


@dataclass(frozen=True, slots=True)
class Erased:
    """The end of a run: a proof (`proven`), a round that waits for approval, or the reasons why nothing is proven."""

    proven: Mapping[str, Any] | None = None
    waiting: RoundResult | None = None
    problems: tuple[str, ...] = ()


def places_of(table: TopicTable) -> list[Place]:
    topic = table.topic

    def seen() -> Table:
        found = load_table(open_catalog(topic.platform), topic)
        if found is None:
            raise TableError(f"table {topic.table} was dropped")
        return found

    columns = topic.columns
    key = columns.of(KEY) if columns else (KEY,)
    places = [Place(topic.table, table.name, table.load, seen, key, True)] if table.exists() else []
    for suffix in side_tables(topic):
        name = f"{table.name[:-1]}{suffix}`"
        load = partial(iceberg_table, table.spark, name)
        places.append(Place(f"{topic.table}{suffix}", name, load, partial(_side, table, suffix), (KEY,), False))
    return places


def _side(table: TopicTable, suffix: str) -> Table:
    try:
        return side_tables(table.topic)[suffix]
    except KeyError:
        raise TableError(f"table {table.topic.table}{suffix} was dropped") from None


def erase_keys(
    run: Run, keys: ErasedKeys, note: Note, before: Mapping[str, Mapping[str, Any]], excluded: Collection[str] = ()
) -> Erased:
    """Erase the keys from all tables of the topic, and prove it.

    `before`: details of the events of earlier runs, by name. `excluded`: branches and tags that keep their files.
    Raises TableError if a table's files must not be deleted, or if a branch or tag that is not excluded reaches such
    files. Nothing more is changed then.
    """
    if not run.table.exists():
        raise CleantailError(f"topic {run.table.topic.topic} has no table yet; nothing was erased")
    done = Done.of(before)
    published = before.get(PUBLISHING)  # counted here if the run was killed before it recorded the round
    if published is not None and published["round"] not in done.rounds:
        rounds = (c.summary.get(ROUND) for c in history(run.table.load()) if c.is_round)
        if published["round"] in rounds:
            done.count(published)
    run = replace(run, publishing=lambda checked: note(PUBLISHING, _to_hide(checked.round, checked)))
    erasure = _Erasure(run, keys, note, excluded, done)
    scans, left = erasure.scanned("searching for the keys"), Left()
    for _ in range(PASSES):
        left_before, left = left, {place: scan.left(excluded) for place, scan in scans.items()}
        if not any(left.values()) or left == left_before:
            break
        if (ended := erasure.pass_of(scans)) is not None:
            return ended
        scans = erasure.scanned("searching again")
    return erasure.proof_of(scans)


@dataclass(frozen=True, slots=True)
class _Erasure:
    """The passes of one run. `since_ms`: table of the topic -> the time of its oldest own file."""

    run: Run
    keys: ErasedKeys
    note: Note
    excluded: Collection[str]
    done: Done
    since_ms: dict[Place, int | None] = field(default_factory=dict)

    def scanned(self, step: str) -> Scans:
        """Scan all tables, also a side table that is new, and record which things to remove are gone."""
        known = {place.name for place in self.since_ms}
        new = [place for place in places_of(self.run.table) if place.name not in known]
        self.since_ms.update({place: _require_own(self.run.table, place) for place in new})
        self.run.progress(step)
        scans = {place: place.scan(self.keys) for place in self.since_ms}
        if self.done.files and (gone := self.done.gone(scans)) != self.done.removed:
            self.done.removed = gone
            self.note(REMOVED, gone)
        return scans

    def pass_of(self, scans: Scans) -> Erased | None:
        """Do steps 2 to 4 for the files in the scans. Return the end of the run if the round was not published."""
        self._take_inventory(scans)
        if (unpublished := _hide(self.run, self.keys, scans, self.done)) is not None:
            return Erased(waiting=unpublished) if unpublished.holds else Erased(problems=_failures(unpublished))
        done = self.done
        hidden = {"inventory": done.inventory, "records": done.hidden, "rounds": done.rounds}
        self.note(HIDDEN, {**hidden, "keys_found": done.keys_found})
        self.run.progress("rewriting files")
        for place, scan in scans.items():
            _rewrite(self.run.table, place, scan, None if place.is_topic else self.keys)
            if not place.is_topic:  # before any of its snapshots expires
                made = [c for c in history(place.load()) if c.summary.get(OPERATION) == ERASE_FILES]
                append_erased_rows(self.run.table, place.name, made)
        self._remove(scans)
        return None

    def _take_inventory(self, scans: Scans) -> None:
        """Count the files that hold the keys, before any change. A later pass adds files that arrived since. Raises
        TableError for a branch that must stay."""
        met = {key for scan in scans.values() for holding in scan.holding.values() for key in holding.keys}
        self.done.keys_found = max(self.done.keys_found, len(met))
        for place, scan in scans.items():
            _require_free(self.run.table, place, scan, self.excluded)
            records = sum(holding.erased for holding in scan.holding.values())
            found = {"files": len(scan.holding), "records": records, "snapshots": len(scan.tainted_snapshots)}
            counts = self.done.inventory.setdefault(place.name, {})
            counts |= {name: max(counts.get(name, 0), count) for name, count in found.items()}

    def _remove(self, scans: Scans) -> None:
        self.run.progress("removing files")
        unreached = {
            place: _to_forget(self.run.table, place, scan, self.excluded, self.done, self.since_ms[place])
            for place, scan in scans.items()
        }
        for place, forgotten in unreached.items():
            self.done.plan(place.name, forgotten)
        done = self.done
        to_remove = {"to_remove": done.files, "snapshots": done.snapshots, "branches": done.branches}
        self.note(REWRITTEN, to_remove)  # before any of them loses its last snapshot
        for place, forgotten in unreached.items():
            _remove(self.run.table, place, forgotten)

    def proof_of(self, scans: Scans) -> Erased:
        """Return the proof that these scans give, with the older versions that the stores keep. Or return the problems
        that prevent a proof. Raises TableError for a branch that must stay, and began to reach files with the keys
        meanwhile."""
        for place, scan in scans.items():
            _require_free(self.run.table, place, scan, self.excluded)
        versions = {place: object_versions(place.seen()) for place in scans}
        problems = [text for scan in scans.values() for text in scan.problems(self.excluded)]
        if VERSIONS not in self.excluded:
            way = f"--exclude {VERSIONS} accepts this, and the certificate names it"
            kept = {f"{v.problem}; {way}" for v in versions.values() if v and v.problem}
            problems += sorted(kept)
        if problems:
            return Erased(problems=tuple(problems))
        return Erased(proven={**_proof(scans, versions, self.excluded), "keys_found": self.done.keys_found})


def _require_own(table: TopicTable, place: Place) -> int | None:
    """Raise TableError if files of the table must not be deleted, or could belong to another table. Return the time
    (Unix ms) of its oldest own file; None if files that no snapshot has must stay."""
    if not may_delete_files(place.seen().properties):
        raise TableError(
            f"table {place.name} has {GC_ENABLED}=false: its files may be shared, and Cleantail deletes none of them; "
            "nothing more is erased. Set it to true if no other table uses the files"
        )
    if place.is_topic:
        return require_own(table).since_ms
    return require_own_side(table, place.seen(), place.quoted)


def _require_free(table: TopicTable, place: Place, scan: TableScan, excluded: Collection[str]) -> None:
    """Raise TableError for branches and tags that must stay, reach files with the keys, and are not excluded."""
    seen, tainted = place.seen(), {*scan.tainted_snapshots}
    reaching = {name for name, snapshot_id in scan.refs.items() if snapshot_id in tainted}
    if held := sorted(reaching - {"main", *excluded, *droppable(table, seen)}):
        ours = own_branches(seen)
        named = ", ".join(f"{name} ({_user_of(name) if name in ours else 'of another owner'})" for name in held)
        raise TableError(
            f"branches or tags of table {place.name} reach files with the keys: {named}; nothing more is erased while "
            "they are there. Finish the restore, answer the round or wait for its end, drop what is yours, or exclude "
            f"each by its name: --exclude {held[0]}. The certificate names what was excluded"
        )


def own_branches(table: Table) -> set[str]:
    """Return the branches whose whole names are Cleantail's: no tag, and not a user's branch `in_20240101`."""
    return {
        name
        for name, ref in table.metadata.refs.items()
        if ref.snapshot_ref_type == "branch"
        and (created_at_s(name) < float("inf") or kept_until_ms(name, 0) is not None)
    }


def droppable(table: TopicTable, seen: Table) -> set[str]:
    """Return Cleantail's branches without those that a restore, or a round of another kind, may still need. A process
    whose branch was dropped starts over. `seen`: the table, or a side table."""
    return {name for name in own_branches(seen) if table.is_stale(name) or not _user_of(name)}


def _user_of(branch: str) -> str:
    """Return who needs a branch of Cleantail while it is not stale. Empty if the branch can always be dropped."""
    if branch.startswith(RESTORE_PREFIX):
        return "a restore that is not finished"
    is_erasure = re.fullmatch(rf"{ROUND_BRANCH}.+_{BRANCH_LETTERS[ERASE]}\d+_\d+", branch)
    return "a round that runs or waits for approval" if branch.startswith(ROUND_BRANCH) and not is_erasure else ""


def _hide(run: Run, keys: ErasedKeys, scans: Scans, done: Done) -> RoundResult | None:
    """Publish a round without the keys' records. Return its result if it waits for approval or has failed."""
    for place, scan in scans.items():
        facts = read_facts(run.table.topic) if place.is_topic else None
        files = facts.files if facts is not None else ()
        logs = {file.partition for file in files if _named(scan, file.path) in scan.holding}
        if not logs:
            continue
        result = erase_round(run, keys, int(time.time() * 1000), logs)
        if result.holds and result.checked:
            return drop_if_waiting(run, result)
        if result.round and result.published:
            done.count(_to_hide(result.round, result))
        if not result.ok:
            return result
    return None


def _to_hide(name: str, made: CheckedRound | RoundResult) -> dict[str, Any]:
    """Return the name of a round, and how many records it hides in each log that is published."""
    logs = made.green if isinstance(made, CheckedRound) else made.published
    counts = {str(m.partition): m.deleted.get("erased", 0) for m in made.measures if m.partition in logs}
    return {"round": name, "records": {log: records for log, records in counts.items() if records}}


def _failures(result: RoundResult) -> tuple[str, ...]:
    return tuple(
        f"partition {verdict.partition}: {failure.expectation} ({failure.rule}): {failure.observed}"
        for verdict in result.verdicts
        for failure in verdict.failures
    )


def _rewrite(table: TopicTable, place: Place, scan: TableScan, keys: ErasedKeys | None) -> None:
    """Rewrite the files of `main` that hold the keys, without deleted records, and without those of `keys`. Raises
    ConflictError if others changed the files in every attempt."""

    def attempt() -> None:
        iceberg = place.load()
        current = iceberg.currentSnapshot()
        if current is None:
            return
        base = int(current.snapshotId())
        files = [f for f in planned_files(iceberg, table.jvm, base) if _named(scan, f.path) in scan.holding]
        if len({file.path for file in files}) < len(files):
            raise ConflictError(f"a file of {place.name} was registered again meanwhile")
        made = _written(table, iceberg, place, files, keys)
        replacements = [Replacement(number, old, new) for number, (old, new) in sorted(made.items())]
        try:
            replace_and_forget(table.jvm, place.load, replacements, base, {OPERATION: ERASE_FILES})
        except ConflictError:
            delete_files(table, [str(file.location()) for one in replacements for file in one.new])
            raise

    def retried(failed: int, error: BaseException) -> None:
        logger.warning("rewriting files of %s starts over (%d of %d): %s", place.name, failed, ROUNDS.tries, error)

    ROUNDS.run(attempt, retried)


def _named(scan: TableScan, path: str) -> str:
    """Return the name of a path as the scan has it."""
    bare, location = (text.partition("://")[2] or text.removeprefix("file:") for text in (path, scan.location))
    return bare[len(location) + 1 :] if bare.startswith(location + "/") else path


Made = dict[int, tuple[list[Any], list[Any]]]
"""Sequence number -> old files with their deletes, and the new ones that keep the number."""


def _written(
    table: TopicTable, iceberg: Any, place: Place, files: Sequence[PlannedFile], keys: ErasedKeys | None
) -> Made:
    """Write the live records of each file into new ones. No new file remains after an error."""
    try:
        tasks = [replace(rewrite_task(table, iceberg, [file]), in_order=False, without=keys) for file in files]
    except ConflictError:
        several = "a delete file has rows of several data files (CALL system.rewrite_position_delete_files splits it)"
        raise TableError(_refused(place, several)) from None
    except RefusedError as e:
        raise TableError(_refused(place, str(e))) from None
    if keys is not None:
        tasks = [replace(task, layout=layout_of(iceberg, {KEY: KEY})) for task in tasks]
    batches: list[list[int]] = []
    for number, file in enumerate(files):
        size = sum(files[at].facts.size_bytes for at in batches[-1]) if batches else BATCH_BYTES
        if size + file.facts.size_bytes > BATCH_BYTES:
            batches.append([])
        batches[-1].append(number)
    work = [[tasks[at] for at in batch] for batch in batches]
    outcomes = [one for batch in run_tasks(table, rewrite_all, work, "rewrite files with erased keys") for one in batch]
    written = [file for one in outcomes for file in one.files]
    try:
        if refused := [one.refusal for one in outcomes if one.refusal]:
            raise TableError(_refused(place, refused[0]))
        partitions = [file.task.file().partition() for file in files]
        by_partition = [(of, one.files) for of, one in zip(partitions, outcomes, strict=True)]
        new = iter(new_data_files(table, iceberg, iceberg.spec(), by_partition))
        made: Made = {}
        for file, one in zip(files, outcomes, strict=True):
            added = list(islice(new, len(one.files)))
            live = file.facts.records - sum(delete.count for delete in file.delete_files)
            records = sum(int(each_new.recordCount()) for each_new in added)
            if records != one.live_records or (keys is None and records != live):
                raise TableError(
                    f"rewriting {file.path} gave {counted(records, 'record')} for {live}; nothing was changed"
                )
            old, of_number = made.setdefault(file.arrived, ([], []))
            old.append((file.task.file(), list(each(file.task.deletes()))))
            of_number += added
        return made
    except BaseException:
        delete_files(table, [file.path for file in written])
        raise


def _refused(place: Place, reason: str) -> str:
    return (
        f"a file of table {place.name} holds the keys and cannot be rewritten: {reason}. Its records are hidden. "
        "Rewrite it by CALL system.rewrite_data_files(table => …, options => map('rewrite-all', 'true')). "
        "Then erase again"
    )


@dataclass(frozen=True, slots=True)
class Unreached:
    """Snapshots to expire, branches to drop with their snapshots, and the names that the table had before."""

    snapshots: tuple[int, ...]
    refs: Mapping[str, int]
    known: frozenset[str]


def _to_forget(
    table: TopicTable, place: Place, scan: TableScan, excluded: Collection[str], done: Done, since_ms: int | None
) -> Unreached:
    """Return what must be removed so that no snapshot reaches a file of the scan with the keys, or bounds of them. Adds
    the names of these files to `done`."""
    now = replace(place.scan(None), holding=scan.holding)
    tainted = {*now.tainted_snapshots}
    ours = droppable(table, place.seen()) - {*excluded}
    refs = {name: now.refs[name] for name in ours & now.refs.keys() if now.refs[name] in tainted}
    heads = {s for n, s in now.refs.items() if n not in refs}
    snapshots = tuple(sorted(tainted - heads))
    tainted_files, reached = scan.tainted | now.tainted, scan.reached() | now.reached()
    known = {*done.files.get(place.name, ()), *(tainted_files & reached)}
    # also manifests of a commit that was never sent: an earlier listing had them, and the files that they name are
    # recorded or gone, so no other commit can need them
    known |= {
        name
        for name in (now.tainted & scan.entries.keys()) - reached
        if all(file in known or now.is_gone(file) for file in now.tainting(name))
    }
    if since_ms is not None:  # of a killed run: no commit is open for so long
        before_ms = int(time.time() * 1000) - MIN_ORPHAN_AGE_MS
        known |= {n for n in tainted_files - reached if since_ms <= now.written_ms.get(n, before_ms) < before_ms}
    done.files[place.name] = sorted(known)
    were_reached = now.reached(snapshots) | scan.reached()
    return Unreached(snapshots, refs, frozenset(known | {n for n in were_reached if not n.endswith(NO_KEYS[:2])}))


def _remove(table: TopicTable, place: Place, forgotten: Unreached) -> None:
    if forgotten.snapshots or forgotten.refs:
        forget_snapshots(place.load, forgotten.snapshots, forgotten.refs)
    now = place.scan(None)
    unreached = sorted((forgotten.known & now.objects.keys()) - now.reached() - {now.metadata})
    delete_unreached(table.spark, place.load(), [f"{now.location}/{name}" for name in unreached], now.location)


def _proof(scans: Scans, versions: Mapping[Place, ObjectVersions | None], excluded: Collection[str]) -> dict[str, Any]:
    """Return the details of event PROVEN, without `keys_found`."""
    refs = sorted(name for name in excluded if any(name in scan.refs for scan in scans.values()))
    kept = {name: [holding for scan in scans.values() for holding in scan.kept_by(name)] for name in refs}
    older = sorted({v.problem for v in versions.values() if v and v.problem})
    listed = [v for v in versions.values() if v and not v.unseen]
    named = [
        f"{counted(scan.file_names, 'name')} of ingested files with a key as a part, in metadata of {scan.table}"
        for scan in scans.values()
        if scan.file_names
    ]
    return {
        "older_versions": {
            "listed": bool(listed),
            "versions": sum(v.older for v in listed),
            "delete_markers": sum(v.delete_markers for v in listed),
            "uploads": sum(v.uploads for v in listed),
        },
        "engine": engine(),
        "found": sum(holding.erased for scan in scans.values() for holding in scan.holding.values()),
        "tables": {
            scan.table: {
                "metadata": scan.metadata,
                "snapshot": str(scan.snapshot_id) if scan.snapshot_id is not None else "none",
                "snapshots": len(scan.lists),
                "objects": len(scan.objects),
                "bytes": sum(scan.objects.values()),
                "files": scan.read[0],
                "records": scan.read[1],
                "manifests": len(scan.entries),
            }
            for scan in scans.values()
        },
        "exclusions": [*(_kept(name, holdings) for name, holdings in kept.items()), *older, *named],
    }


def _kept(ref: str, holdings: Sequence[Holding]) -> str:
    """Return the exclusion of a branch or tag, with what it keeps."""
    records = counted(sum(holding.erased for holding in holdings), "record")
    return f"branch or tag {ref}: it keeps {records} of the keys in {counted(len(holdings), 'file')}"

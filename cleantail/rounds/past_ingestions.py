"""Find ingestions in `main`'s history, and undo one: restore the table without its records. Pure.

1. A commit is undone: its data files hold the records of all its source files together.
2. `main` becomes the snapshot before that commit, followed by every later append, unchanged. Later rewrites are undone
   too: they changed no record.
3. The marks of its source files are removed, so that the files can be ingested again. After a read of Kafka or of a
   table, the position moves back.
4. Undoing is refused if later work may depend on the commit's records: after a round, which can be undone first, and
   after another writer's change.
5. A quarantine that began after the ingestion is lifted, because the ingestion's records were the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from cleantail.codec import Codec
from cleantail.errors import CleantailError, TableError
from cleantail.human import instant, whole_number
from cleantail.log.partition_state import PartitionState
from cleantail.log.source_position import PROPERTY_POSITION, PROPERTY_SNAPSHOT_POSITION
from cleantail.rounds.commit_summaries import (
    BY,
    OPERATION,
    ROLLBACK,
    ROUND,
    UNDONE,
    Commit,
    freed_by_reclaims,
    whole_rounds,
)
from cleantail.rounds.rollback_plan import kept_appends

INGEST = "ingest"
"""The operation (cleantail.rounds.commit_summaries.OPERATION) of an ingestion's commit."""
SOURCES = "cleantail.sources"
"""Summary entry of an ingestion, and of the commit that undid it: source files or offsets at the source, and the log
ends before the ingestion."""
_PackedFiles = tuple[tuple[tuple[str, str], ...], Mapping[int, int | None]]
"""Files by content and name, and the log ends. Names of fields would be most of the text."""
_PackedRead = tuple[tuple[tuple[str, str], ...], Mapping[int, int | None], Mapping[int, tuple[int, int]], str | None]
"""The same, and the offsets that were read from Kafka."""
_PackedTable = tuple[
    tuple[tuple[str, str], ...], Mapping[int, int | None], Mapping[int, tuple[int, int]], str | None, str, int
]
"""The same for a source table, with its name and the snapshot."""
_SOURCES_JSON: Codec[_PackedFiles | _PackedRead | _PackedTable] = Codec(_PackedFiles | _PackedRead | _PackedTable)
LAST = "last"
UNDID_INGESTION = "ingestion "
"""Prefix of the summary entry cleantail.undone, in a snapshot that undid an ingestion. Its snapshot id follows."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was ingested: SHA-256 of its content, and its name without its folder."""

    sha256: str
    name: str


@dataclass(frozen=True, slots=True)
class KafkaRead:
    """A read of a topic in Kafka: [from, to) of offsets by partition, and the table's position before the read.

    The position is the stored text (cleantail.log.source_position), or None.
    """

    position_property: ClassVar[str] = PROPERTY_POSITION
    origin: ClassVar[str] = "Kafka"
    offsets: Mapping[int, tuple[int, int]]
    position_before: str | None


@dataclass(frozen=True, slots=True)
class TableRead:
    """What was read of a source table up to a snapshot. A partition's offsets may include some that came before."""

    position_property: ClassVar[str] = PROPERTY_SNAPSHOT_POSITION
    offsets: Mapping[int, tuple[int, int]]
    position_before: str | None
    table: str
    snapshot_id: int

    @property
    def origin(self) -> str:
        return f"table {self.table} up to snapshot {self.snapshot_id}"


@dataclass(frozen=True, slots=True)
class Sources:
    """What an ingestion records about itself. `log_ends`: the log end in each log's earlier state, or None.

    An ingestion from Kafka or from a table has `read` and no files.
    """

    files: tuple[SourceFile, ...]
    log_ends: Mapping[int, int | None]
    read: KafkaRead | TableRead | None = None

    def packed(self) -> str:
        """Return one short text: a summary stays in the table's metadata as long as its snapshot."""
        files = tuple((f.sha256, f.name) for f in self.files)
        if self.read is None:
            return _SOURCES_JSON.packed((files, self.log_ends))
        of_read = (files, self.log_ends, self.read.offsets, self.read.position_before)
        if isinstance(self.read, KafkaRead):
            return _SOURCES_JSON.packed(of_read)
        return _SOURCES_JSON.packed((*of_read, self.read.table, self.read.snapshot_id))


def unpacked_sources(text: str, where: str) -> Sources:
    """Parse what Sources.packed returned. Raises TableError, naming `where`."""
    packed = _SOURCES_JSON.unpacked(text, where)
    files = tuple(SourceFile(*file) for file in packed[0])
    if len(packed) == 6:
        return Sources(files, packed[1], TableRead(*packed[2:]))
    return Sources(files, packed[1], KafkaRead(*packed[2:]) if len(packed) == 4 else None)


@dataclass(frozen=True, slots=True)
class Ingestion:
    """A commit of `cleantail ingest` in main's kept history.

    `sources` is None if the commit recorded no sources. `refusal`: why it cannot be undone now; empty if it can.
    """

    snapshot_id: int
    at_ms: int
    records: int
    sources: Sources | None
    refusal: str = ""

    @property
    def files(self) -> tuple[SourceFile, ...]:
        return self.sources.files if self.sources else ()

    @property
    def read(self) -> KafkaRead | TableRead | None:
        return self.sources.read if self.sources else None

    @property
    def names(self) -> str:
        """Return the names of its files, or its offsets at the source."""
        if self.read is not None:
            spans = (f"{p}: {low} to {end - 1}" for p, (low, end) in sorted(self.read.offsets.items()))
            return f"offsets from {self.read.origin}, by partition {', '.join(spans) or 'none'}"
        return ", ".join(f.name for f in self.files) or "files that it does not name"

    def as_json(self) -> dict[str, Any]:
        return {
            "snapshot_id": self.snapshot_id,
            "at_ms": self.at_ms,
            "records": self.records,
            "files": [asdict(f) for f in self.files],
            "refusal": self.refusal,
        }


def ingestion_of(commit: Commit, topic: str) -> Ingestion:
    """Return a commit's ingestion. Raises TableError if its summary cannot be parsed."""
    text = commit.summary.get(SOURCES)
    where = f"{topic}: {SOURCES} of snapshot {commit.snapshot_id}"
    records = commit.summary.get("added-records", "0")
    sources = unpacked_sources(text, where) if text else None
    return Ingestion(commit.snapshot_id, commit.at_ms, whole_number(records) or 0, sources)


@dataclass(frozen=True, slots=True)
class IngestionChoice:
    """The ingestion that a user means. `text` is the user's argument: `last`, a snapshot's id, or a file. A file is
    identified by its content (`sha256`) if it exists, else by its name."""

    text: str
    snapshot_id: int | None = None
    sha256: str | None = None
    name: str | None = None

    def means(self, ingestion: Ingestion) -> bool:
        if self.sha256 is not None:
            return any(f.sha256 == self.sha256 for f in ingestion.files)
        if self.name is not None:
            return any(f.name == self.name for f in ingestion.files)
        return self.snapshot_id in (None, ingestion.snapshot_id)


@dataclass(frozen=True, slots=True)
class IngestionUndo:
    """What undoing an ingestion does. `to_snapshot_id` is the snapshot before it, None without one.
    `appends`: the snapshots whose files are appended again, oldest first. `freed_bytes`: bytes that the undone reclaims
    had freed and that files take again. `others`: the other ingestions of the kept history, newest first."""

    ingestion: Ingestion
    sources: Sources
    to_snapshot_id: int | None
    appends: tuple[int, ...]
    rewrites: int
    freed_bytes: int
    others: tuple[Ingestion, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "ingestion": self.ingestion.as_json(),
            "to_snapshot_id": self.to_snapshot_id,
            "appends_kept": len(self.appends),
            "rewrites_undone": self.rewrites,
            "others": [other.as_json() for other in self.others],
        }


@dataclass(frozen=True, slots=True)
class UndoneIngestion:
    """An ingestion that was undone before: by which snapshot, when (Unix ms), and at whose request."""

    snapshot_id: int
    at_ms: int
    by: str
    ingestion: Ingestion


def ingestions(history: Sequence[Commit], topic: str) -> tuple[Ingestion, ...]:
    """Return the ingestions in main's kept history, newest first, each with whether it can be undone.

    `history` is the ancestry of `main`, newest first, as far as it is kept.
    """
    indexes = [index for index, c in enumerate(history) if c.summary.get(OPERATION) == INGEST]
    return tuple(
        replace(ingestion_of(history[index], topic), refusal=refusal(history, index, topic)) for index in indexes
    )


def plan_undo(history: Sequence[Commit], choice: IngestionChoice, topic: str) -> IngestionUndo:
    """Plan how to undo the chosen ingestion. Raises CleantailError if no ingestion matches, or
    several do. Raises TableError if it cannot be undone."""
    kept_ingestions = ingestions(history, topic)
    ingestion = _chosen_ingestion(history, kept_ingestions, choice, topic)
    if ingestion.refusal or ingestion.sources is None:
        title = f"ingestion {ingestion.snapshot_id} of {instant(ingestion.at_ms)} UTC ({ingestion.names})"
        raise TableError(f"{topic}: {title} cannot be undone: {ingestion.refusal}; nothing was changed")
    index = next(n for n, c in enumerate(history) if c.snapshot_id == ingestion.snapshot_id)
    since = history[:index]
    return IngestionUndo(
        ingestion=ingestion,
        sources=ingestion.sources,
        to_snapshot_id=history[index].parent_id,
        appends=kept_appends(since),
        rewrites=sum(c.operation == "replace" for c in since),
        freed_bytes=freed_by_reclaims(since),
        others=tuple(other for other in kept_ingestions if other != ingestion),
    )


def undone_before(history: Sequence[Commit], choice: IngestionChoice, topic: str) -> UndoneIngestion | None:
    """Return the snapshot that undid the chosen ingestion, if nothing in the table matches the choice any more."""
    if choice.text == LAST or any(choice.means(ingestion) for ingestion in ingestions(history, topic)):
        return None
    for commit in history:
        name = commit.summary.get(UNDONE, "")
        if commit.summary.get(OPERATION) == ROLLBACK and name.startswith(UNDID_INGESTION):
            undone = whole_number(name.removeprefix(UNDID_INGESTION)) or 0
            ingestion = replace(ingestion_of(commit, topic), snapshot_id=undone)
            if choice.means(ingestion):
                return UndoneIngestion(commit.snapshot_id, commit.at_ms, commit.summary.get(BY, ""), ingestion)
    return None


def refusal(history: Sequence[Commit], index: int, topic: str) -> str:
    """Return why the ingestion at this index of the history cannot be undone, and a way out. Empty if it can.

    Any round since then counts, regardless of its changes: checkpoints, proofs and horizons depend on all records that
    it read.
    """
    commit, since = history[index], history[:index]
    # 1. a round since then may be built on its records
    if rounds := [c for c in whole_rounds(since) if c.is_round]:
        first = rounds[-1]
        more = f" and {len(rounds) - 1} more since" if len(rounds) > 1 else ""
        return (
            f"round {first.summary.get(ROUND)} of {instant(first.at_ms)} UTC{more} was published after it, and may be "
            f"built on its records. First run `cleantail rollback {topic} --to {first.parent_id}`"
        )
    # 2. so may another writer's change
    if foreign := next((c for c in since if c.operation not in ("append", "replace")), None):
        return (
            f"snapshot {foreign.snapshot_id} of {instant(foreign.at_ms)} UTC ({foreign.operation}) came after it and "
            "is not Cleantail's: its changes would be undone too"
        )
    # 3. a read of Kafka, or of a table, begins where the one before it ends
    later = next((c for c in since if _read_of(c, topic) is not None), None)
    if later is not None and _read_of(commit, topic) is not None:
        origin = "Kafka" if isinstance(_read_of(later, topic), KafkaRead) else "its source table"
        return (
            f"the topic was read further from {origin} after it, as snapshot {later.snapshot_id}, whose offsets would "
            "be read a second time. Undo that one first"
        )
    # 4. the snapshot to go back to must be kept, and the commit must name the marks to remove
    if commit.parent_id is not None and all(c.snapshot_id != commit.parent_id for c in history):
        return "the snapshot before it has expired (cleantail.snapshot.retention.ms)"
    if SOURCES not in commit.summary:
        return f"its summary lacks entry {SOURCES}, which has the marks to remove"
    return ""


def _read_of(commit: Commit, topic: str) -> KafkaRead | TableRead | None:
    return ingestion_of(commit, topic).read if commit.summary.get(OPERATION) == INGEST else None


def lowered(state: PartitionState, log_end: int | None) -> PartitionState:
    """Return the state of a log without the ingestion, before which its log end was `log_end`.

    Only later rounds that were undone can have moved the log end. It never moves below the first dirty offset.
    """
    ends = [end for end in (log_end, state.checkpoint) if end is not None]
    before = max(ends, default=None)
    if state.log_end_offset is None or (before is not None and before >= state.log_end_offset):
        return state
    return replace(state, log_end_offset=before)


def without_ingestion(state: PartitionState, log_end: int | None, at_ms: int) -> PartitionState:
    """Return the state of a log after the ingestion of `at_ms` (Unix ms) is undone.

    The state is `lowered`, and has no quarantine that began after the ingestion. The ingestion's records were the
    reason, and if nothing else is due, no round would lift the quarantine.
    """
    state = lowered(state, log_end)
    since_ms = state.quarantine.since_ms if state.quarantine else 0
    return replace(state, quarantine=None) if since_ms >= at_ms else state


def _chosen_ingestion(
    history: Sequence[Commit], kept_ingestions: Sequence[Ingestion], choice: IngestionChoice, topic: str
) -> Ingestion:
    """Return the chosen ingestion. Raises CleantailError if no ingestion matches, or several do."""
    meant = [ingestion for ingestion in kept_ingestions if choice.means(ingestion)]
    if choice.text == LAST and meant:
        return meant[0]
    if not meant:
        raise CleantailError(_unknown(history, choice, topic))
    if len(meant) > 1:
        ids = ", ".join(str(one.snapshot_id) for one in meant)
        raise CleantailError(f"{topic}: {choice.text} was ingested {len(meant)} times: name the snapshot, one of {ids}")
    [one] = meant
    if choice.snapshot_id is None and len(one.files) > 1:
        raise CleantailError(
            f"{topic}: {choice.text} came in one commit with others, and can only be undone with them ({one.names}): "
            f"--ingestion {one.snapshot_id} undoes all of them; nothing was changed"
        )
    return one


def _unknown(history: Sequence[Commit], choice: IngestionChoice, topic: str) -> str:
    """Return why no ingestion in the table's history matches."""
    if choice.text == LAST:
        return f"{topic}: no ingestion is in the table's kept history: nothing to undo"
    same_name = [one for one in ingestions(history, topic) if choice.name in {f.name for f in one.files}]
    if same_name and choice.sha256:
        ids = ", ".join(str(one.snapshot_id) for one in same_name)
        return (
            f"{topic}: no ingestion in the kept history has the present content of {choice.text}. A file of its name "
            f"came with other content, as snapshot {ids}: name that with --ingestion; nothing was changed"
        )
    if commit := next((c for c in history if c.snapshot_id == choice.snapshot_id), None):
        what = commit.summary.get(OPERATION) or f"{commit.operation} of another writer, as a sink"
        return (
            f"{topic}: snapshot {commit.snapshot_id} is not an ingestion of Cleantail's ({what}): a writer with its "
            "own position would never bring its records again; nothing was changed"
        )
    return (
        f"{topic}: no ingestion in the table's kept history is {choice.text}: it never existed, it was undone, or its "
        "snapshot has expired (cleantail.snapshot.retention.ms); nothing was changed. "
        f"`cleantail rollback {topic} --ingestion last --dry-run` lists the ingestions"
    )

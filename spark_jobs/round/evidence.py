"""The evidence: an Iceberg table with the results of checks and the outcomes of rounds (cleantail.rounds.past_rounds).

PyIceberg reads and appends the rows, because a Spark job for each row would take longer than all checks of a log. A
process that both checks and publishes keeps its rows in a file until it ends. Then it appends them in one commit
(`rows_kept`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, TypeVar, cast

import pyarrow as pa
from pyiceberg.expressions import And, EqualTo, In, LessThan, NotIn, NotStartsWith
from pyiceberg.table import Transaction

from cleantail.codec import FORMAT, require_format
from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE
from cleantail.config.unholdable import ERASED
from cleantail.errors import CleantailError
from cleantail.home.home_folder import OWNER_FILE_MODE, exclusive, make_folder
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.foreign_errors import explained
from cleantail.lake.own_tables import append_to, commit_once, own_table
from cleantail.lake.recorded_rounds import evidence_rows, load_evidence
from cleantail.log.rules import LogMeasure
from cleantail.rounds.approval import approved_note
from cleantail.rounds.check_results import CHECK_RESULTS_JSON, CheckResult, sample_column
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.commit_summaries import OPERATION, RECLAIM, ROLLBACK, ROUND, Commit, summary_number
from cleantail.rounds.evidence_row import CHECKED_ROUND, DELETED_JSON, EVIDENCE_COLUMNS, EvidenceRow, columns_of
from cleantail.rounds.past_rounds import (
    CHECKED,
    CHECKS,
    DAY,
    DAY_MS,
    ERASED_BESIDE,
    HELD_BACK,
    OF_DAYS,
    PUBLISHED,
    day_rows,
    undone_or_open,
)
from cleantail.rounds.recorded_checks import parts_of
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable

if TYPE_CHECKING:
    from pyiceberg.table import Table


logger = logging.getLogger("cleantail.evidence")
T = TypeVar("T")

SCHEMA = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in EVIDENCE_COLUMNS.items()])
MAY_BE_UNKNOWN = ("partition", "began_ms", "saved_bytes", "rounds")
"""Numeric columns that are null if unknown, because 0 has a meaning. For example, a reclaim has no partition."""
EMPTY = {f.name: 0 for f in SCHEMA if pa.types.is_integer(f.type) and f.name not in MAY_BE_UNKNOWN} | {
    "note": "",
    "deleted": "{}",
    "passed": True,
    "checks": "[]",
    "sample": "[]",
}
"""Defaults of a row's columns."""

RowsOfTopic = tuple[TopicTable, Iterable[EvidenceRow]]


def evidence_table(platform: Platform) -> Table:
    """Load or create the evidence table. Adds missing columns and properties."""
    return own_table(platform, EVIDENCE, SCHEMA, load_evidence(kept_catalog(platform), platform))


def rows_of(evidence: Table, values: Mapping[str, str | None]) -> list[EvidenceRow]:
    """Return the rows that have all these values."""
    return evidence_rows(evidence, And(*(EqualTo(name, value) for name, value in values.items())))


def append_rows(evidence: Table, table: TopicTable, rows: Iterable[EvidenceRow]) -> None:
    """Append rows about a topic in one commit, at once."""
    _append(evidence, _complete([(table, rows)]))


def record_rows(platform: Platform, rows: Iterable[RowsOfTopic]) -> None:
    """Append rows about topics in one commit: at once, or at the end of the block `rows_kept`."""
    complete = _complete(rows)
    if kept := _KEPT.get(platform.home):
        kept.add(complete)
    elif complete:
        _append(evidence_table(platform), complete)


def record_done(table: TopicTable, rows: Iterable[EvidenceRow]) -> None:
    """Record rows about a commit that is in the topic's table already, in one commit.

    If the evidence cannot be written, the rows stay in the home for the next run. Otherwise a command would fail after
    it had changed the table."""
    with rows_kept(table.platform):
        record_rows(table.platform, [(table, rows)])


def _complete(rows: Iterable[RowsOfTopic]) -> list[EvidenceRow]:
    """Return the rows with their writer, the time, and the defaults of missing columns."""
    common = EMPTY | {"checked_at_ms": int(time.time() * 1000)}
    return [
        cast("EvidenceRow", common | columns_of(table.topic.platform.env) | {"topic": table.topic.topic, **row})
        for table, of_table in rows
        for row in of_table
    ]


@dataclass(slots=True)
class _Kept:
    """Rows that a process has not appended yet, in memory and in a file of the home."""

    home: Path
    rows: list[EvidenceRow] = field(default_factory=list)
    file: IO[str] | None = None
    one_at_a_time: Lock = field(default_factory=Lock)

    def add(self, rows: Sequence[EvidenceRow]) -> None:
        """Keep the rows. Returns after they are on the disk."""
        with self.one_at_a_time:
            if self.file is None:
                with exclusive(self.home, KEPT_LOCK):
                    path = make_folder(self.home, KEPT_FOLDER) / f"{uuid.uuid4().hex}.jsonl"
                    self.file = path.open("x", encoding="utf-8")
                    path.chmod(OWNER_FILE_MODE)
                    fcntl.flock(self.file, fcntl.LOCK_EX)  # shows that the process lives
            # begins with a line break, because a full disk may have cut the previous rows
            self.file.write("".join(f"\n{json.dumps({'format': FORMAT, **row})}\n" for row in rows))
            self.file.flush()
            os.fsync(self.file.fileno())
            self.rows += rows


_KEPT: dict[Path, _Kept] = {}
"""Home -> the rows that this process keeps now."""
KEPT_FOLDER, KEPT_LOCK = "evidence", "kept-evidence"


@contextmanager
def rows_kept(platform: Platform) -> Iterator[None]:
    """Keep the rows of the block in a file, and append all of them in one commit at its end. If the process dies, or
    the commit fails, the file stays, and the next such block with this home appends its rows."""
    if platform.home in _KEPT:
        yield
        return
    append_left(platform)
    kept = _KEPT[platform.home] = _Kept(platform.home)
    try:
        yield
    finally:
        del _KEPT[platform.home]
        if kept.file is not None:
            with _left_if_outside(), kept.file:
                _append(evidence_table(platform), kept.rows)
                Path(kept.file.name).unlink()


@contextmanager
def _left_if_outside() -> Iterator[None]:
    """Only warn about an error of a catalog, a store or a disk, because the rounds are published."""
    try:
        yield
    except Exception as error:
        cause = error if isinstance(error, CleantailError) else explained(error)
        if cause is None:
            raise
        logger.warning("rows of evidence stay in CLEANTAIL_HOME/%s for the next run: %s", KEPT_FOLDER, cause)


def append_left(platform: Platform) -> None:
    """Append the rows that dead processes have left in this home, in one commit. Appends no row twice."""
    folder = platform.home / KEPT_FOLDER
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    with exclusive(platform.home, KEPT_LOCK), _left_if_outside(), contextlib.ExitStack() as claims:
        claimed = [
            claims.enter_context(file) for path in folder.glob("*.jsonl") if (file := _claimed(path)) is not None
        ]
        rows, read = list[EvidenceRow](), list[IO[str]]()
        for file in claimed:
            with _left_if_outside():
                rows += [row for line in file if (row := _row(line, file.name)) is not None]
                read.append(file)
        if rows:  # the process that kept them may have died after its commit
            evidence = evidence_table(platform)
            names = ("topic", "kind", "round", "partition", "outcome", "checked_at_ms")
            there = evidence_rows(evidence, In("checked_at_ms", {row["checked_at_ms"] for row in rows}))
            _append(evidence, _lacking(there, rows, names))
        for file in read:
            Path(file.name).unlink(missing_ok=True)


def _claimed(path: Path) -> IO[str] | None:
    """Open and lock a file of kept rows. Returns None if its process lives, or has just appended the rows."""
    with contextlib.suppress(FileNotFoundError):
        file = path.open(encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            file.close()
    return None


def _row(line: str, file: str) -> EvidenceRow | None:
    """Return the row, or None for an empty or cut line. Raises TableError for an unknown format."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    require_format(file, "format", row.pop("format", FORMAT))
    return cast("EvidenceRow", row)


def _lacking(there: Iterable[EvidenceRow], rows: Iterable[EvidenceRow], names: Sequence[str]) -> list[EvidenceRow]:
    """Return the rows that are not there. `names`: the columns that identify a row."""
    known = {tuple(row.get(name) for name in names) for row in there}
    return [row for row in rows if tuple(row.get(name) for name in names) not in known]


def append_once(table: TopicTable, rows: Sequence[EvidenceRow], identified_by: Sequence[str]) -> None:
    """Append rows that the evidence lacks, so that a repeated task records each row once.

    All rows have one kind and one topic. `identified_by`: the columns that identify a row among them."""
    if rows:
        evidence = evidence_table(table.platform)
        there = rows_of(evidence, {"topic": table.topic.topic, "kind": rows[0]["kind"]})
        append_rows(evidence, table, _lacking(there, rows, identified_by))


def _append(table: Table, rows: Sequence[EvidenceRow]) -> None:
    """Append rows in one commit, which also expires old snapshots. Without rows, commits nothing."""
    if rows:
        append_to(table, pa.Table.from_pylist(list(rows), SCHEMA))


def summarize_days(table: TopicTable, until_ms: int) -> int:
    """Replace the topic's rows past cleantail.evidence.retention.ms by one row a day, in one commit. Returns their
    number. Today's rows, and those that undone_or_open names, stay. `until_ms`: the clock.

    Rows wait for each other for a week, or for the retention if that is shorter. The topics of a pack share files, and
    each commit writes such a file again."""
    retention_ms = table.topic.config.cleantail_evidence_retention_ms
    before_ms = (until_ms - retention_ms) // DAY_MS * DAY_MS
    oldest_ms = (until_ms - retention_ms - min(retention_ms, WEEK_MS)) // DAY_MS * DAY_MS
    of_topic = EqualTo("topic", table.topic.topic)
    evidence = evidence_table(table.platform)

    def stage(transaction: Transaction) -> int:
        past = And(of_topic, LessThan("now_ms", before_ms), In("kind", OF_DAYS), NotStartsWith("round", DAY))
        if not evidence_rows(evidence, And(past, LessThan("now_ms", oldest_ms))):
            return 0
        rows = evidence_rows(evidence, past)
        kept = undone_or_open([*rows, *evidence_rows(evidence, And(of_topic, EqualTo("kind", ROLLBACK)))])
        old = [row for row in rows if row["round"] not in kept]
        if old:
            days = pa.Table.from_pylist(day_rows(old), SCHEMA)
            transaction.overwrite(days, And(past, NotIn("round", kept)))
        return len(old)

    return commit_once(evidence, stage)


WEEK_MS = 7 * DAY_MS
ROUNDS_BACK, COMMITS_BACK = 8, 64
"""Number of the newest rounds, and of commits, that a check searches for unreported publications."""
DEAD_AFTER_MS = 5_000
"""Age at which the publisher of a round without an outcome counts as dead. A live publisher needs a fraction of
this."""
Evidence = tuple[TopicTable, CheckedRound, Sequence[CheckResult]]
"""A checked round of a topic's table, and all results of its check."""


def append_evidence(platform: Platform, rounds: Sequence[Evidence]) -> None:
    """Record one row per log of these checked rounds, in one commit. Publish reads these rows, whose JSON columns have
    no record data."""
    unreported = _unreported(platform, [table for table, _, _ in rounds])
    record_rows(platform, [*unreported, *((table, checked_rows(of, results)) for table, of, results in rounds)])


def checked_rows(checked: CheckedRound, results: Sequence[CheckResult]) -> list[EvidenceRow]:
    parts, rows = parts_of(checked), []
    for measure in checked.measures:
        log, passed = measure.partition, measure.partition in checked.green
        own_results = tuple(result for result in results if result.partition == log)
        rows.append(
            _measured(checked, measure)
            | {"outcome": CHECKED if passed else HELD_BACK, "passed": passed}
            | {"checks": CHECK_RESULTS_JSON.text(own_results), "sample": sample_column(checked.sample, log)}
            | {CHECKED_ROUND: parts[log]}
        )
    return rows


def append_answer(table: TopicTable, checked: CheckedRound, outcome: str, note: str = "") -> None:
    """Record a round's outcome for each log that passed. `note`: the user who decided, and the reason."""
    passed = (m for m in checked.measures if m.partition in checked.green)
    rows = [_measured(checked, measure) | {"outcome": outcome, "note": note} for measure in passed]
    if outcome != PUBLISHED:  # every record is still there
        rows = [row | {"records_out": row["records_in"], "tombstones_out": row["tombstones_in"]} for row in rows]
    record_rows(table.platform, [(table, rows)])


def append_reclaim(table: TopicTable, freed_bytes: int, now_ms: int) -> None:
    """Record the freed bytes of a topic. Snapshots have this number too, but expire."""
    row: EvidenceRow = {"round": "", "kind": RECLAIM, "outcome": PUBLISHED}
    record_done(table, [row | {"now_ms": now_ms, "freed_bytes": freed_bytes}])


def append_erased_rows(table: TopicTable, name: str, commits: Iterable[Commit]) -> None:
    """Record the commits that removed records from side table `name`, unless a killed run has recorded them."""
    evidence = evidence_table(table.platform)
    known = {row["head_snapshot_id"] for row in rows_of(evidence, {"topic": table.topic.topic, "kind": ERASED_BESIDE})}
    rows: list[EvidenceRow] = []
    for commit in commits:
        added, removed, left = (summary_number(commit.summary, f"{of}-records") for of in ("added", "deleted", "total"))
        if removed > added and commit.snapshot_id not in known:
            row: EvidenceRow = {"round": "", "kind": ERASED_BESIDE, "outcome": PUBLISHED, "note": f"table {name}"}
            row |= {"now_ms": commit.at_ms, "head_snapshot_id": commit.snapshot_id}
            row |= {"base_snapshot_id": commit.parent_id or 0, "deleted": DELETED_JSON.text({ERASED: removed - added})}
            rows.append(row | {"records_in": left + removed - added, "records_out": left})
    if rows:
        append_rows(evidence, table, rows)


def _unreported(platform: Platform, tables: Iterable[TopicTable]) -> list[RowsOfTopic]:
    """Return rows for the newest rounds on `main` whose outcome was not recorded, because the publisher died."""
    commits = [(table, commit) for table in tables for commit in _ended_rounds(table)]
    if not commits:
        return []
    names = {str(commit.summary.get(ROUND)) for _, commit in commits}
    by_round: dict[tuple[str, str, str], list[EvidenceRow]] = {}
    for row in (*evidence_rows(evidence_table(platform), In("round", names)), *_kept_rows(platform)):
        by_round.setdefault((row["topic"], row["round"], row["kind"]), []).append(row)
    unreported: list[RowsOfTopic] = []
    for table, commit in commits:
        named = table.topic.topic, str(commit.summary.get(ROUND)), commit.summary[OPERATION]
        unreported.append((table, _published(by_round.get(named, []), approved_note(commit.approved_by))))
    return unreported


def _ended_rounds(table: TopicTable) -> list[Commit]:
    """Return the newest rounds on `main` whose publishers have recorded the outcome, or died. Earlier checks have
    recorded the rounds before them."""
    rounds = [c for c in islice(history(table.load()), COMMITS_BACK) if c.is_round]
    return [c for c in rounds[:ROUNDS_BACK] if time.time() * 1000 - c.at_ms >= DEAD_AFTER_MS]


def _published(rows: Sequence[EvidenceRow], note: str) -> list[EvidenceRow]:
    """Return the outcome rows of a published round if `rows` of it have none."""
    if any(row["outcome"] not in CHECKS for row in rows):
        return []
    last = {row["partition"]: row for row in sorted(rows, key=lambda r: r["checked_at_ms"])}
    published: EvidenceRow = {
        "outcome": PUBLISHED,
        "note": note,
        "checks": "[]",
        CHECKED_ROUND: None,
        "checked_at_ms": int(time.time() * 1000),
    }
    return [row | published for row in last.values() if row["outcome"] == CHECKED]


def has_answer(table: TopicTable, checked: CheckedRound, outcome: str) -> bool:
    """Return whether append_answer has recorded this outcome of the round.

    Compares the heads of the branches too, because a repeated round may have the same name."""
    values = {"topic": table.topic.topic, "round": checked.round, "kind": checked.kind, "outcome": outcome}
    kept = (row for row in _kept_rows(table.platform) if all(row.get(name) == of for name, of in values.items()))
    heads = {row["head_snapshot_id"] for row in (*kept, *rows_of(evidence_table(table.platform), values))}
    return not heads.isdisjoint(checked.heads)


def _kept_rows(platform: Platform) -> list[EvidenceRow]:
    kept = _KEPT.get(platform.home)
    return list(kept.rows) if kept else []


def _measured(checked: CheckedRound, measure: LogMeasure) -> EvidenceRow:
    unit, work = next((u, w) for u, w in checked.works() if w.partition == measure.partition)
    return {
        "partition": measure.partition,
        "round": checked.round,
        "kind": checked.kind,
        "now_ms": unit.now_ms,
        "base_snapshot_id": unit.base_snapshot_id,
        "head_snapshot_id": unit.head_snapshot_id,
        "first_dirty_offset": work.first_dirty_offset,
        "end_offset": work.end_offset,
        "records_in": measure.records_in,
        "records_out": measure.records_out,
        "tombstones_in": measure.tombstones_in,
        "tombstones_out": measure.tombstones_out,
        "deleted": DELETED_JSON.text(measure.deleted),
        "began_ms": unit.began_ms,
        "saved_bytes": unit.counts.saved_bytes.get(measure.partition),
    }

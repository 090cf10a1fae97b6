"""Undo published rounds: one commit restores the table and state before them and keeps all later appends.

`--to` is `last` (before the last published round) or the id of a snapshot in main's history. Later rounds are undone,
rewritten files are restored, appends are kept, also those during the rollback. If another round is published meanwhile,
nothing is undone (exit code 3).

A task's rollback runs once, because tasks are retried, or cleared days later (`undo_once`). A person's command shows
its plan and runs exactly that plan (`rollback_topic`); each call is another rollback.

An ingestion is undone in the same way. One commit removes its records, restores its log end, and removes its file marks
or restores its source position. Later appends stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import SparkSession

from cleantail.config.topic import Topic
from cleantail.errors import ConflictError, HeldError
from cleantail.lake.rollbacks import (
    LogUndo,
    LogWithout,
    RepeatedRollback,
    RollbackResult,
    changed_logs,
    done_already,
    preview,
)
from cleantail.log.partition_state import PROPERTY_INGESTED, PROPERTY_PARTITION, PartitionState, states_of_properties
from cleantail.rounds.commit_summaries import BY, OPERATION, REQUEST, ROLLBACK, UNDONE, Commit
from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.past_ingestions import (
    SOURCES,
    UNDID_INGESTION,
    IngestionChoice,
    IngestionUndo,
    plan_undo,
    without_ingestion,
)
from cleantail.rounds.past_rounds import PUBLISHED, UNDID
from cleantail.rounds.rollback_plan import RollbackPlan, UndoneRound, plan_rollback, restored
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.commits import Rollback
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import evidence_table, record_done, rows_of
from spark_jobs.round.released_logs import note_rewritten


def undo_once(
    session: Callable[[], SparkSession],
    topic: Topic,
    now_ms: int,
    to: int | None,
    by: str,
    request: str,
    asked_ms: int | None,
) -> RollbackResult | RepeatedRollback:
    """Run the rollback that a task requests once, also if the task is repeated.

    1. If an earlier attempt did it, return its result without Spark.
    2. Refuse a request whose result has left the table's history, and rounds newer than the request.
    3. Run the plan.

    `to`: snapshot id, None for the state before the last round. `by`: user who requested it. `request`: its name, empty
    without one. `asked_ms`: its time, Unix ms, None if unknown.
    """
    if done := done_already(topic, request):
        return RepeatedRollback.of(done, changed_logs(topic))
    require_new(topic, request)
    planned, logs = preview(topic, to)
    require_older_than_request(topic, planned, asked_ms)
    return rollback_topic(TopicTable.of(session(), topic), planned, logs, by, now_ms, request)


def roll_back(table: TopicTable, expected: RollbackPlan, by: str, request: str = "") -> int:
    """Run the plan on the current table, and return the id of the new snapshot. Raises ConflictError if the rollback
    would undo other rounds than the plan."""

    def plan(history: Sequence[Commit], properties: Mapping[str, str]) -> Rollback:
        states = states_of_properties(properties, table.name)
        current = plan_rollback(history, expected.to_snapshot_id, table.topic.table, states)
        if current.undone != expected.undone:
            raise ConflictError(f"{table.topic.topic}: another round was published meanwhile; nothing was undone")
        new = {p: restored(before, states.get(p, PartitionState())) for p, before in current.states.items()}
        names = ",".join(u.round for u in current.undone)
        return Rollback(
            current.to_snapshot_id,
            current.appends,
            {f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in new.items()},
            {OPERATION: ROLLBACK, UNDONE: names, BY: by} | ({REQUEST: request} if request else {}),
        )

    return commits.roll_back(table, plan)


def rollback_topic(
    table: TopicTable, planned: RollbackPlan, logs: Sequence[LogUndo], by: str, now_ms: int, request: str = ""
) -> RollbackResult:
    """Roll back, and append a row of evidence for each log.

    A crash in between only loses the rows: the snapshot's summary has the rounds and the user. Reads the evidence
    before the commit, so that an unreadable one changes nothing."""
    put_back = _put_back_bytes(table, planned.undone)
    note_rewritten(table, now_ms)
    snapshot_id = roll_back(table, planned, by, request)
    append_rollback(table, planned, logs, put_back, by, now_ms)
    return RollbackResult.of(planned, logs, snapshot_id, changed_logs(table.topic, planned.states))


def require_older_than_request(topic: Topic, planned: RollbackPlan, asked_ms: int | None) -> None:
    """Raise HeldError if the rollback would undo a round newer than its request.

    A task that waited, or was cleared days later, must not undo rounds that the user had not seen."""
    later = [u.round for u in planned.undone if asked_ms is not None and u.at_ms > asked_ms]
    if later:
        raise HeldError(
            f"{topic.topic}: round {', '.join(later)} was published after the rollback was requested; nothing was "
            "undone. To undo that round too, trigger another rollback"
        )


def append_rollback(
    table: TopicTable,
    planned: RollbackPlan,
    logs: Sequence[LogUndo],
    put_back: Mapping[int, int],
    by: str,
    now_ms: int,
) -> None:
    rows: list[EvidenceRow] = [
        {
            "partition": log.partition,
            "base_snapshot_id": planned.to_snapshot_id,
            "first_dirty_offset": log.checkpoint_after or 0,
            "end_offset": log.checkpoint or 0,
            "records_in": log.records,
            "records_out": log.records_after,
            "saved_bytes": put_back.get(log.partition, 0),
        }
        for log in logs
    ]
    _record(table, ", ".join(u.round for u in planned.undone), f"by {by}", now_ms, planned.freed_bytes, rows)


def _record(
    table: TopicTable, undone: str, note: str, now_ms: int, freed_bytes: int, rows: Sequence[EvidenceRow]
) -> None:
    """Record rows of logs. The first also has the freed bytes, which are of the table and not of a log."""
    name = f"{UNDID}{undone}"
    head: EvidenceRow = {"round": name, "kind": ROLLBACK, "outcome": PUBLISHED, "note": note, "now_ms": now_ms}
    first = [row | {"freed_bytes": freed_bytes} for row in rows[:1]]
    record_done(table, [head | row for row in (*first, *rows[1:])])


def require_new(topic: Topic, request: str) -> None:
    """Raise HeldError if the run has already rolled back and its snapshot has left the table's history.

    Clearing its task would otherwise undo another round in the name of the run's user."""
    rows = rows_of(evidence_table(topic.platform), {"topic": topic.topic, "kind": ROLLBACK, "run_id": request})
    if request and rows:
        raise HeldError(
            f"{topic.topic}: run {request} has already rolled back ({rows[0]['round']}); nothing was undone. To roll "
            "back again, trigger another run"
        )


def _put_back_bytes(table: TopicTable, undone: Iterable[UndoneRound]) -> dict[int, int]:
    """Return partition -> bytes that the undone rounds had saved, by their evidence: the last of a name counts."""
    rounds = {(u.round, u.kind) for u in undone}
    rows = rows_of(evidence_table(table.platform), {"topic": table.topic.topic, "outcome": PUBLISHED})
    ordered = sorted(rows, key=lambda r: r["checked_at_ms"])
    last = {(r["round"], r["kind"], r["partition"]): r for r in ordered if (r["round"], r["kind"]) in rounds}
    hidden: Counter[int] = Counter()
    for row in last.values():
        hidden[row["partition"]] += row["saved_bytes"] or 0
    return hidden


def append_undone_ingestion(
    table: TopicTable, planned: IngestionUndo, logs: Sequence[LogWithout], by: str, now_ms: int
) -> None:
    rows: list[EvidenceRow] = [
        {
            "partition": log.partition,
            "base_snapshot_id": planned.to_snapshot_id or 0,
            "first_dirty_offset": log.log_end_after,
            "end_offset": log.log_end,
            "records_in": log.records,
            "records_out": log.records_after,
        }
        for log in logs
    ]
    ingestion, note = planned.ingestion, f"by {by}: {planned.ingestion.names}"
    _record(table, f"{UNDID_INGESTION}{ingestion.snapshot_id}", note, now_ms, planned.freed_bytes, rows)


def undo_ingestion(table: TopicTable, ingestion_id: int, by: str) -> int:
    """Undo the ingestion of this snapshot in the current table. Returns the id of the new snapshot. Raises TableError,
    with nothing changed, if a round or another writer's change followed."""
    ingestion = IngestionChoice(str(ingestion_id), snapshot_id=ingestion_id)

    def plan(history: Sequence[Commit], properties: Mapping[str, str]) -> Rollback:
        undo = plan_undo(history, ingestion, table.topic.topic)
        states = states_of_properties(properties, table.name)
        ends = undo.sources.log_ends
        at_ms = undo.ingestion.at_ms
        new = {p: without_ingestion(state, ends[p], at_ms) for p, state in states.items() if p in ends}
        done = {OPERATION: ROLLBACK, UNDONE: f"{UNDID_INGESTION}{ingestion_id}", BY: by, SOURCES: undo.sources.packed()}
        marks = [f"{PROPERTY_INGESTED}{file.sha256}" for file in undo.sources.files]
        empty = [f"{PROPERTY_PARTITION}{p}" for p, state in new.items() if state == PartitionState()]
        kept = {f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in new.items() if state != PartitionState()}
        if (read := undo.sources.read) is not None:
            before = read.position_before
            kept |= {read.position_property: before} if before is not None else {}
            marks += [read.position_property] if before is None else []
        return Rollback(undo.to_snapshot_id, undo.appends, kept, done, (*marks, *empty))

    return commits.roll_back(table, plan)


def undo_in_topic(table: TopicTable, planned: IngestionUndo, logs: Sequence[LogWithout], by: str, now_ms: int) -> int:
    """Undo the ingestion, append a row of evidence for each log, and return the new snapshot's id. A crash in between
    only loses the rows: the snapshot's summary has the ingestion and the user."""
    note_rewritten(table, now_ms)
    snapshot_id = undo_ingestion(table, planned.ingestion.snapshot_id, by)
    append_undone_ingestion(table, planned, logs, by, now_ms)
    return snapshot_id

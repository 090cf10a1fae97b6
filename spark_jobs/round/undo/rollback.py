"""Undo published rounds: table and state as before them, in one commit, with everything appended since.

`--to` is `last` (before the last published round) or the id of a snapshot in main's history. The rounds after it are
undone, appends are kept, files rewritten since are as they were. Where another round is published meanwhile nothing
is done (exit code 3); appends meanwhile are kept as well.

A task may be tried again, or cleared days later, so what a task asks for is done once (`undo_once`). A person's command
shows its plan, and carries out that very plan (`rollback_topic`): each call is another rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import ConflictError, HeldError
from cleantail.lake.runs.rollback_preview import LogUndo, done_already, preview
from cleantail.lake.runs.rollback_results import RepeatedRollback, RollbackResult, changed_logs
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState, states_of_properties
from cleantail.rounds.commit_summaries import BY, OPERATION, REQUEST, ROLLBACK, UNDONE, Commit
from cleantail.rounds.rollback_plan import RollbackPlan, plan_rollback, restored
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.commits import Rollback
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.released_logs import note_rewritten
from spark_jobs.round.undo.evidence_of_undoing import append_rollback, require_new


@dataclass(frozen=True, slots=True)
class AskedRollback:
    """Says which rollback a task asks for. `to`: the snapshot's id, None for the state before the last round; `by`: who
    asked; `request`: a name for what asked, empty where it has none; `asked_ms`: when it was asked for, Unix ms, None
    where nobody knows."""

    to: int | None
    by: str
    request: str = ""
    asked_ms: int | None = None


def undo_once(
    asked: AskedRollback,
    topic: Topic,
    platform: Platform,
    now_ms: int,
    begin_session: Callable[[], Callable[[], SparkSession]],
) -> RollbackResult | RepeatedRollback:
    """Does what was asked for, however often it is tried, once.

    1. What an earlier try has done is told again, without Spark.
    2. What was done so long ago that the table does not know it any more is refused, and so are rounds that nobody who
       asked had seen. This goes on while the session starts.
    3. What was planned is carried out.
    """
    if done := done_already(topic, platform, asked.request):
        return RepeatedRollback.of(done, changed_logs(topic, platform))
    session = begin_session()
    require_new(platform, topic, asked.request)
    planned, logs = preview(topic, platform, asked.to)
    require_meant(topic, planned, asked.asked_ms)
    table = TopicTable.of(session(), topic, platform)
    return rollback_topic(table, platform, planned, logs, asked.by, now_ms, asked.request)


def roll_back(table: TopicTable, expected: RollbackPlan, by: str, request: str = "") -> int:
    """Does what was planned on the table as it is now, and returns the new snapshot. Raises ConflictError when other
    rounds than those of the plan would be undone."""

    def plan(history: Sequence[Commit], properties: Mapping[str, str]) -> Rollback:
        current = plan_rollback(history, expected.to_snapshot_id, table.topic.table)
        if current.undone != expected.undone:
            raise ConflictError(f"{table.topic.topic}: another round was published meanwhile; nothing was undone")
        states = states_of_properties(properties, table.name)
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
    table: TopicTable,
    platform: Platform,
    planned: RollbackPlan,
    logs: Sequence[LogUndo],
    by: str,
    now_ms: int,
    request: str = "",
) -> RollbackResult:
    """Rolls back, and appends a row of evidence for each log. A crash between the two leaves the rows out, no more:
    what was undone, and by whom, is in the snapshot's summary."""
    note_rewritten(table, now_ms)
    snapshot_id = roll_back(table, planned, by, request)
    append_rollback(table, platform, planned, logs, by, now_ms)
    return RollbackResult.of(planned, logs, snapshot_id, changed_logs(table.topic, platform, planned.states))


def require_meant(topic: Topic, planned: RollbackPlan, asked_ms: int | None) -> None:
    """Raises HeldError where the rollback would undo a round that was published after it was asked for: a task that
    waited, or that somebody cleared days later, would undo what nobody has looked at."""
    later = [u.round for u in planned.undone if asked_ms is not None and u.at_ms > asked_ms]
    if later:
        raise HeldError(
            f"{topic.topic}: round {', '.join(later)} was published after the rollback was asked for: nothing was "
            "undone. Trigger it anew where that is meant"
        )

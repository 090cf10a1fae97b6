"""Take an ingestion back: its records, its files' marks or its position at the source, and its log end go in one
commit; appends since stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleantail.config.platform import Platform
from cleantail.lake.runs.rollback_preview import LogWithout
from cleantail.log.partition_state import PROPERTY_INGESTED, PROPERTY_PARTITION, PartitionState, states_of_properties
from cleantail.rounds.commit_summaries import BY, OPERATION, ROLLBACK, UNDONE, Commit
from cleantail.rounds.past_ingestions import (
    SOURCES,
    UNDID_INGESTION,
    IngestionChoice,
    IngestionUndo,
    plan_undo,
    without_ingestion,
)
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.commits import Rollback
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.released_logs import note_rewritten
from spark_jobs.round.undo.evidence_of_undoing import append_undone_ingestion


def undo_ingestion(table: TopicTable, ingestion_id: int, by: str) -> int:
    """Takes back the ingestion that is this snapshot from the table as it is now, and returns the new snapshot. Raises
    TableError, with nothing changed, where a round or a foreign change has come onto it meanwhile."""
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


def undo_in_topic(
    table: TopicTable, platform: Platform, planned: IngestionUndo, logs: Sequence[LogWithout], by: str, now_ms: int
) -> int:
    """Takes the ingestion back, appends a row of evidence for each log, and returns the new snapshot. A crash between
    the two leaves the rows out, no more: what was taken back, and by whom, is in the snapshot's summary."""
    note_rewritten(table, now_ms)
    snapshot_id = undo_ingestion(table, planned.ingestion.snapshot_id, by)
    append_undone_ingestion(table, platform, planned, logs, by, now_ms)
    return snapshot_id

"""Records that a topic's table cannot hold: moved to its side table, and counted (`cleantail.unholdable.policy`)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.platform import Platform
from cleantail.config.topic_table import UNHOLDABLE_SUFFIX
from cleantail.log.partition_state import DELETED_REASON, LeftOut, left_out_of
from cleantail.log.source_position import Gap
from cleantail.rounds.evidence_row import DELETED_JSON, EvidenceRow
from cleantail.rounds.past_rounds import GAP, PUBLISHED
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence_store import append_once
from spark_jobs.round.intake.record_batches import UNHELD_COLUMNS

SAME = ["partition", "offset", "timestamp_ms", "reason"]
"""What tells a record of the side table from the others."""


def leave_out(table: TopicTable, unheld: DataFrame, now_ms: int) -> tuple[LeftOut, ...]:
    """Moves these records to the side table, if that is the policy, and returns what they are.

    They are moved before the commit that goes on behind them. After a crash between the two the next ingestion finds
    them again, and leaves out what is in the side table already.
    """
    policy = table.topic.config.cleantail_unholdable_policy
    assert policy != "fail", "the first such record has raised an error"
    if policy == "quarantine":
        name = f"{table.name[:-1]}{UNHOLDABLE_SUFFIX}`"
        columns = ", ".join(f"`{column}` {kind}" for column, kind in UNHELD_COLUMNS.items())
        table.ensure_side_table(name, columns, "'format-version'='3'")
        held = table.spark.table(name).select(*SAME)
        same = [F.col(f"new.{column}").eqNullSafe(F.col(f"held.{column}")) for column in SAME]
        fresh = unheld.dropDuplicates(SAME).alias("new").join(held.alias("held"), same, "left_anti")
        table.append_beside(name, fresh)
    counts = unheld.groupBy("partition", "reason").agg(
        F.countDistinct("offset").alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    return tuple(
        sorted(
            LeftOut(row["partition"], row["first"], row["last"], row["records"], row["reason"], policy, now_ms)
            for row in counts.collect()
        )
    )


def record_gaps(table: TopicTable, platform: Platform, entries: Sequence[Gap | LeftOut]) -> None:
    """Appends to the evidence a row for each of these that it does not have yet: offsets that had gone from Kafka, and
    records that the table cannot hold. The table has them since the commit that went on behind them: a crash right
    after it loses no row."""
    told_by = ("partition", "first_dirty_offset", "end_offset", "note")
    append_once(table, platform, [_row(entry) for entry in entries], told_by=told_by)


def record_left_out(table: TopicTable, platform: Platform) -> None:
    """Does the same of what the table's properties say was left out."""
    record_gaps(table, platform, left_out_of(texts(table.load().properties()), table.name))


def _row(entry: Gap | LeftOut) -> EvidenceRow:
    of_entry: EvidenceRow = {
        "round": "",
        "kind": GAP,
        "outcome": PUBLISHED,
        "note": entry.text,
        "now_ms": entry.at_ms,
        "partition": entry.partition,
    }
    if isinstance(entry, Gap):
        return of_entry | {"first_dirty_offset": entry.from_offset, "end_offset": entry.to_offset}
    deleted = DELETED_JSON.text({DELETED_REASON: entry.records})
    return of_entry | {
        "first_dirty_offset": entry.first_offset,
        "end_offset": entry.last_offset + 1,
        "deleted": deleted,
    }

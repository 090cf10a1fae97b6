"""The evidence: what checks found and what became of the rounds, in an Iceberg table of its own beside the topics.

Written through PyIceberg: a Spark job for a row a log took longer than all its checks. Meaning of the outcomes:
cleantail.rounds.past_rounds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE
from cleantail.errors import OvertakenError
from cleantail.lake.catalogs import kept_catalog
from cleantail.log.log_measure import LogMeasure
from cleantail.retries import COMMITS
from cleantail.rounds.checked.check_results import CHECK_RESULTS_JSON, CheckResult
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.checked.recorded_checks import parts_of
from cleantail.rounds.checked.sample import sample_column
from cleantail.rounds.evidence_row import CHECKED_ROUND, DELETED_JSON, EvidenceRow
from cleantail.rounds.past_rounds import CHECKED, CHECKS, HELD_BACK, PUBLISHED, RECLAIM
from cleantail.rounds.rollback import ROUND
from cleantail.rounds.size_history import OPERATION
from cleantail.rounds.task_runs import columns_of
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.appended_rows import append

if TYPE_CHECKING:
    from pyiceberg.table import Table

logger = logging.getLogger("cleantail.evidence")

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("round", pa.string()),
        ("kind", pa.string()),
        ("outcome", pa.string()),
        ("note", pa.string()),
        ("now_ms", pa.int64()),
        ("checked_at_ms", pa.int64()),
        ("base_snapshot_id", pa.int64()),
        ("head_snapshot_id", pa.int64()),
        ("first_dirty_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("records_in", pa.int64()),
        ("records_out", pa.int64()),
        ("tombstones_in", pa.int64()),
        ("tombstones_out", pa.int64()),
        ("deleted", pa.string()),
        ("freed_bytes", pa.int64()),
        ("passed", pa.bool_()),
        ("checks", pa.string()),
        ("dag_id", pa.string()),
        ("run_id", pa.string()),
        ("task_id", pa.string()),
        ("began_ms", pa.int64()),
        ("saved_bytes", pa.int64()),
        (CHECKED_ROUND, pa.string()),
        ("sample", pa.string()),
    ]
)
PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "20",  # rounds of many topics append at the same time
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
SNAPSHOTS_KEPT = 5
DEAD_AFTER_MS = 5_000
"""A live publisher tells what became of its round within a fraction of this after its commit."""
MAY_BE_UNKNOWN = ("partition", "began_ms", "saved_bytes")
"""Numbers that are null where nobody knows them, and the partition of a reclaim: 0 would be a statement."""
EMPTY = {f.name: 0 for f in SCHEMA if pa.types.is_integer(f.type) and f.name not in MAY_BE_UNKNOWN} | {
    "note": "",
    "deleted": "{}",
    "passed": True,
    "checks": "[]",
    "sample": "[]",
}
"""What a row says of itself where it says nothing else."""


def append_evidence(
    table: TopicTable, platform: Platform, checked: CheckedRound, results: Sequence[CheckResult]
) -> None:
    """Appends one row a log of the checked round, which publish goes by. `deleted` (by reason), `checks` and `sample`
    are JSON; none of them says what a record holds."""
    evidence = evidence_table(platform)
    append_rows(evidence, table, [*_untold(evidence, table), *checked_rows(checked, results)])


def checked_rows(checked: CheckedRound, results: Sequence[CheckResult]) -> list[EvidenceRow]:
    """Returns what a check has found, a row for each log."""
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


def append_answer(table: TopicTable, platform: Platform, checked: CheckedRound, outcome: str, note: str = "") -> None:
    """Appends what became of the logs that passed, one row each. Of one that was not published every record is still
    there."""
    passed = (m for m in checked.measures if m.partition in checked.green)
    rows = [_measured(checked, measure) | {"outcome": outcome, "note": note} for measure in passed]
    if outcome != PUBLISHED:
        rows = [row | {"records_out": row["records_in"], "tombstones_out": row["tombstones_in"]} for row in rows]
    append_rows(evidence_table(platform), table, rows)


def append_reclaim(table: TopicTable, platform: Platform, freed_bytes: int, now_ms: int) -> None:
    """Appends one row for the topic, so that the freed bytes are still recorded when the snapshots that show them have
    expired."""
    row: EvidenceRow = {"round": "", "kind": RECLAIM, "outcome": PUBLISHED}
    append_rows(evidence_table(platform), table, [row | {"now_ms": now_ms, "freed_bytes": freed_bytes}])


def _untold(evidence: Table, table: TopicTable) -> list[EvidenceRow]:
    """Returns rows that say that the newest round on `main` is published, where the process that published it died
    before it could append them."""
    commit = next((c for c in history(table.load()) if c.is_round), None)
    if commit is None or time.time() * 1000 - commit.at_ms < DEAD_AFTER_MS:
        return []
    values = {"topic": table.topic.topic, "round": commit.summary.get(ROUND), "kind": commit.summary[OPERATION]}
    rows = rows_of(evidence, values)
    if any(row["outcome"] not in CHECKS for row in rows):
        return []
    last = {row["partition"]: row for row in sorted(rows, key=lambda r: r["checked_at_ms"])}
    published: EvidenceRow = {
        "outcome": PUBLISHED,
        "checks": "[]",
        CHECKED_ROUND: None,
        "checked_at_ms": int(time.time() * 1000),
    }
    return [row | published for row in last.values() if row["outcome"] == CHECKED]


def rows_of(evidence: Table, values: Mapping[str, str | None]) -> list[EvidenceRow]:
    """Returns the rows that have all these values."""
    from pyiceberg.expressions import And, EqualTo

    condition = And(*(EqualTo(name, value) for name, value in values.items()))
    rows: list[EvidenceRow] = evidence.scan(row_filter=condition).to_arrow().to_pylist()
    return rows


def has_answer(table: TopicTable, platform: Platform, checked: CheckedRound, outcome: str) -> bool:
    """Returns whether append_answer has recorded this of the round before. A round that was made a second time may have
    the same name, but its branches have other snapshots."""
    values = {"topic": table.topic.topic, "round": checked.round, "kind": checked.kind, "outcome": outcome}
    heads = {row["head_snapshot_id"] for row in rows_of(evidence_table(platform), values)}
    return not heads.isdisjoint(checked.heads)


def _measured(checked: CheckedRound, measure: LogMeasure) -> EvidenceRow:
    """Returns the row of one log of a checked round, without checks and outcome."""
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


def append_rows(evidence: Table, table: TopicTable, rows: Iterable[EvidenceRow]) -> None:
    """Appends rows about the topic in one commit, with who writes them and when; columns that a row leaves out are
    empty."""
    common = EMPTY | columns_of(os.environ) | {"topic": table.topic.topic, "checked_at_ms": int(time.time() * 1000)}
    appended = pa.Table.from_pylist([{**common, **row} for row in rows], SCHEMA)
    if appended.num_rows:
        append(evidence, appended)
        _forget_old_snapshots(evidence)


def _forget_old_snapshots(evidence: Table) -> None:
    """Expires the table's old snapshots, since every commit costs time for each snapshot in the metadata, and nobody
    reads an older state of a table to which rows are only added. The rows stay; evidence_upkeep removes the files that
    only old snapshots have."""
    oldest_first = sorted(evidence.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    if len(oldest_first) <= 2 * SNAPSHOTS_KEPT:
        return
    old = [snapshot.snapshot_id for snapshot in oldest_first[:-SNAPSHOTS_KEPT]]
    try:
        evidence.maintenance.expire_snapshots().by_ids(old).commit()
    except Exception as e:  # PyIceberg raises a ValueError where another round was faster; the rows are there anyway
        logger.info("old snapshots of the evidence are left for a later round: %s", e)


def evidence_table(platform: Platform) -> Table:
    """Loads the evidence table, with all columns of this version; creates it where there is none."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

    catalog, namespace = kept_catalog(platform, os.environ), platform.catalog.namespace
    try:
        table = catalog.load_table(f"{namespace}.{EVIDENCE}")
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(namespace)
        table = catalog.create_table_if_not_exists(f"{namespace}.{EVIDENCE}", SCHEMA, properties=PROPERTIES)

    def with_all_columns() -> None:
        if not set(SCHEMA.names) - set(table.schema().column_names):
            return
        try:  # made by an earlier version
            with table.update_schema() as update:
                update.union_by_name(SCHEMA)
        except CommitFailedException as e:
            table.refresh()
            raise OvertakenError(f"{namespace}.{EVIDENCE} could not be given its new columns: {e}") from None

    COMMITS.run(with_all_columns)
    return table

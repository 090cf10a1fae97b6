"""The evidence: what checks found and what became of the rounds, in an Iceberg table of its own beside the topics
(evidence_store). Meaning of the outcomes: cleantail.rounds.past_rounds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.log.rules import LogMeasure
from cleantail.rounds.check_results import CHECK_RESULTS_JSON, CheckResult, sample_column
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.commit_summaries import OPERATION, ROUND, Commit
from cleantail.rounds.evidence_row import CHECKED_ROUND, DELETED_JSON, EvidenceRow
from cleantail.rounds.past_rounds import CHECKED, CHECKS, HELD_BACK, PUBLISHED, RECLAIM
from cleantail.rounds.recorded_checks import parts_of
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence_store import (
    RowsOfTopic,
    append_rows,
    append_rows_of,
    evidence_table,
    rows_of,
    rows_where,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

logger = logging.getLogger("cleantail.evidence")

ROUNDS_BACK, COMMITS_BACK = 8, 64
"""A check looks for what became of the newest rounds, so far back."""
DEAD_AFTER_MS = 5_000
"""A live publisher tells what became of its round within a fraction of this after its commit."""
Evidence = tuple[TopicTable, CheckedRound, Sequence[CheckResult]]
"""A checked round of a topic's table, and all results of its check."""


def append_evidence(platform: Platform, rounds: Sequence[Evidence]) -> None:
    """Appends one row a log of these checked rounds, which publish goes by, in one commit. `deleted` (by reason),
    `checks` and `sample` are JSON; none of them says what a record holds."""
    evidence = evidence_table(platform)
    untold = _untold(evidence, [table for table, _, _ in rounds])
    appended = [(table, checked_rows(checked, results)) for table, checked, results in rounds]
    append_rows_of(evidence, [*untold, *appended])


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
    append_rows(evidence_table(platform), table, answer_rows(checked, outcome, note))


def answer_rows(checked: CheckedRound, outcome: str, note: str = "") -> list[EvidenceRow]:
    """Returns what became of the logs of a checked round that passed, a row for each."""
    passed = (m for m in checked.measures if m.partition in checked.green)
    rows = [_measured(checked, measure) | {"outcome": outcome, "note": note} for measure in passed]
    if outcome != PUBLISHED:
        rows = [row | {"records_out": row["records_in"], "tombstones_out": row["tombstones_in"]} for row in rows]
    return rows


def append_reclaim(table: TopicTable, platform: Platform, freed_bytes: int, now_ms: int) -> None:
    """Appends one row for the topic, so that the freed bytes are still recorded when the snapshots that show them have
    expired."""
    row: EvidenceRow = {"round": "", "kind": RECLAIM, "outcome": PUBLISHED}
    append_rows(evidence_table(platform), table, [row | {"now_ms": now_ms, "freed_bytes": freed_bytes}])


def _untold(evidence: Table, tables: Iterable[TopicTable]) -> list[RowsOfTopic]:
    """Return rows for the newest rounds on `main` that no row calls published: the process that published one died, or
    could not append them. The evidence is read once for all tables."""
    commits = [(table, commit) for table in tables for commit in _ended_rounds(table)]
    if not commits:
        return []
    from pyiceberg.expressions import In

    names = {str(commit.summary.get(ROUND)) for _, commit in commits}
    by_round: dict[tuple[str, str, str], list[EvidenceRow]] = {}
    for row in rows_where(evidence, In("round", names)):
        by_round.setdefault((row["topic"], row["round"], row["kind"]), []).append(row)
    untold: list[RowsOfTopic] = []
    for table, commit in commits:
        named = table.topic.topic, str(commit.summary.get(ROUND)), commit.summary[OPERATION]
        untold.append((table, _published(by_round.get(named, []))))
    return untold


def _ended_rounds(table: TopicTable) -> list[Commit]:
    """Return the newest rounds on `main` whose publishers have recorded what became of them, or died. A round before
    them is not looked for: each check that came between has recorded it."""
    rounds = [c for c in islice(history(table.load()), COMMITS_BACK) if c.is_round]
    return [c for c in rounds[:ROUNDS_BACK] if time.time() * 1000 - c.at_ms >= DEAD_AFTER_MS]


def _published(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Returns the answer to a round that was published, where these rows of it have none."""
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

"""Adapter: what is recorded of one round, through PyIceberg, without Spark: its rows in the evidence table, and its
commit on `main`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.lake.catalogs import kept_catalog, load_table, open_catalog
from cleantail.lake.table_metadata import ancestry
from cleantail.log.partition_state import states_of_properties
from cleantail.log.round_state import COMPACT
from cleantail.rounds.answers import decided, read_answer
from cleantail.rounds.approval import Rejection
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.checked.publications import identity_of, publication_of, quarantine_of
from cleantail.rounds.checked.recorded_checks import (
    RoundReference,
    last_compaction,
    recorded,
    require_matching_reference,
)
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.evidence_row import CHECKED_ROUND, EvidenceRow

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

COLUMNS = (
    "partition",
    "outcome",
    "note",
    "checked_at_ms",
    "head_snapshot_id",
    "checks",
    "sample",
    "dag_id",
    "run_id",
    CHECKED_ROUND,
)


def evidence_of_round(catalog: Catalog, platform: Platform, topic: str, round_id: str, kind: str) -> list[EvidenceRow]:
    """Returns what checks found of the round, and what became of it; empty where the evidence has no such round."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
    from pyiceberg.expressions import And, EqualTo

    try:
        table = catalog.load_table(f"{platform.catalog.namespace}.{EVIDENCE}")
    except (NoSuchTableError, NoSuchNamespaceError):
        return []
    table_columns = set(table.schema().column_names)  # an earlier version's table has fewer until its next round
    selected = tuple(name for name in COLUMNS if name in table_columns)
    condition = And(EqualTo("topic", topic), EqualTo("round", round_id), EqualTo("kind", kind))
    evidence: list[EvidenceRow] = table.scan(row_filter=condition, selected_fields=selected).to_arrow().to_pylist()
    return evidence


def recorded_round(catalog: Catalog, platform: Platform, topic: Topic, round_id: str, kind: str) -> CheckedRound:
    """Returns the last check of the round that a task names. Raises HeldError as `recorded` does."""
    return recorded(topic, round_id, kind, evidence_of_round(catalog, platform, topic.topic, round_id, kind))


@dataclass(frozen=True, slots=True)
class AnsweredRound:
    """Describes a round that a task names, as the evidence has it, with its rows there. `answer`: who approved it, that
    it was rejected, or None where nobody was asked."""

    checked: CheckedRound
    evidence: list[EvidenceRow]
    answer: str | Rejection | None


def answered_round(topic: Topic, platform: Platform, reference: RoundReference, kind: str) -> AnsweredRound:
    """Returns the round with its answer. Raises HeldError where it is not as the task says, or waits for an answer."""
    catalog = open_catalog(platform, os.environ)
    evidence = evidence_of_round(catalog, platform, topic.topic, reference.round, kind)
    checked = recorded(topic, reference.round, kind, evidence)
    require_matching_reference(reference, checked, evidence)
    return AnsweredRound(checked, evidence, decided(topic, checked, read_answer(catalog, topic, kind)))


def recorded_publication(
    topic: Topic, platform: Platform, round_id: str, dag_id: str, run_id: str
) -> RoundResult | None:
    """Returns what became of a compaction that this run of a DAG has checked: it is on `main`, or nothing of it passed
    and each log that failed is in quarantine. None else.

    It goes by the evidence and the table alone. Raises TableError and OutsideError as load_table does.
    """
    catalog = kept_catalog(platform, os.environ)
    table = load_table(catalog, topic, platform)
    evidence = evidence_of_round(catalog, platform, topic.topic, round_id, COMPACT) if table is not None else []
    of_run = [row for row in evidence if (row.get("dag_id"), row.get("run_id")) == (dag_id, run_id)]
    checked, retaining = last_compaction(topic, round_id, of_run)
    if table is None or checked is None:
        return None
    states = states_of_properties(table.properties, topic.table)
    snapshot_id = _commit_of(table, checked)
    result = quarantine_of(checked, states) if snapshot_id is None else publication_of(checked, snapshot_id, states)
    if result is None or retaining is None or _commit_of(table, retaining) is None:
        return result
    return replace(result, retained=tuple(retaining.green))


def _commit_of(table: Table, checked: CheckedRound) -> int | None:
    """Returns the snapshot on `main` that has published the round; None where there is none."""
    name = identity_of(checked).items()
    for snapshot in ancestry(table, table.current_snapshot()):
        if snapshot.summary is not None and name <= snapshot.summary.additional_properties.items():
            return snapshot.snapshot_id
    return None

"""Adapter: the records of one round: its rows in the evidence table, and its commit on `main`. Without Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import EVIDENCE
from cleantail.lake.catalogs import kept_catalog, load_any, load_table, open_catalog, unreachable
from cleantail.lake.manifest_entries import named_if_damaged
from cleantail.lake.own_namespace import read_answer
from cleantail.lake.table_metadata import ancestry
from cleantail.log.partition_state import states_of_properties
from cleantail.log.round_state import COMPACT
from cleantail.rounds.approval import Rejection, decided
from cleantail.rounds.checked_round import CheckedRound, RoundResult
from cleantail.rounds.evidence_row import CHECKED_ROUND, EvidenceRow
from cleantail.rounds.past_rounds import CHECKS, Round, rounds_of
from cleantail.rounds.publications import identity_of, publication_of, quarantine_of
from cleantail.rounds.recorded_checks import (
    RecordedCompaction,
    RoundReference,
    last_compaction,
    recorded,
    require_matching_reference,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table


def load_evidence(catalog: Catalog, platform: Platform) -> Table | None:
    """Return the evidence table. None before the first round.

    Raises TableError if its metadata is damaged, or if its format is unknown.
    """
    return load_any(catalog, f"{platform.catalog.namespace}.{EVIDENCE}", platform)


def evidence_rows(table: Table, condition: BooleanExpression, columns: Sequence[str] = ("*",)) -> list[EvidenceRow]:
    """Return the rows that meet the condition. Raises TableError if a file of the table is damaged."""
    with named_if_damaged(table, f"a file of snapshot {table.metadata.current_snapshot_id}"):
        rows: list[EvidenceRow] = (
            table.scan(row_filter=condition, selected_fields=tuple(columns)).to_arrow().to_pylist()
        )
    return rows


def read_evidence(table: Table, topic: str) -> list[Round]:
    """Return the topic's rounds, newest first."""
    from pyiceberg.expressions import EqualTo

    selected = [name for name in table.schema().column_names if name != CHECKED_ROUND]  # the only large one
    return rounds_of(evidence_rows(table, EqualTo("topic", topic), selected))


def evidence_of_round(catalog: Catalog, topic: Topic, round_id: str, kind: str) -> list[EvidenceRow]:
    """Return the round's rows: findings of its checks, and its outcome. Empty if the evidence lacks the round."""
    return _evidence(catalog, topic.platform, {"topic": topic.topic, "round": round_id, "kind": kind})


def _evidence(catalog: Catalog, platform: Platform, values: Mapping[str, str]) -> list[EvidenceRow]:
    """Return the rows that have all these values.

    Empty if the table still lacks one of these columns.
    """
    from pyiceberg.expressions import And, EqualTo

    table = load_evidence(catalog, platform)
    if table is None or not values.keys() <= set(table.schema().column_names):  # the next round adds the missing ones
        return []
    return evidence_rows(table, And(*(EqualTo(name, value) for name, value in values.items())))


def recorded_round(catalog: Catalog, topic: Topic, round_id: str, kind: str) -> CheckedRound:
    """Return the last check of the round that a task names. Raises HeldError as `recorded` does."""
    return recorded(topic, round_id, kind, evidence_of_round(catalog, topic, round_id, kind))


@dataclass(frozen=True, slots=True)
class AnsweredRound:
    """A round that a task names, with its rows in the evidence.

    `answer`: who approved it, that it was rejected, or None if no answer was required. `publication`: its result
    according to the table; None if the table lacks it.
    """

    checked: CheckedRound
    evidence: list[EvidenceRow]
    answer: str | Rejection | None
    publication: RoundResult | None = None


def answered_round(topic: Topic, reference: RoundReference, kind: str) -> AnsweredRound:
    """Return the round with its answer.

    Raises HeldError if the round differs from the task's reference, or waits for an answer.
    """
    catalog = open_catalog(topic.platform)
    evidence = evidence_of_round(catalog, topic, reference.round, kind)
    checked = recorded(topic, reference.round, kind, evidence)
    last = last_compaction(topic, evidence) if kind == COMPACT else None
    of_round = evidence
    if last is not None and last.retaining is not None:  # the retaining round is not part of what the task received
        checked = last.checked
        of_round = [row for row in evidence if row.get("outcome") not in CHECKS or row in last.rows]
    require_matching_reference(reference, checked, evidence)
    answer = decided(topic, checked, read_answer(catalog, topic, kind))
    table = load_table(catalog, topic) if last is not None else None
    publication = publication_in(table, topic, last) if table is not None and last is not None else None
    return AnsweredRound(checked, of_round, answer, publication)


def recorded_publication(
    topic: Topic, dag_id: str, run_id: str, reported_heads: Collection[int] = ()
) -> RoundResult | None:
    """Return the result of the last compaction that this run of a DAG has checked. None before the first.

    There is a result if the compaction is on `main`, or if nothing passed and its failed logs are in quarantine.
    `reported_heads`: the snapshots of the check that the previous task reported. If the round had to be repeated, that
    check is an earlier one, and the logs that it blocked are `red_before`.

    Reads only the evidence and the table. Raises TableError, and OutsideError if the catalog is out of reach.
    """
    catalog = kept_catalog(topic.platform)
    table = load_table(catalog, topic)
    values = {"topic": topic.topic, "kind": COMPACT, "dag_id": dag_id, "run_id": run_id}
    try:
        evidence = _evidence(catalog, topic.platform, values) if table is not None else []
    except Exception as e:
        raise unreachable(topic.platform, e) from None
    last = last_compaction(topic, evidence)
    result = publication_in(table, topic, last) if table is not None and last is not None else None
    if result is None:
        return None
    earlier_check = last_compaction(topic, [row for row in evidence if row["head_snapshot_id"] in reported_heads])
    return replace(result, red_before=tuple(earlier_check.checked.red) if earlier_check else ())


def publication_in(table: Table, topic: Topic, recorded: RecordedCompaction) -> RoundResult | None:
    """Return the result of a compaction according to the topic's table. None if the table has none.

    There is a result if the compaction is on `main`, or if nothing passed and its failed logs are in quarantine.
    """
    checked, retaining = recorded.checked, recorded.retaining
    snapshot_id = _commit_of(table, checked)
    if snapshot_id is None:
        result = quarantine_of(checked, table.properties)
    else:
        result = publication_of(checked, snapshot_id, states_of_properties(table.properties, topic.table))
    if result is None or retaining is None or _commit_of(table, retaining) is None:
        return result
    return replace(result, retained=tuple(retaining.green))


def _commit_of(table: Table, checked: CheckedRound) -> int | None:
    """Return the snapshot on `main` that published the round. None if it was not published."""
    name = identity_of(checked).items()
    for snapshot in ancestry(table, table.current_snapshot()):
        if snapshot.summary is not None and name <= snapshot.summary.additional_properties.items():
            return snapshot.snapshot_id
    return None

"""Adapter: the rows of one topic in the evidence table, through PyIceberg, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic_table import EVIDENCE, require_known_format
from cleantail.lake.catalogs import load_any
from cleantail.lake.delete_entries import named_if_damaged
from cleantail.rounds.evidence_row import COLUMNS, EvidenceRow
from cleantail.rounds.past_rounds import Round, rounds_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table


def load_evidence(catalog: Catalog, platform: Platform) -> Table | None:
    """Return the evidence table, None before the first round. Raises TableError if its metadata is damaged, or if its
    format is not known."""
    name = f"{platform.catalog.namespace}.{EVIDENCE}"
    table = load_any(catalog, name, platform)
    if table is not None:
        require_known_format(name, table.properties)
    return table


def evidence_rows(table: Table, condition: BooleanExpression, columns: Sequence[str] = ("*",)) -> list[EvidenceRow]:
    """Returns the rows that meet the condition. Raises TableError for a file of the table that is damaged."""
    with named_if_damaged(table, f"a file of snapshot {table.metadata.current_snapshot_id}"):
        rows: list[EvidenceRow] = (
            table.scan(row_filter=condition, selected_fields=tuple(columns)).to_arrow().to_pylist()
        )
    return rows


def read_evidence(table: Table, topic: str) -> list[Round]:
    """Returns the topic's rounds, newest first."""
    from pyiceberg.expressions import EqualTo

    fields = ("partition", "round", "kind", "now_ms", "checked_at_ms", "first_dirty_offset", "end_offset")
    measures = ("records_in", "records_out", "deleted", "passed", "checks", "outcome", "note")
    snapshots = ("base_snapshot_id", "head_snapshot_id", "sample")
    table_columns = set(table.schema().column_names)  # an earlier version's table has fewer until its next round
    selected = tuple(name for name in (*fields, *measures, *snapshots, *COLUMNS) if name in table_columns)
    return rounds_of(evidence_rows(table, EqualTo("topic", topic), selected))

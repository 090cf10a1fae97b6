"""Says what each station of a topic reads and writes. Pure.

Every station reads the topic's table. Who writes into it, or into the evidence beside it, stands in the tables below.
A branch of a table is the table itself at another snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleantail.lineage.datasets import Assertion, LineageDataset, StationLineage
from cleantail.rounds.check_results import CheckResult

INGESTING = frozenset({"ingest", "ingest_kafka", "ingest_table"})
WRITING = INGESTING | {"convert_deletes", "compact", "publish", "expire_tombstones", "reconcile", "reclaim", "rollback"}
"""Stations that commit to the topic's table, or to a branch of it."""
OF_SOURCE = INGESTING | {"reconcile"}
"""Stations that read the topic's source."""
OF_EVIDENCE = frozenset({"check_quality", "publish", "expire_tombstones", "reconcile", "reclaim", "rollback"})
"""Stations that write down what they found or did."""


@dataclass(frozen=True, slots=True)
class ToldTables:
    """Describes the topic's table as the catalog has it at the end of the task, with its branches by name, and the
    evidence, None where it has none yet."""

    table: LineageDataset
    branches: Mapping[str, int] = field(default_factory=dict)
    evidence: LineageDataset | None = None


@dataclass(frozen=True, slots=True)
class StationFacts:
    """Holds what the result of a station tells. `read`: the snapshots that it went by, none: not known; `written`: the
    one that it made, None: not known; `commits`: whether it has written into the table at all."""

    read: tuple[int, ...] = ()
    written: int | None = None
    commits: bool = False
    records: int | None = None
    checks: tuple[CheckResult, ...] = ()


def lineage_of(
    station: str, tables: ToldTables, facts: StationFacts, source: Sequence[LineageDataset] = ()
) -> StationLineage:
    """Returns what a station has read and written."""
    table = tables.table
    assertions = assertions_of(facts.checks, table.columns)
    seen = tuple(replace(table.at(snapshot), assertions=assertions) for snapshot in facts.read or (None,))
    if station in INGESTING:
        read: tuple[LineageDataset, ...] = tuple(source)
    else:
        read = seen + (tuple(source) if station in OF_SOURCE else ())
    outputs = []
    if station in WRITING and facts.commits:
        written = replace(table.at(facts.written), records=facts.records)
        # an ingestion takes the fields of a record over, every other station the columns of the table itself
        origin = (source[0] if source else None) if station in INGESTING else table
        outputs.append(written.taking(origin) if origin else written)
    if station in OF_EVIDENCE and tables.evidence is not None:
        outputs.append(tables.evidence)
    return StationLineage(read, tuple(outputs))


def assertions_of(checks: Iterable[CheckResult], columns: Collection[str]) -> tuple[Assertion, ...]:
    """Returns each check once, with the partitions that failed it. What it asks for in words stays here: the arguments
    of a topic's own check may be what a person's record holds."""
    assertions: dict[tuple[str, str], Assertion] = {}
    for check in checks:
        column = next((name for name in columns if f"column={name}" in check.rule.split(", ")), None)
        known = assertions.get(key := (check.expectation, check.rule)) or Assertion(
            check.expectation, column, check.severity == "critical"
        )
        failed = known.failed_in if check.passed else tuple(sorted({*known.failed_in, check.partition}))
        assertions[key] = replace(known, failed_in=failed)
    return tuple(assertions.values())

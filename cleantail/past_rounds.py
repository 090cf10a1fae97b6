"""The rounds of a topic as the evidence table has them: what each dropped and what its checks observed.

`read_evidence` fetches the rows through PyIceberg, without Spark; the rest is pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table import Table

EVIDENCE = "cleantail_evidence"
"""Name of the evidence table, in the catalog's namespace."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One expectation in one log of one round. `observed` may hold data."""

    partition: int
    expectation: str
    rule: str
    severity: str
    passed: bool
    observed: str


@dataclass(frozen=True, slots=True)
class LogRound:
    """One log in one round: the offsets that were dirty, the records, what was dropped by reason, the verdict."""

    partition: int
    first_dirty_offset: int
    end_offset: int
    records_in: int
    records_out: int
    deleted: Mapping[str, int]
    passed: bool
    checks: tuple[CheckResult, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One checked round: its clock (`now_ms`), when it was checked, and its logs. The kind is compact or expire."""

    name: str
    kind: str
    now_ms: int
    checked_at_ms: int
    logs: tuple[LogRound, ...]

    @property
    def passed(self) -> bool:
        return all(log.passed for log in self.logs)

    @property
    def held_back(self) -> tuple[int, ...]:
        return tuple(log.partition for log in self.logs if not log.passed)

    @property
    def deleted(self) -> dict[str, int]:
        """Records dropped, by reason, over the logs that passed: of the others nothing was published."""
        totals: dict[str, int] = {}
        for log in self.logs:
            for reason, count in log.deleted.items():
                totals[reason] = totals.get(reason, 0) + (count if log.passed else 0)
        return totals

    @property
    def dropped(self) -> int:
        return sum(self.deleted.values())

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        return tuple(check for log in self.logs for check in log.checks)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Expectations that were not met, warnings included."""
        return tuple(check for check in self.checks if not check.passed)


def rounds_of(rows: Iterable[Mapping[str, Any]]) -> list[Round]:
    """Rows of the evidence table as rounds, newest first. A round that was checked again counts again."""
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    seen: Counter[tuple[str, str, int]] = Counter()
    for row in sorted(rows, key=lambda r: r["checked_at_ms"]):
        name, kind, partition = row["round"], row["kind"], row["partition"]
        groups.setdefault((name, kind, seen[name, kind, partition]), []).append(row)
        seen[name, kind, partition] += 1
    rounds = [_round(name, kind, members) for (name, kind, _), members in groups.items()]
    return sorted(rounds, key=lambda r: r.checked_at_ms, reverse=True)


def _round(name: str, kind: str, rows: list[Mapping[str, Any]]) -> Round:
    logs = tuple(_log_round(row) for row in sorted(rows, key=lambda r: r["partition"]))
    return Round(name, kind, rows[0]["now_ms"], max(r["checked_at_ms"] for r in rows), logs)


def _log_round(row: Mapping[str, Any]) -> LogRound:
    return LogRound(
        partition=row["partition"],
        first_dirty_offset=row["first_dirty_offset"],
        end_offset=row["end_offset"],
        records_in=row["records_in"],
        records_out=row["records_out"],
        deleted=json.loads(row["deleted"]),
        passed=row["passed"],
        checks=tuple(_check(found) for found in json.loads(row["checks"])),
    )


def _check(found: Mapping[str, Any]) -> CheckResult:
    return CheckResult(
        partition=found["partition"],
        expectation=found["expectation"],
        rule=found["rule"],
        severity=found["severity"],
        passed=found["passed"],
        observed=found["observed"],
    )


def read_evidence(table: Table, topic: str) -> list[Round]:
    """The topic's rounds, newest first."""
    from pyiceberg.expressions import EqualTo

    fields = ("partition", "round", "kind", "now_ms", "checked_at_ms", "first_dirty_offset", "end_offset")
    measures = ("records_in", "records_out", "deleted", "passed", "checks")
    found = table.scan(row_filter=EqualTo("topic", topic), selected_fields=(*fields, *measures))
    return rounds_of(found.to_arrow().to_pylist())

"""A red check in words: what failed, on which partition, and what was seen there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """One expectation that one partition did not meet: counts, and `offsets` of records that failed, in the snapshot
    that was checked. `examples` are those records in words: empty but in a message to a channel whose YAML asks for
    them."""

    topic: str
    partition: int
    expectation: str
    severity: str
    observed: str
    detail: str
    offsets: tuple[int, ...] = ()
    snapshot_id: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (
            f"{self.topic} partition {self.partition}: {self.expectation} ({self.severity}): observed {self.observed}"
        )
        text = f"{text}; {self.detail}" if self.detail else text
        return "\n    ".join([text, *self.examples])


class RedCheck(AirflowFailException):
    """Partitions that are held back. The same branch would fail again, so the task is not retried."""

    def __init__(self, topic: str, failures: Iterable[Failure]) -> None:
        self.failures = tuple(failures)
        held_back = ", ".join(map(str, sorted({f.partition for f in self.failures})))
        lines = [f"{topic}: the check is red, partitions held back: {held_back}", *map(str, self.failures)]
        super().__init__("\n  - ".join(lines))


def failures_of(topic: str, result: Mapping[str, Any]) -> list[Failure]:
    """What held partitions back, in a job's result. A log that only waits for others has no failure of its own."""
    verdicts = result.get("verdicts") or ()
    red = [verdict for verdict in verdicts if not verdict["passed"] and not verdict.get("waits_for")]
    heads = heads_by_log(result)
    rows = [(verdict["partition"], row) for verdict in red for row in verdict["failures"] or [{}]]
    return [_failure(topic, partition, row, heads.get(partition, 0)) for partition, row in rows]


def heads_by_log(result: Mapping[str, Any]) -> dict[int, int]:
    """Partition -> the snapshot that was checked, where the result says it."""
    units = [unit for unit in result.get("units") or () if "head_snapshot_id" in unit]
    return {work["partition"]: unit["head_snapshot_id"] for unit in units for work in unit.get("partitions", ())}


def warnings_of(topic: str, result: Mapping[str, Any]) -> list[Failure]:
    """Expectations that failed without holding their partition back."""
    verdicts = result.get("verdicts") or ()
    return [_failure(topic, verdict["partition"], row) for verdict in verdicts for row in verdict.get("warnings") or ()]


def _failure(topic: str, partition: int, row: Mapping[str, Any], head: int = 0) -> Failure:
    return Failure(
        topic=topic,
        partition=partition,
        expectation=str(row.get("expectation", "no expectation named")),
        severity="could not be evaluated" if row.get("error") else str(row.get("severity", "critical")),
        observed=_short(row.get("observed", "nothing")),
        detail=_short(row.get("detail") or row.get("rule") or ""),
        offsets=tuple(row.get("offsets", ())),
        snapshot_id=head,
    )


def _short(value: object) -> str:
    """On one printable line of bounded length, whatever the data held."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text if text.isprintable() else json.dumps(text)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"

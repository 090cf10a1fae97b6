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
    """One expectation that one partition did not meet. `observed` may hold data: never render it as a template."""

    topic: str
    partition: int
    expectation: str
    severity: str
    observed: str
    detail: str

    def __str__(self) -> str:
        text = (
            f"{self.topic} partition {self.partition}: {self.expectation} ({self.severity}): observed {self.observed}"
        )
        return f"{text}; {self.detail}" if self.detail else text


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
    return [_failure(topic, verdict["partition"], row) for verdict in red for row in verdict["failures"] or [{}]]


def warnings_of(topic: str, result: Mapping[str, Any]) -> list[Failure]:
    """Expectations that failed without holding their partition back."""
    verdicts = result.get("verdicts") or ()
    return [_failure(topic, verdict["partition"], row) for verdict in verdicts for row in verdict.get("warnings") or ()]


def _failure(topic: str, partition: int, row: Mapping[str, Any]) -> Failure:
    return Failure(
        topic=topic,
        partition=partition,
        expectation=str(row.get("expectation", "no expectation named")),
        severity="could not be evaluated" if row.get("error") else str(row.get("severity", "critical")),
        observed=_short(row.get("observed", "nothing")),
        detail=_short(row.get("detail") or row.get("rule") or ""),
    )


def _short(value: object) -> str:
    """On one printable line of bounded length, whatever the data held."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text if text.isprintable() else json.dumps(text)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"

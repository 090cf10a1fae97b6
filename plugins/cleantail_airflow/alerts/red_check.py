"""Says what a red check is in words: which expectation failed, on which partition, and what was observed there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.checked_round import Verdict
from cleantail_airflow.airflow_exceptions import AirflowFailException

_SHOWN_CHARS = 300
"""A failure shows so many characters of what was observed, and of its rule."""
NO_HEADS: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class Failure:
    """Describes one expectation that one partition did not meet.

    `observed` and `detail` are what was counted and the rule. `offsets` are those of records that failed, in the
    snapshot `snapshot_id` that was checked (0: unknown). `examples` are these records in words, and empty but in a
    message to a channel whose YAML asks for them.
    """

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
    """Is raised for partitions that are held back. The same branch would fail again, so the task is not retried."""

    def __init__(self, topic: str, failures: Iterable[Failure], others: Iterable[str] = ()) -> None:
        """`others`: what else failed at the task, in lines."""
        self.failures = tuple(failures)
        partitions = ", ".join(map(str, sorted({f.partition for f in self.failures})))
        lines = [f"{topic}: the check is red, partitions held back: {partitions}", *map(str, self.failures), *others]
        super().__init__("\n  - ".join(lines))


def failures_of(topic: str, verdicts: Iterable[Verdict], heads: Mapping[int, int] = NO_HEADS) -> list[Failure]:
    """Returns the failures that held partitions back.

    A log that is held back only for others, with which it shares files, has no failure. `heads`: partition -> the
    snapshot that was checked, where it is known.
    """
    red = (verdict for verdict in verdicts if verdict.failed)
    results = (result for verdict in red for result in verdict.failures or [_unnamed(verdict)])
    return [_failure(topic, result, heads.get(result.partition, 0)) for result in results]


def _unnamed(verdict: Verdict) -> CheckResult:
    """Returns the result that stands for a reason which is missing: people hear of every log that is held back."""
    return CheckResult(verdict.partition, "no expectation named", "", "critical", False, "nothing")


def warnings_of(topic: str, verdicts: Iterable[Verdict]) -> list[Failure]:
    """Returns the expectations that failed without holding their partition back."""
    return [_failure(topic, result) for verdict in verdicts for result in verdict.warnings]


def _failure(topic: str, result: CheckResult, head: int = 0) -> Failure:
    return Failure(
        topic=topic,
        partition=result.partition,
        expectation=result.expectation,
        severity="could not be evaluated" if result.error else result.severity,
        observed=_short(result.observed),
        detail=_short(result.rule),
        offsets=result.offsets,
        snapshot_id=head,
    )


def _short(text: str) -> str:
    """Returns the text on one printable line of bounded length, whatever the data held."""
    text = text if text.isprintable() else json.dumps(text)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"

"""The reason of a task's failure: a crashed job or a failed check. The task writes it as a note for alerts.

The output of a crashed job may quote the data that Spark or Python processed. So the output stays in the task's log.
Only the exit code and the names of errors are written into Airflow's database and alerts.

A task's exception is lost when the run ends, so the task writes a note as an XCom. The note has the positions of
records and no values. Tasks pull the note inside `execute`, so Airflow never renders it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.checked_round import RoundResult, Verdict
from cleantail.watch.dag_state import BLOCKED_BY_CHECK
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
_ERROR_NAME = re.compile(r"(?<![\w.])(?:[a-z]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt))(?=[:\s]|$)", re.MULTILINE)
_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]{2,}(?:\.[A-Z0-9_]+)*)\] ")
"""Matches the error class that Spark writes before a message: `[DIVIDE_BY_ZERO] Division by zero`."""
MAX_NAMES = 5
MAX_NAME_CHARS = 80
"""Maximum length of a name. Longer names are left out, because they may be data."""


def cause_of_crash(message: str) -> str:
    """Shorten the message of Airflow's Spark hook to `Error code is: 1, OutOfMemoryError; the task's log has more`.

    The hook's message has the command line, the exit code, and the last lines of the output. A message without an exit
    code is returned unchanged, because no process was started, and so it has no output.
    """
    code = _EXIT_CODE.search(message)
    if code is None:
        return message
    output = message[code.end() :]
    errors = [*_ERROR_NAME.findall(output), *_ERROR_CLASS.findall(output)]
    names = [name for name in dict.fromkeys(errors) if len(name) <= MAX_NAME_CHARS][:MAX_NAMES]
    return f"{', '.join([code[0], *names])}; the task's log has more"


_SHOWN_CHARS = 300
"""Maximum length of the observed value, and of the rule, in a failure."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that a partition did not meet.

    `observed`: the count. `detail`: the rule. `offsets`: offsets of failed records in the checked snapshot
    `snapshot_id` (0: unknown). `examples`: these records, only for a message to a channel with `values: true`.
    `judged_ms`: time of the verdict.
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
    judged_ms: int = 0

    def __str__(self) -> str:
        text = (
            f"{self.topic} partition {self.partition}: {self.expectation} ({self.severity}): observed {self.observed}"
        )
        text = f"{text}; {self.detail}" if self.detail else text
        return "\n    ".join([text, *self.examples])


class RedCheck(AirflowFailException):
    """A check failed and blocks partitions. The same branch would fail again, so Airflow does not retry the task."""

    def __init__(self, topic: str, failures: Iterable[Failure], others: Iterable[str] = ()) -> None:
        self.failures = tuple(failures)
        partitions = ", ".join(map(str, sorted({f.partition for f in self.failures})))
        lines = [f"{topic}: {BLOCKED_BY_CHECK}{partitions}", *map(str, self.failures), *others]
        super().__init__("\n  - ".join(lines))


def failures_of(topic: str, verdicts: Iterable[Verdict], heads: Mapping[int, int] | None = None) -> list[Failure]:
    """Return the failures that block partitions, in the order of the partitions.

    A log that waits only for another log, with which it shares files, has no failure. `heads`: partition -> the
    snapshot that was checked.
    """
    red = (verdict for verdict in verdicts if verdict.failed)
    # every blocked log is reported, even if its verdict names no expectation
    results = (
        (verdict, result)
        for verdict in red
        for result in verdict.failures
        or [CheckResult(verdict.partition, "no expectation named", "", "critical", False, "nothing")]
    )
    heads = heads or {}
    failures = [_failure(topic, result, heads.get(result.partition, 0), v.judged_ms) for v, result in results]
    return sorted(failures, key=lambda failure: failure.partition)


def warnings_of(topic: str, result: RoundResult) -> list[str]:
    """Return warnings about a round: the failed expectations that block no partition, and the readers that an expiry
    has left behind. They fail no task."""
    failed = [_failure(topic, warning) for verdict in result.verdicts for warning in verdict.warnings]
    return [*map(str, failed), *(reader.text for reader in result.left_behind)]


def _failure(topic: str, result: CheckResult, head: int = 0, judged_ms: int = 0) -> Failure:
    return Failure(
        topic=topic,
        partition=result.partition,
        expectation=result.expectation,
        severity="could not be evaluated" if result.error else result.severity,
        observed=_short(result.observed),
        detail=_short(result.rule),
        offsets=result.offsets,
        snapshot_id=head,
        judged_ms=judged_ms,
    )


def _short(text: str) -> str:
    """Return the text as one printable line of limited length."""
    text = text if text.isprintable() else json.dumps(text)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


NOTE = "failure"
"""Key of the XCom of a failed try."""
LOST = "the task was killed or lost: by a person, for lack of memory, or with its worker"
"""The reason of a failed task without a note. Every task that may fail by itself writes a note."""
UNREADABLE = "its note cannot be parsed; the task's log has the reason"
_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class FailureNote:
    """The error's message, the failures of a failed check, and the time (Unix ms, wall clock; 0: unknown)."""

    reason: str
    red: tuple[Failure, ...] = ()
    at_ms: int = 0


FAILURE_NOTE_JSON: Codec[FailureNote] = Codec(FailureNote)


Method = TypeVar("Method", bound=Callable[..., Any])


@contextmanager
def noted(context: Context) -> Iterator[None]:
    """Note an exception of the block as an XCom and raise it again. Skips are not noted."""
    try:
        yield
    except (AirflowSkipException, DownstreamTasksSkipped):
        raise
    except Exception as error:
        red = error.failures if isinstance(error, RedCheck) else ()
        note = FailureNote(str(error)[:_REASON_CHARS], red, int(time.time() * 1000))
        context["ti"].xcom_push(NOTE, FAILURE_NOTE_JSON.plain(note))
        raise


def noting(method: Method) -> Method:
    """Decorate a method of an operator that Airflow calls with the context first: `noted` around each call."""

    @wraps(method)
    def with_note(self: Any, context: Context, *arguments: Any, **named: Any) -> Any:
        with noted(context):
            return method(self, context, *arguments, **named)

    return cast(Method, with_note)


def pulled_note(context: Context, task_id: str, map_index: int | None) -> FailureNote:
    instance: dict[str, Any] = {} if map_index is None else {"map_indexes": map_index}
    return parsed_note(context["ti"].xcom_pull(task_ids=task_id, key=NOTE, **instance))


def parsed_note(xcom: Any) -> FailureNote:
    """Parse the XCom, which every editor of the DAG can write. A killed task has none."""
    if xcom is None:
        return FailureNote(LOST)
    try:
        return FAILURE_NOTE_JSON.of_plain(xcom, f"the XCom {NOTE}")
    except TableError:
        return FailureNote(UNREADABLE)

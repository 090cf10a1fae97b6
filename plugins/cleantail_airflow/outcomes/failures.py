"""Says why a job crashed, from what spark-submit printed, and without anything that records hold.

A job that crashed left no result that would say it. The last lines of its output may quote the data that Spark or
Python was working on: these lines stay in the task's log, and only the exit code and the names of the errors go into
Airflow's database and into alerts.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.checked_round import Verdict
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
_ERROR_NAME = re.compile(r"(?<![\w.])(?:[a-z]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt))(?=[:\s]|$)", re.MULTILINE)
_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]{2,}(?:\.[A-Z0-9_]+)*)\] ")
"""It matches the name that Spark writes in brackets before an error's message: `[DIVIDE_BY_ZERO] Division by zero`."""
MAX_NAMES = 5
"""A cause names so many errors at most."""
MAX_NAME_CHARS = 80
"""A longer name is left out: no library's error is called so, and it may be data."""


def cause_of_crash(message: str) -> str:
    """Shortens the message of Airflow's Spark hook to `Error code is: 1, OutOfMemoryError; the task's log has more`.

    The hook's message has the whole command line, then the exit code, then the last lines of the output. One without an
    exit code is returned as it is: nothing was started, so no output is in it.
    """
    code = _EXIT_CODE.search(message)
    if code is None:
        return message
    output = message[code.end() :]
    errors = [*_ERROR_NAME.findall(output), *_ERROR_CLASS.findall(output)]
    names = [name for name in dict.fromkeys(errors) if len(name) <= MAX_NAME_CHARS][:MAX_NAMES]
    return f"{', '.join([code[0], *names])}; the task's log has more"


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


NOTE = "failure"
"""The XCom of a failed try."""
LOST = "the task was killed or lost"
UNREADABLE = "its note cannot be read; the task's log says why it failed"
_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class FailureNote:
    """Holds the error's words, of a red check what failed, and when (Unix ms, wall clock; 0 where nobody knows)."""

    reason: str
    red: tuple[Failure, ...] = ()
    at_ms: int = 0


FAILURE_NOTE_JSON: Codec[FailureNote] = Codec(FailureNote)


@contextmanager
def noted(context: Context) -> Iterator[None]:
    """Notes what the block raises, but for skips, and raises it again."""
    try:
        yield
    except (AirflowSkipException, DownstreamTasksSkipped):
        raise
    except Exception as error:
        context["ti"].xcom_push(NOTE, FAILURE_NOTE_JSON.plain(note_of(error, int(time.time() * 1000))))
        raise


def note_of(error: Exception, now_ms: int) -> FailureNote:
    """Makes the note of an error."""
    red = error.failures if isinstance(error, RedCheck) else ()
    return FailureNote(str(error)[:_REASON_CHARS], red, now_ms)


def pulled_note(context: Context, task_id: str, map_index: int | None) -> FailureNote:
    """Pulls the note of a task instance that failed. One that was killed could not note anything."""
    instance: dict[str, Any] = {} if map_index is None else {"map_indexes": map_index}
    return parsed_note(context["ti"].xcom_pull(task_ids=task_id, key=NOTE, **instance))


def parsed_note(xcom: Any) -> FailureNote:
    """Parses the XCom. Whoever may edit the DAG may have written it: then the note says that it cannot be read."""
    if xcom is None:
        return FailureNote(LOST)
    try:
        return FAILURE_NOTE_JSON.of_plain(xcom, f"the XCom {NOTE}")
    except TableError:
        return FailureNote(UNREADABLE)

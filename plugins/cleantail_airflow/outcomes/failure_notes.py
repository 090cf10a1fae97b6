"""Keeps why a task failed for the task that tells: its exception is gone when the run ends.

The note is an XCom, which says where records are and not what they hold. A task pulls it inside `execute`, and Airflow
never renders it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail_airflow.airflow_exceptions import AirflowSkipException, DownstreamTasksSkipped
from cleantail_airflow.alerts.red_check import Failure, RedCheck

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

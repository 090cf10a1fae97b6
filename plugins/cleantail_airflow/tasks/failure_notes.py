"""Why a task failed, kept for the task that tells: its exception is gone when the run ends.

The note is an XCom, which says where records are and not what they hold: it is pulled inside `execute`, never rendered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from cleantail_airflow.alerts.red_check import Failure, RedCheck

NOTE = "failure"
"""The XCom of a failed try."""
LOST = "the task was killed or lost"
_REASON_CHARS = 2000


@contextmanager
def noted(context: Context) -> Iterator[None]:
    """Notes what the block raises, but for skips."""
    try:
        yield
    except (AirflowSkipException, DownstreamTasksSkipped):
        raise
    except Exception as error:
        context["ti"].xcom_push(NOTE, note_of(error))
        raise


def note_of(error: Exception) -> dict[str, Any]:
    """The error's words, when it was (wall clock) and, of a red check, what failed."""
    red = [asdict(failure) for failure in error.failures] if isinstance(error, RedCheck) else []
    return {"reason": str(error)[:_REASON_CHARS], "red": red, "at_ms": int(time.time() * 1000)}


def reason_in(note: Mapping[str, Any] | None) -> str:
    """A task that was killed could not note anything."""
    return str(note["reason"]) if note else LOST


def at_ms_in(note: Mapping[str, Any] | None) -> int:
    """When the task failed (Unix ms); 0 where nobody knows."""
    return int(note.get("at_ms", 0)) if note else 0


def red_in(note: Mapping[str, Any] | None) -> list[Failure]:
    """The failed expectations; none where something else failed."""
    return [Failure(**row | {"offsets": tuple(row.get("offsets", ()))}) for row in note["red"]] if note else []

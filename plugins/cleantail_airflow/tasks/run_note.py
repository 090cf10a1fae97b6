"""The note of a run without due work.

A task cannot write the note of its run. `evaluate` writes the text as an XCom, and a listener in the scheduler copies
the text to the note when the run has succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from airflow.listeners import hookimpl

from cleantail.config.run_schedule import Schedule, schedule_text
from cleantail.human import be, readable_reason
from cleantail.log.log_state import LogState
from cleantail.rounds.stations import EVALUATE

NOTE = "run_note"
"""XCom of `evaluate`: the text for the note of its run."""


_NONE_DUE = re.compile(r"^no [a-z ]+ is due: ")
"""The beginning of a plan's reason, which the note's own beginning includes."""


def idle_note(schedule: Schedule | None, reason: str, logs: Iterable[LogState]) -> str:
    """Return the note of a run without due work: the blocked logs, the reason, and the next evaluation.

    The UI shows only the beginning of a note until the user opens it.
    """
    why = readable_reason(_NONE_DUE.sub("", reason))
    return (
        f"Nothing was due, {_standing(logs)}: {why}. "
        f"Skipped tasks had no work. Next evaluation: {schedule_text(schedule)}."
    )


def _standing(logs: Iterable[LogState]) -> str:
    """Return a text about blocked logs, or about a needed reconciliation. A run without work does not repair such a
    topic."""
    logs = list(logs)
    held = [str(log.partition) for log in logs if log.state.quarantine is not None]
    if not held:
        missing = any(log.forgotten for log in logs)
        return "but a reconciliation is needed (details on the tab Compaction)" if missing else "all is well"
    which = f"partition{'' if len(held) == 1 else 's'} {', '.join(held)}"
    return f"but {which} {be(len(held))} blocked (details and Release on the tab Compaction)"


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Copy the text of `evaluate` to the note of the run.

    If the run belongs to the scheduler's transaction, write in this transaction, because a second one would wait for
    it.
    """
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy.orm import object_session

    if (session := object_session(dag_run)) is not None:
        _write_note(dag_run, session)
        return
    with create_session() as new_session:
        if (run := new_session.get(DagRun, dag_run.id)) is not None:
            _write_note(run, new_session)


def _write_note(dag_run: Any, session: Any) -> None:
    from airflow.models.xcom import XComModel

    where = {"dag_id": dag_run.dag_id, "run_id": dag_run.run_id, "task_id": EVALUATE, "key": NOTE}
    with session.no_autoflush:
        row = session.query(XComModel).filter_by(**where).first()
        if row is not None and not dag_run.note:
            dag_run.note = XComModel.deserialize_value(row)

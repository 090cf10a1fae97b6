"""The listeners that Airflow calls: one keeps the pool of Spark tasks, one writes the note of a run with nothing due.

1. Tasks wait forever for a pool that does not exist. So a listener makes the pool whenever a component with the
   database starts. Its slots are `log.cleaner.threads` of defaults.yaml: the number of Spark applications at once.
2. A task cannot write the note of its run. `evaluate` leaves the text as an XCom, and a listener in the scheduler
   copies it to the note when the run has succeeded.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow.listeners import hookimpl

from cleantail.config.loading import CONFIG_VARIABLE, load_platform
from cleantail.config.run_schedule import Schedule, schedule_text
from cleantail.errors import ConfigError
from cleantail.human import be, readable_reason
from cleantail.log.log_state import LogState
from cleantail.rounds.stations import EVALUATE
from cleantail_airflow.installation import NO_CONFIG, config_dir

NOTE = "run_note"
"""XCom of `evaluate`: the text for the note of its run."""


_NONE_DUE = re.compile(r"^no [a-z ]+ is due: ")
"""The beginning of a plan's reason, which the note's own beginning includes."""


def idle_note(schedule: Schedule | None, reason: str, logs: Iterable[LogState]) -> str:
    """Return the note of a run in which nothing was due: which logs are blocked, why nothing is due, and the next
    evaluation.

    The UI shows only its beginning until the user opens it.
    """
    why = readable_reason(_NONE_DUE.sub("", reason))
    return (
        f"Nothing was due, {_standing(logs)}: {why}. "
        f"Skipped tasks had no work. Next evaluation: {schedule_text(schedule)}."
    )


def _standing(logs: Iterable[LogState]) -> str:
    """Return which logs a failed check or a rejection blocks, or whether a reconciliation is needed. A run without work
    does not repair such a topic."""
    logs = list(logs)
    held = [str(log.partition) for log in logs if log.state.quarantine is not None]
    if not held:
        missing = any(log.forgotten for log in logs)
        return "but a reconciliation is needed (details on the tab Compaction)" if missing else "all is well"
    which = f"partition{'' if len(held) == 1 else 's'} {', '.join(held)}"
    return f"but {which} {be(len(held))} blocked (details and Release on the tab Compaction)"


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Copy the text that `evaluate` has left to the note of the run.

    If the run belongs to the scheduler's transaction, write in that one: a second transaction would wait for it.
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
    """Write the note, unless a person has written one."""
    from airflow.models.xcom import XComModel

    where = {"dag_id": dag_run.dag_id, "run_id": dag_run.run_id, "task_id": EVALUATE, "key": NOTE}
    with session.no_autoflush:
        row = session.query(XComModel).filter_by(**where).first()
        if row is not None and not dag_run.note:
            dag_run.note = XComModel.deserialize_value(row)


POOL = "cleantail_spark"
DESCRIPTION = "Spark applications of Cleantail; slots = log.cleaner.threads in defaults.yaml, set at each start"
NOT_NAMED = (
    f"{CONFIG_VARIABLE} of the scheduler names no configuration. Set it, or set the slots under Admin, Pools: the "
    "number of Spark applications that run at once"
)

logger = logging.getLogger(__name__)


@hookimpl
def on_starting(component: object) -> None:
    """Make the pool when a Job starts (scheduler, dag-processor, triggerer). A task runner has no database."""
    if type(component).__name__ == "Job":
        ensure_pool()


def ensure_pool() -> None:
    """Make the pool, or set its slots from defaults.yaml.

    If this process has no configuration, an existing pool keeps its slots.
    """
    from airflow.models.pool import Pool

    config = config_dir(os.environ)
    if config == NO_CONFIG and (pool := Pool.get_pool(POOL)):
        logger.info("pool %s keeps its slots, %d: %s", POOL, pool.slots, NOT_NAMED)
        return
    slots = _slots(config)
    Pool.create_or_update_pool(POOL, slots=slots, description=DESCRIPTION, include_deferred=False)
    logger.info("pool %s has %d slots", POOL, slots)


def _slots(config: Path) -> int:
    """Return log.cleaner.threads, or 1 if the configuration is missing or broken, so that tasks can run."""
    if config == NO_CONFIG:
        logger.warning("pool %s gets one slot: %s", POOL, NOT_NAMED)
        return 1
    try:
        return load_platform(config).cleaner.log_cleaner_threads
    except ConfigError as error:
        logger.error("pool %s gets one slot: %s", POOL, error)
        return 1

"""Start each component of Airflow as a fork of one process that has imported Airflow.

Importing Airflow's command line and Cleantail's plugin takes seconds of processor time. Without the fork, `db migrate`,
the API server, the triggerer, the dag processor and the scheduler would each take these seconds. Each task, which the
scheduler forks, would take another second for the libraries that read a table's metadata.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import psutil  # comes with Airflow, as setproctitle does
from setproctitle import getproctitle, setproctitle

from cleantail.home.process import end_process

COMMAND_LINE = "airflow.__main__"
TASKS = (
    "cleantail.lake.evaluate",
    "cleantail_airflow.alerts.alerting",
    "cleantail_airflow.groups.group_dag",
    "cleantail_airflow.station_lineage",
    "cleantail_airflow.outcomes.run_metrics",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
)
"""Modules that tasks import when they run. The DAG files do not import them, so that parsing stays fast."""


def find_title() -> None:
    """Prepare setproctitle, whose titles distinguish the components in `ps`. Call it before the environment changes:
    setproctitle locates the title by the environment's first variable."""
    getproctitle()


def preload() -> None:
    """Import what all components import: Airflow's command line, with the present environment, then Cleantail's plugin.
    Exclude these objects from garbage collection, also in the forks."""
    import_module(COMMAND_LINE)
    import_module("cleantail_airflow.plugin")
    gc.freeze()


def preload_for_tasks() -> None:
    """Import what tasks import. Call it before the scheduler starts. NumPy and PyArrow handle a fork of their threads,
    as in Spark's workers (spark_jobs.engine.workers.daemon)."""
    for module in TASKS:
        import_module(module)
    gc.freeze()


def start(*command: str) -> psutil.Process:
    """Start `airflow COMMAND` as a child of this process, in which Cleantail must not have started threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    number = os.fork()
    if number == 0:
        _run_and_exit(command)
    return psutil.Process(number)


def _run_and_exit(command: Sequence[str]) -> NoReturn:
    """Do what Airflow's script does. Never return into the code of the parent."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = _exit_code_of(command)
        end_process(code)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _exit_code_of(command: Sequence[str]) -> int:
    """Run the command. Return its exit code as Python derives it from a SystemExit."""
    setproctitle(f"airflow {' '.join(command)}")
    airflow = import_module(COMMAND_LINE)
    sys.argv = [str(airflow.__file__), *command]
    try:
        airflow.main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def has_ended(process: psutil.Process) -> bool:
    try:
        process.wait(timeout=0)
    except psutil.TimeoutExpired:
        return False
    return True

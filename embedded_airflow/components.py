"""Airflow's components, each a fork of a process that has imported Airflow: they share what they all import.

Airflow's command line and our plugin cost seconds of processor time. Without the fork each of `db migrate`, the API
server, the triggerer, the dag processor and the scheduler would spend them again; and each task, which the scheduler
forks, another one for the libraries that read a table's metadata.
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
"""What tasks import only once they run, since a parse of the DAG files is to import as little as possible."""


def find_title() -> None:
    """Lets setproctitle find where the title of this process is, by which the components are told apart in `ps`. It
    looks for that from the first variable of the environment, and finds nothing once that one has been changed."""
    getproctitle()


def preload() -> None:
    """Imports what all components import: Airflow's command line, as the environment is now, then our plugin. Python
    need not look through all of it for garbage, in the components and in the tasks that the scheduler forks."""
    import_module(COMMAND_LINE)
    import_module("cleantail_airflow.plugin")
    gc.freeze()


def preload_for_tasks() -> None:
    """Imports what tasks import, for a scheduler that is started after it. NumPy and PyArrow start threads, which know
    of forks: Spark's daemon forks its workers so, too (spark_jobs.engine.workers.daemon)."""
    for module in TASKS:
        import_module(module)
    gc.freeze()


def start(*command: str) -> psutil.Process:
    """Starts `airflow COMMAND` as a child of this process, which must have no threads of our own."""
    sys.stdout.flush()
    sys.stderr.flush()
    number = os.fork()
    if number == 0:
        _run_and_exit(command)
    return psutil.Process(number)


def _run_and_exit(command: Sequence[str]) -> NoReturn:
    """Does what Airflow's script does, and never comes back into the code of the parent."""
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
    """Runs the command, and returns its exit code, as Python makes it of a SystemExit."""
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
    """Returns whether a child of this process has ended."""
    try:
        process.wait(timeout=0)
    except psutil.TimeoutExpired:
        return False
    return True

"""Airflow's components, each a fork of a process that has imported Airflow: they share what they all import.

Importing its command line and our plugin takes a processor seconds, which `db migrate`, the API server, the triggerer,
the dag processor and the scheduler would each spend again.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import psutil  # comes with Airflow


def preload() -> None:
    """Imports what all components import: Airflow's command line, as the environment is now, then our plugin."""
    import_module("airflow.__main__")
    import_module("cleantail_airflow.plugin")


def start(*command: str) -> psutil.Process:
    """Starts `airflow COMMAND` as a child of this process, which must have no threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    number = os.fork()
    if number == 0:
        _run_and_exit(command)
    return psutil.Process(number)


def _run_and_exit(command: Sequence[str]) -> NoReturn:
    """Does what `python -m airflow COMMAND` does, and never comes back into the code of the parent."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.argv = ["airflow", *command]
        runpy.run_module("airflow", run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def has_ended(process: psutil.Process) -> bool:
    """Returns whether a child of this process has ended."""
    return exit_code(process, within_s=0) is not None


def exit_code(process: psutil.Process, within_s: float | None = None) -> int | None:
    """Returns the exit code of a child of this process, once it has ended; None where it has not `within_s`."""
    try:
        code: int | None = process.wait(timeout=within_s)
    except psutil.TimeoutExpired:
        return None
    return 1 if code is None else code

"""How a process of ours runs and ends: one that does its work once, the command line or a job of Spark."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

RARELY = (50_000, 10, 10)
"""Python looks for garbage once so many objects are new. By its own 700 it looks many times through all that Great
Expectations and PyIceberg bring, while they are imported, and finds none."""
NOT_WRITTEN = 120
"""The exit code of a process whose output could not be written, as Python's own."""


def run_process(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Runs `main` with the arguments of the process, and ends it with the exit code that it returns."""
    seldom_look_for_garbage()
    end_process(main(sys.argv[1:]))


def seldom_look_for_garbage() -> None:
    """Sets how often Python looks for garbage, in this process and in those that it forks."""
    gc.set_threshold(*RARELY)


def end_process(code: int) -> NoReturn:
    """Ends the process once all is written and closed: threads have ended, the JVM is told, temporary files go.

    It does so without taking the interpreter apart. That takes long where Great Expectations was imported, and DuckDB
    2.0 prints lists of what it calls leaks where its module goes before its last object.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself does first
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:  # as whoever started the process, or the work, has left it
                stream.flush()
    except OSError:
        code = code or NOT_WRITTEN
    os._exit(code)

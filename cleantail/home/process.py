"""Start and end of a process that does one piece of work: the command line, or a Spark job."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from cleantail.errors import printable

NOT_WRITTEN = 120
"""Exit code if the output could not be written, the same as Python's."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable Python's garbage collector in the block.

    For loops over many records. Records form no cycles, but the collector scans all of them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def run_process(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run `main` with the arguments of the process, and end the process with the returned exit code."""
    keep_logs_printable()
    end_process(main(sys.argv[1:]))


def keep_logs_printable(*loggers: str) -> None:
    """Remove control sequences of terminals from all messages that this process logs, and indent their further lines.

    With `loggers`, only for messages of these loggers and their children. Messages quote paths and names that owners
    of tables chose. A line break in a name must not begin a line that looks like a log record.
    """
    usual = logging.getLogRecordFactory()
    if getattr(usual, "is_printable", False):
        return

    def printable_record(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = usual(*arguments, **named)
        # logging.makeLogRecord makes a record without a name, and fills it afterwards
        if loggers and str(record.name).partition(".")[0] not in loggers:
            return record
        try:
            text = record.getMessage()
        except Exception:  # the handler reports arguments that do not fit
            return record
        record.msg, record.args = log_line(text), None
        return record

    printable_record.is_printable = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(printable_record)


def log_line(text: str) -> str:
    """Return a message for a log: printable, and its further lines indented."""
    return printable(text).replace("\n", "\n  ")


def end_process(code: int) -> NoReturn:
    """End the process after threads have ended, exit handlers have run, and output is flushed.

    Skips the interpreter's own teardown. The teardown takes long with Great Expectations, and DuckDB 2.0 prints reports
    of leaks if its module is removed before its last object.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself does first
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:  # missing from the start, or closed since
                stream.flush()
    except OSError:
        code = code or NOT_WRITTEN
    os._exit(code)

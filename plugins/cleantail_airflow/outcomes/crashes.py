"""Says why a job crashed, from what spark-submit printed, and without anything that records hold.

A job that crashed left no result that would say it. The last lines of its output may quote the data that Spark or
Python was working on: these lines stay in the task's log, and only the exit code and the names of the errors go into
Airflow's database and into alerts.
"""

from __future__ import annotations

import re

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

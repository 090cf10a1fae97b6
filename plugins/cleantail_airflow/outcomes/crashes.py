"""Says why a job ended that left no result, from what spark-submit printed and without what the records hold.

The last lines of a crash quote whatever Spark or Python was working on. The task's log has them; only the exit code and
the names of the errors go on from there, to Airflow's database and to alerts.
"""

from __future__ import annotations

import re

_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
_ERROR_NAME = re.compile(r"(?<![\w.])(?:[a-z]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt))(?=[:\s]|$)", re.MULTILINE)
_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]{2,}(?:\.[A-Z0-9_]+)*)\] ")
"""It matches Spark's name of a condition, before its message."""
NAMES_SHOWN, NAME_CHARS = 5, 80


def cause_of_crash(message: str) -> str:
    """Shortens the message of Airflow's Spark hook to `Error code is: 1, OutOfMemoryError; the task's log has more`.

    The message begins with the whole command line and ends with the last lines of the output.
    """
    code = _EXIT_CODE.search(message)
    if code is None:  # the hook's own words: nothing was started
        return message
    output = message[code.end() :]
    errors = [*_ERROR_NAME.findall(output), *_ERROR_CLASS.findall(output)]
    names = [name for name in dict.fromkeys(errors) if len(name) <= NAME_CHARS][:NAMES_SHOWN]
    return f"{', '.join([code[0], *names])}; the task's log has more"

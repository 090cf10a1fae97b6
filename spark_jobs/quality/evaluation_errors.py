"""Says why an expectation could not be evaluated, without what the records hold: messages of Spark and Python quote
them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spark_jobs.quality.time_limit import TooLongError

_NO_COLUMN = re.compile(r'The column "([\w$.-]+)" in BatchData does not exist')
_ERROR_CLASS = re.compile(r"(?:^|[:\n] ?)\[([A-Z][A-Z0-9_]{2,}(?:\.[A-Z0-9_]+)*)\] ")
"""Spark's name of an error, which begins its message."""
_EXCEPTION = re.compile(r"^(?:\w+\.)*([A-Za-z]\w*(?:Error|Exception))(?::|$)", re.MULTILINE)
"""The last line of a stack begins with the exception's name."""
_WRAPPER = "MetricResolutionError"
"""What Great Expectations makes of every other exception."""
COULD_NOT = "could not be evaluated"
OURS = "cleantail"
"""Who has written an exception info: the names in Great Expectations' own are those of its metrics."""


def error_in(result: Any) -> str:
    """Returns why a result of Great Expectations says nothing of the data; empty where it does. An expectation that
    cannot be evaluated (for a missing column, say) does not raise: its info has two shapes."""
    info = result.exception_info or {}
    if info.get("by") == OURS:
        return str(info["exception_message"]) if info["raised_exception"] else ""
    infos = [info] if "raised_exception" in info else [i for i in info.values() if isinstance(i, Mapping)]
    raised = [i for i in infos if i.get("raised_exception")]
    return _reason(str(raised[0].get("exception_message")), str(raised[0].get("exception_traceback"))) if raised else ""


def error_info(result: Any) -> dict[str, Any]:
    """Returns the reason as an exception info, which replaces one that quotes messages and stacks."""
    error = error_in(result)
    return {"raised_exception": bool(error), "exception_message": error, "exception_traceback": None, "by": OURS}


def error_text(error: Exception) -> str:
    """Returns the reason for an exception that Great Expectations raised, or that ended it."""
    if isinstance(error, TooLongError):
        return f"{COULD_NOT}: {error}"
    return _reason(str(error), f"{type(error).__name__}:")


def _reason(message: str, stack: str) -> str:
    if column := _NO_COLUMN.search(message):
        return f"{COULD_NOT}: the records have no column {column[1]}"
    names = [name for name in _EXCEPTION.findall(stack) if name != _WRAPPER] or ["error"]
    error_class = _ERROR_CLASS.search(message)
    return f"{COULD_NOT}: {names[-1]}{f' [{error_class[1]}]' if error_class else ''}"

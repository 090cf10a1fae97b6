"""Health check: exit code 0 if a page answers with status 200 and the expected content.

    python deploy/healthy.py http://127.0.0.1:8080/json/ '"status" : "ALIVE"'
    python deploy/healthy.py http://airflow-apiserver:8080/api/v2/monitor/health scheduler

The second argument is a text that the page must contain. If the page is a JSON object with that key and a status below
it, as Airflow's health page is, the status must be "healthy".
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from http.client import HTTPException

TIMEOUT_S = 8


class NoAnswer(Exception):
    """The server did not answer, or its answer is only an error."""


def main(url: str, expected: str = "") -> int:
    try:
        wrong = problem(url, expected)
    except NoAnswer as error:
        wrong = str(error)
    if wrong:
        print(f"{url}: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def problem(url: str, expected: str = "") -> str | None:
    """Return what is wrong with the page, or None. Raises NoAnswer."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            text = answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise NoAnswer(f"status {error.code}") from None
        return f"status {error.code}"
    except (OSError, HTTPException) as error:  # the latter: a server that is killed in the middle of its answer
        raise NoAnswer(str(error)) from None
    component = _component(text, expected)
    if component is not None:
        return None if component == "healthy" else f"{expected} is {component}"
    return None if expected in text else f"no {expected!r} in it"


def _component(text: str, name: str) -> str | None:
    """Return a component's status on a health page of Airflow, or None for any other page."""
    try:
        status = json.loads(text)[name]["status"]
    except (ValueError, KeyError, TypeError):
        return None
    return str(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

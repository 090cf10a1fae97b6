"""Health check: exit code 0 when a page answers with status 200 and its text contains what is expected.

python deploy/healthy.py http://127.0.0.1:8080/json/ '"status" : "ALIVE"'
"""

from __future__ import annotations

import sys
import urllib.request

TIMEOUT_S = 8


def main(url: str, expected: str = "") -> int:
    wrong = problem(url, expected)
    if wrong:
        print(f"{url}: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def problem(url: str, expected: str = "") -> str | None:
    """Returns what is wrong with the page; None if nothing is."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            text = answer.read().decode(errors="replace")
    except OSError as error:
        return str(error)
    return None if expected in text else f"no {expected!r} in it"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Run a command, and end it if its health page reports a problem for minutes, so that the engine starts it again.

    python deploy/watched.py http://127.0.0.1:8974/health "" airflow scheduler

A container engine restarts a container that exits, not one that is unhealthy. After an outage of its database Airflow's
scheduler may answer 503 until its running tasks end, and Airflow does not end it. Every process of Airflow in
docker-compose.yaml therefore runs below this script.

1. The page is read every 10 s (deploy/healthy.py). The second argument is the component, or empty.
2. A page that reports a problem for WATCHED_SECONDS (180) ends the command. So does a page of this container
   (127.0.0.1) that does not answer. If the page of another container does not answer, or has a status of 500 or more,
   the command continues.
3. Until the page was healthy once, WATCHED_START_SECONDS (600) are allowed.
4. The command gets SIGTERM and, 60 s later, SIGKILL, with all of its processes. The exit code is then 75; otherwise it
   is the command's own. A SIGTERM to this script goes to the command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from healthy import NoAnswer, problem

POLL_S, GRACE_S = 10.0, 60.0
ENDED = 75
"""EX_TEMPFAIL of sysexits.h."""


@dataclass(slots=True)
class Watch:
    """Decide when to end a command. Times are seconds of a monotonic clock."""

    allowed_s: float
    start_s: float
    began_s: float
    healthy_once: bool = False
    ill_since_s: float | None = None

    def reason(self, wrong: str | None, now_s: float) -> str | None:
        """Return why the command must end, or None. `wrong` is the problem at that time, or None."""
        if wrong is None:
            self.healthy_once, self.ill_since_s = True, None
            return None
        if self.ill_since_s is None:
            self.ill_since_s = now_s
        ill_s = now_s - (self.ill_since_s if self.healthy_once else self.began_s)
        if ill_s < (self.allowed_s if self.healthy_once else self.start_s):
            return None
        return f"{wrong} for {ill_s:.0f} s"


def looked(url: str, component: str) -> str | None:
    """Return the problem that the page reports, or None."""
    try:
        return problem(url, component)
    except NoAnswer as error:
        return str(error) if urlsplit(url).hostname == "127.0.0.1" else None


def watch(command: list[str], look: Callable[[], str | None], allowed_s: float, start_s: float) -> int:
    process = subprocess.Popen(command, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGINT, lambda *_: process.terminate())
    decided = Watch(allowed_s, start_s, time.monotonic())
    while True:
        try:
            code = process.wait(timeout=POLL_S)
            return 128 - code if code < 0 else code
        except subprocess.TimeoutExpired:
            reason = decided.reason(look(), time.monotonic())
        if reason:
            print(f"deploy/watched.py: {' '.join(command)} is ended: {reason}", file=sys.stderr, flush=True)
            _end(process)
            return ENDED


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(url: str, component: str, *command: str) -> int:
    seconds = [float(os.environ.get(n, d)) for n, d in (("WATCHED_SECONDS", "180"), ("WATCHED_START_SECONDS", "600"))]
    return watch(list(command), lambda: looked(url, component), *seconds)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""End a driver on a cluster if its work has no executor for too long.

A driver that has lost its executors waits for others without a limit, and logs nothing. For example, a restarted
standalone master does not recognize the application unless it recovers applications, and its workers end the executors.
A cluster without free cores has the same effect.

1. The watch counts active jobs and executors every few seconds.
2. If jobs are active and no executor exists for `cleantail.executors.lost.ms`, the application ends with exit code 4
   and an error that describes the state. The next try, by Airflow or by hand, is a new application.
3. A local master has no executor apart from the driver, and is not watched.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from cleantail.errors import OutsideError
from cleantail.human import counted, setting

logger = logging.getLogger("cleantail.executors")
POLL_EVERY_S = 5.0
CONFIG = "cleantail.executors.lost.ms"

report: Callable[[OutsideError], None] | None = None
"""Writes the result of this process before the watch ends it. A station of Airflow sets it."""


class Watch:
    """Decides whether an application has waited too long. Times are seconds of a monotonic clock."""

    def __init__(self, allowed_ms: int, master: str) -> None:
        self._allowed_ms, self._master = allowed_ms, master
        self._waits_since_s: float | None = None
        self._had_executors = False

    def error(self, jobs: int, executors: int, now_s: float) -> OutsideError | None:
        """Return why the application must end, or None, from the numbers of active jobs and of executors."""
        self._had_executors |= executors > 0
        if not jobs or executors:
            self._waits_since_s = None
            return None
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        if (now_s - self._waits_since_s) * 1000 < self._allowed_ms:
            return None
        seen = "lost all of its executors" if self._had_executors else "got no executor"
        return OutsideError(
            f"the application {seen} from {self._master}: {counted(jobs, 'job')} waited for "
            f"{setting(CONFIG, self._allowed_ms)}. The master was restarted, or its workers are down or have no free "
            "cores. What was published stays. The next try does the rest"
        )


def watch_executors(session: SparkSession, allowed_ms: int) -> None:
    master = str(session.sparkContext.master)
    if not master.startswith("local"):
        watch = Watch(allowed_ms, master)
        threading.Thread(target=_watch, args=(session, watch), name="cleantail-executors", daemon=True).start()


def _watch(session: SparkSession, watch: Watch) -> None:
    context: Any = session.sparkContext._jsc.sc()
    while True:
        time.sleep(POLL_EVERY_S)
        try:
            jobs = len(context.statusTracker().getActiveJobIds())
            executors = int(context.getExecutorMemoryStatus().size()) - 1  # minus the driver
        except Exception as error:
            if session.sparkContext._jsc is None:  # the session has been stopped
                return
            logger.warning("the watch of executors got no answer from Spark: %s", type(error).__name__)
            continue
        if (reason := watch.error(jobs, executors, time.monotonic())) is not None:
            _end(reason)


def _end(error: OutsideError) -> None:
    """End the process as if the error was raised, because the thread that waits for the job cannot always be woken."""
    logger.error("%s", error)
    try:
        if report is not None:
            report(error)
    finally:
        logging.shutdown()
        os._exit(OutsideError.exit_code)

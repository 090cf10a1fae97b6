"""Whether a check that was given up still keeps cores of the application.

Java lets nobody stop a thread that matches a regular expression (time_limit): Spark has given its job up, and the task
goes on until its process ends. An application without a free core does nothing more, and says nothing.

1. The jobs of each check that was given up are known by their group. While a task of theirs runs, its core is lost.
2. Tasks that are only slow to end are waited for.
3. A process that goes on to other topics has to end then. Where it waits for a core instead, so that for two minutes
   no other task runs, it is ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

from pyspark.sql import SparkSession

from cleantail.errors import OutsideError
from cleantail.home.home_folder import holds_within

logger = logging.getLogger("cleantail.checks")
ENDED_WITHIN_S = 5.0
"""So long (s) tasks are waited for that are only slow to end."""
GRACE_S = 120.0
"""So long (s) a process may go on in which no other task runs: what needs no core is published."""
LOOKS_EVERY_S = 10.0
_given_up: set[str] = set()
"""The groups of Spark's jobs that were given up, in this process."""


class LostCoresError(OutsideError):
    """Is raised where the application has to end, since checks that were given up keep its cores."""


def note_given_up(spark: SparkSession, group: str) -> None:
    """Takes the group of the jobs of a check that is given up, and watches from the first one on (rule 3)."""
    if not _given_up:
        threading.Thread(target=_watch, args=(spark,), name="cleantail-lost-cores", daemon=True).start()
    _given_up.add(group)


def are_cores_lost(spark: SparkSession) -> bool:
    """Returns whether a task of a check that was given up goes on."""
    return bool(_given_up) and not holds_within(lambda: not lost_tasks(spark), every_s=0.2, within_s=ENDED_WITHIN_S)


def lost_tasks(spark: SparkSession) -> int:
    """Returns how many tasks of given up checks are still running."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for group in set(_given_up) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def running_tasks(spark: SparkSession) -> int:
    """Returns how many tasks the executors are at, those of given up checks among them."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    return sum(int(executor.numRunningTasks()) for executor in tracker.getExecutorInfos())


def _watch(spark: SparkSession) -> None:
    """Ends the process, as if it had failed, once no other task has run for GRACE_S beside those of given up checks."""
    since_s: float | None = None
    while True:
        time.sleep(LOOKS_EVERY_S)
        try:
            lost = lost_tasks(spark)
            waits = lost > 0 and running_tasks(spark) <= lost
        except Exception as error:  # the session has ended, or does not answer
            logger.warning("whether cores are lost is not known: %s", type(error).__name__)
            waits = since_s is not None
        if not waits:
            since_s = None
            continue
        since_s = time.monotonic() if since_s is None else since_s
        if time.monotonic() - since_s >= GRACE_S:
            logger.error("a check that was given up keeps its cores: the application ends, and its next try goes on")
            logging.shutdown()
            os._exit(OutsideError.exit_code)

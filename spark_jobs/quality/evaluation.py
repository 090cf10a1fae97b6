"""An evaluation by Great Expectations: how much it returns, how long it may take, and why it failed.

A regular expression, or a schema's, can take for ever on one value. Spark gives such a job up at once. The thread that
matches goes on until its process ends: nothing in Java stops it. So nothing more is asked of Spark for the same checks,
and the job ends with a verdict. An application without a free core does nothing more, and says nothing.

1. The jobs of each check that was given up are known by their group. While a task of theirs runs, its core is lost.
2. Tasks that are only slow to end are waited for.
3. A process that goes on to other topics has to end then. If it waits for a core instead, so that for two minutes
   no other task runs, it is ended.

Messages of Spark and Python quote what the records hold, so the text of an error is made without it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from cleantail.config.input_limits import CHECKS_MS, limit_text
from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.errors import OutsideError
from cleantail.home.home_folder import holds_within
from cleantail.rounds.check_results import EXAMPLES

Format = Mapping[str, Any]
WHETHER: Format = {"result_format": "BOOLEAN_ONLY"}
"""Of measures, whether they break a rule: what most rounds need to know."""
BY_LOG: Format = {"result_format": "COMPLETE", "unexpected_index_column_names": [PARTITION]}
"""The measures are one row a log, and tell which."""
COUNTED: Format = {"result_format": "BASIC", "partial_unexpected_count": 0, "exclude_unexpected_values": True}
"""Of records, how many failed."""
LOCATED: Format = {
    **COUNTED,
    "result_format": "SUMMARY",
    "partial_unexpected_count": EXAMPLES,
    "unexpected_index_column_names": [OFFSET],
}
"""And where some of them are: one more scan, so only where there are any."""
EACH = "ExpectColumnValuesToBeBetween"
"""The expectation that a rule is asked by where it is broken somewhere (`rule_expectation`): it says by which log."""
MEASURES, RECORDS = "round", "records"
"""The suites: over the measures of a round, which are counts by partition, and over records, which the topic's own
checks look at."""


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


IN_PACKS_MS = 300_000
"""So long the checks of a topic may take where other topics wait for them."""
_AGAIN_SECONDS = 1.0
"""How often what is begun after the limit is given up."""


class TooLongError(Exception):
    """The topic's own checks took longer than they may."""


class TimeLimit:
    """Bounds the time of all own checks of one look at a round, from the first on."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._end: float | None = None

    def require(self) -> None:
        """Raises TooLongError where the time is over."""
        if self._left() <= 0:
            raise TooLongError(
                f"the topic's own checks took longer than {self._limit_ms} ms; {limit_text(CHECKS_MS)}, "
                f"and in a pack with other topics {IN_PACKS_MS} at most"
            )

    def _left(self) -> float:
        if self._end is None:
            self._end = time.monotonic() + self._limit_ms / 1000
        return self._end - time.monotonic()

    @contextmanager
    def watched(self, spark: SparkSession) -> Iterator[None]:
        """Cancels Spark's jobs of this thread that are begun inside once the time is over, and then raises
        TooLongError."""
        self.require()
        context, group, done = spark.sparkContext, f"cleantail-checks-{uuid.uuid4()}", threading.Event()

        def give_up() -> None:
            wait = min(self._left(), threading.TIMEOUT_MAX)
            while not done.wait(max(wait, 0)):
                note_given_up(spark, group)
                context.cancelJobGroup(group)
                wait = _AGAIN_SECONDS

        watcher = threading.Thread(target=give_up, name="cleantail-time-limit", daemon=True)
        context.setJobGroup(group, "checks of the topic's own", True)
        watcher.start()
        try:
            yield
        except Exception:
            self.require()
            raise
        finally:
            done.set()
            watcher.join()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # Spark takes null for: not set
        self.require()


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

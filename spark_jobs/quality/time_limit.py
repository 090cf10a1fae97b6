"""Evaluate by Great Expectations: result formats, time limit, lost cores, and the reason of a failure.

A regular expression, also one in a JSON schema, can take forever on one value. Spark cancels such a job at once, but
Java cannot stop the matching thread until the process ends. So a cancelled check starts no more Spark jobs and gets
a verdict. Its core is lost, and an application without a free core would hang silently:

1. Cancelled checks are tracked by their job group. A core is lost while a task of the group runs.
2. Slow tasks get time to end.
3. A process must end before it continues with other topics. If no other task runs for two minutes, a watcher thread
   ends it.

Messages of Spark and Python quote record data, so error texts are built without them.
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
"""For measures: only whether they break a rule. Enough for most rounds."""
BY_LOG: Format = {"result_format": "COMPLETE", "unexpected_index_column_names": [PARTITION]}
"""For measures, one row per log: also which logs break a rule."""
COUNTED: Format = {"result_format": "BASIC", "partial_unexpected_count": 0, "exclude_unexpected_values": True}
"""For records: the number that failed."""
LOCATED: Format = {
    **COUNTED,
    "result_format": "SUMMARY",
    "partial_unexpected_count": EXAMPLES,
    "unexpected_index_column_names": [OFFSET],
}
"""For records: also offsets of some that failed. Costs another scan, so it is used only after a failure."""
EACH = "ExpectColumnValuesToBeBetween"
"""Expectation for a broken rule. Unlike `rule_expectation` it returns the logs that break it."""
MEASURES, RECORDS = "round", "records"
"""The suites: for the measures of a round, which are counts by partition, and for records (the topic's own checks)."""


logger = logging.getLogger("cleantail.checks")
ENDED_WITHIN_S = 5.0
"""Time that slow tasks get to end."""
GRACE_S = 120.0
"""Seconds in which a process without other running tasks may publish rounds that need no core."""
POLL_EVERY_S = 10.0
_given_up: set[str] = set()
"""Spark job groups of the cancelled checks of this process."""


class LostCoresError(OutsideError):
    """The application must end because cancelled checks occupy its cores."""


def note_given_up(spark: SparkSession, group: str) -> None:
    """Track the job group of a cancelled check. Starts the watcher at the first one (rule 3)."""
    if not _given_up:
        threading.Thread(target=_watch, args=(spark,), name="cleantail-lost-cores", daemon=True).start()
    _given_up.add(group)


def are_cores_lost(spark: SparkSession) -> bool:
    """Return whether a task of a cancelled check is still running after ENDED_WITHIN_S."""
    return bool(_given_up) and not holds_within(lambda: not lost_tasks(spark), every_s=0.2, within_s=ENDED_WITHIN_S)


def lost_tasks(spark: SparkSession) -> int:
    """Return the number of running tasks of cancelled checks."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for group in set(_given_up) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def running_tasks(spark: SparkSession) -> int:
    """Return the number of running tasks, those of cancelled checks included."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    return sum(int(executor.numRunningTasks()) for executor in tracker.getExecutorInfos())


def _watch(spark: SparkSession) -> None:
    """End the process with an error if only tasks of cancelled checks have run for GRACE_S."""
    since_s: float | None = None
    while True:
        time.sleep(POLL_EVERY_S)
        try:
            lost = lost_tasks(spark)
            waits = lost > 0 and running_tasks(spark) <= lost
        except Exception as error:  # the session ended or does not answer
            logger.warning("cannot find out whether checks occupy cores: %s", type(error).__name__)
            waits = since_s is not None
        if not waits:
            since_s = None
            continue
        since_s = time.monotonic() if since_s is None else since_s
        if time.monotonic() - since_s >= GRACE_S:
            logger.error("a stopped check keeps its cores, so the application ends; its next try continues")
            logging.shutdown()
            os._exit(OutsideError.exit_code)


IN_PACKS_MS = 300_000
"""Time limit of a topic's own checks in a pack, where other topics wait for them."""
_AGAIN_SECONDS = 1.0
"""Interval at which jobs that start after the time limit are cancelled."""


class TooLongError(Exception):
    """The topic's own checks exceeded their time limit."""


class UnusableCheckError(Exception):
    """The class of a user's own expectation cannot be used. The message has no text of that code."""


class TimeLimit:
    """The time limit of all of a topic's own checks in one check of a round. The time starts with the first of them."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._end: float | None = None

    def require(self) -> None:
        if self._left() <= 0:
            raise TooLongError(
                f"the topic's own checks took longer than {self._limit_ms} ms; {limit_text(CHECKS_MS)}, "
                f"and at most {IN_PACKS_MS} in a pack with other topics"
            )

    def _left(self) -> float:
        if self._end is None:
            self._end = time.monotonic() + self._limit_ms / 1000
        return self._end - time.monotonic()

    @contextmanager
    def watched(self, spark: SparkSession) -> Iterator[None]:
        """Cancel the Spark jobs of this thread in the block when the time is over, then raise TooLongError."""
        self.require()
        context, group, done = spark.sparkContext, f"cleantail-checks-{uuid.uuid4()}", threading.Event()

        def give_up() -> None:
            wait = min(self._left(), threading.TIMEOUT_MAX)
            while not done.wait(max(wait, 0)):
                note_given_up(spark, group)
                context.cancelJobGroup(group)
                wait = _AGAIN_SECONDS

        watcher = threading.Thread(target=give_up, name="cleantail-time-limit", daemon=True)
        context.setJobGroup(group, "the topic's own checks", True)
        watcher.start()
        try:
            yield
        except Exception:
            self.require()
            raise
        finally:
            done.set()
            watcher.join()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # null removes the property
        self.require()


_NO_COLUMN = re.compile(r'The column "([\w$.-]+)" in BatchData does not exist')
_ERROR_CLASS = re.compile(r"(?:^|[:\n] ?)\[([A-Z][A-Z0-9_]{2,}(?:\.[A-Z0-9_]+)*)\] ")
"""Spark's name of an error, at the start of its message."""
_EXCEPTION = re.compile(r"^(?:\w+\.)*([A-Za-z]\w*(?:Error|Exception))(?::|$)", re.MULTILINE)
"""The exception's name, at the start of the last line of a stack."""
COULD_NOT = "could not be evaluated"
OURS = "cleantail"
"""Marks an exception info that Cleantail wrote. The keys in Great Expectations' own are names of metrics."""


def error_in(result: Any) -> str:
    """Return why an expectation could not be evaluated; empty if it was. Great Expectations does not raise for a
    missing column, for example, and its exception info has two shapes."""
    info = result.exception_info or {}
    if info.get("by") == OURS:
        return str(info["exception_message"]) if info["raised_exception"] else ""
    infos = [info] if "raised_exception" in info else [i for i in info.values() if isinstance(i, Mapping)]
    raised = [i for i in infos if i.get("raised_exception")]
    return _reason(str(raised[0].get("exception_message")), str(raised[0].get("exception_traceback"))) if raised else ""


def error_info(result: Any) -> dict[str, Any]:
    """Return the reason as an exception info, in place of Great Expectations' own, which quotes record data."""
    error = error_in(result)
    return {"raised_exception": bool(error), "exception_message": error, "exception_traceback": None, "by": OURS}


def error_text(error: Exception) -> str:
    """Return the reason of an exception during an evaluation, without record data."""
    if isinstance(error, TooLongError | UnusableCheckError):
        return f"{COULD_NOT}: {error}"
    return _reason(str(error), f"{type(error).__name__}:")


def _reason(message: str, stack: str) -> str:
    if column := _NO_COLUMN.search(message):
        return f"{COULD_NOT}: the records have no column {column[1]}"
    # Great Expectations wraps every exception in a MetricResolutionError.
    names = [name for name in _EXCEPTION.findall(stack) if name != "MetricResolutionError"] or ["error"]
    error_class = _ERROR_CLASS.search(message)
    return f"{COULD_NOT}: {names[-1]}{f' [{error_class[1]}]' if error_class else ''}"

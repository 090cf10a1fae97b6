"""Whether a check that was given up still keeps cores of the application.

Java lets nobody stop a thread that matches a regular expression (spark_jobs.quality.time_limit): Spark has given its
job up, and the task goes on until its process ends. An application without a free core does nothing more, and says
nothing.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from cleantail.home.conditions import holds_within

ENDED_WITHIN_S = 5.0
"""So long (s) tasks are waited for that are only slow to end."""


def are_cores_lost(spark: SparkSession) -> bool:
    """Returns whether tasks go on running though no job does, at a moment when nothing is asked of Spark."""
    return not holds_within(lambda: running_tasks(spark) == 0, every_s=0.2, within_s=ENDED_WITHIN_S)


def running_tasks(spark: SparkSession) -> int:
    """Returns how many tasks the executors are at."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    return sum(int(executor.numRunningTasks()) for executor in tracker.getExecutorInfos())

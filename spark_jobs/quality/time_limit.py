"""Says how long a topic's own checks may take: a regular expression, or a schema's, can take for ever on one value.

Spark gives such a job up at once, while the thread that matches goes on until its process ends: nothing in Java stops
it. So nothing more is asked of Spark for the same checks, and the job ends with a verdict.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from cleantail.config.input_limits import CHECKS_MS, limit_text
from spark_jobs.quality.lost_cores import note_given_up

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

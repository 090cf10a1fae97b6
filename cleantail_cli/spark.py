"""Starts Spark for a command: one session, with its progress and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cleantail.config.platform import Platform
from cleantail_cli.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANCEL_S = 0.2
"""The pause between two cancellations of Spark's jobs after Ctrl-C, until the work has ended."""

CANCEL_WITHIN_S = 10


@contextmanager
def spark_session(platform: Platform, name: str, progress: Progress, records: int | None = None) -> Iterator[Any]:
    """Starts the session for the work in the block; it counts the tasks that are done, and heeds Ctrl-C."""
    from spark_jobs.iceberg.session import start_session

    progress("starting Spark")
    spark = start_session(platform, name, records)
    progress.watch(spark)
    with interruptible(spark):
        yield spark


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Lets Ctrl-C cancel Spark's jobs for the block. What the block does after that still gets answers; a second Ctrl-C
    ends it at once.

    PySpark's own handler calls Java in the midst of a call into Java, of which neither comes to an end.
    Raises KeyboardInterrupt where the block fails because of it. A block that ends well all the same has done its work.
    """
    interrupted, ended = threading.Event(), threading.Event()
    canceller: list[threading.Thread] = []

    def cancel() -> None:
        while not ended.is_set():
            spark.sparkContext.cancelAllJobs()
            ended.wait(CANCEL_S)

    def handle(*_: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        canceller.append(threading.Thread(target=cancel, daemon=True))
        canceller[0].start()

    if threading.current_thread() is not threading.main_thread():  # only there signals are handled
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    except Exception:
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        ended.set()
        for thread in canceller:  # a cancellation that is under way would meet the next work
            thread.join(CANCEL_WITHIN_S)
        signal.signal(signal.SIGINT, before)

"""Long work of a command: its progress line on stderr, its Spark session, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.human import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.iceberg.tables import TopicTable


Item = TypeVar("Item")
REDRAW_S = 0.1
"""Shortest pause between two drawings of the line while items are counted."""
POLL_S = 0.5
"""Pause between two polls of Spark's progress."""


class Progress:
    """Progress of long work, which is not shown. Jobs only call the object with the name of the step that begins."""

    def __call__(self, step: str) -> None:
        """Begin a step, and reset the count."""

    def about(self, text: str) -> None:
        """Show the extent of the whole work, such as `3 partitions, 1200 records`."""

    def counting(self, items: Iterable[Item], noun: str) -> Iterable[Item]:
        """Return the items, and count them while they are read. The total of a sequence is shown too."""
        return items

    def watch(self, spark: Any) -> None:
        """Count the tasks of the Spark session's stages from now on."""


SILENT = Progress()


class Line(Progress):
    """The progress line on a terminal. `draw` gets the texts that have changed."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None
        self._about = ""

    def __call__(self, step: str) -> None:
        self._draw(description=step, about=self._about, counts="", total=None, completed=0)

    def about(self, text: str) -> None:
        self._about = text
        self._draw(about=text)

    def counting(self, items: Iterable[Item], noun: str) -> Iterator[Item]:
        total = len(items) if isinstance(items, Sequence) else None
        number, due = 0, 0.0
        for number, item in enumerate(items, 1):
            if (at := time.monotonic()) >= due:
                self._count(number, total, noun)
                due = at + REDRAW_S
            yield item
        self._count(number, total, noun)

    def _count(self, number: int, total: int | None, noun: str) -> None:
        text = counted(number, noun) if total is None else f"{number} of {counted(total, noun)}"
        self._draw(counts=text, total=total, completed=number)

    def watch(self, spark: Any) -> None:
        self._watcher = threading.Thread(target=self._follow, args=(spark.sparkContext,), daemon=True)
        self._watcher.start()

    def _follow(self, context: Any) -> None:
        """Poll Spark until the work or Spark ends. Runs in a thread of its own: an answer may take long."""
        tracker = context.statusTracker()
        while not self._ended.wait(POLL_S):
            try:
                done, total = tasks(tracker)
            except Exception:
                return  # Spark has ended
            if total:
                self._draw(counts=f"{done} of {counted(total, 'task')}", total=total, completed=done)

    def end(self) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join(POLL_S * 4)


def tasks(tracker: Any) -> tuple[int, int]:
    """Return (completed tasks, all tasks) of Spark's active stages."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    active = [stage for stage in stages if stage is not None]  # a stage may end between the two calls
    return sum(stage.numCompletedTasks for stage in active), sum(stage.numTasks for stage in active)


@contextmanager
def on_terminal() -> Iterator[Progress]:
    """Show the progress line on stderr. Silent if stderr is not a terminal that can redraw a line."""
    if not sys.stderr.isatty():
        yield SILENT
        return
    from rich.console import Console

    if (console := Console(stderr=True, highlight=False)).is_dumb_terminal:
        yield SILENT
        return
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    texts = [
        TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[about]", "fields[counts]")
    ]
    columns = (SpinnerColumn(), texts[0], BarColumn(20), *texts[1:], TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("starting", total=None, about="", counts="")
        line = Line(lambda **changes: bar.update(task, **changes))
        try:
            yield line
        finally:
            line.end()


CANCEL_S = 0.2
"""Pause between two cancellations of Spark's jobs after Ctrl-C, until the work has ended."""
CANCEL_WITHIN_S = 10
"""How long to wait for a running cancellation."""


@contextmanager
def spark_session(platform: Platform, name: str, progress: Progress, records: int | None = None) -> Iterator[Any]:
    """Start a Spark session for the block, with its tasks in the progress line. Ctrl-C cancels its jobs."""
    from spark_jobs.iceberg.session import start_session

    progress("starting Spark")
    spark = start_session(platform, name, records)
    progress.watch(spark)
    with interruptible(spark):
        yield spark


@contextmanager
def table_in_spark(topic: Topic, command: str, progress: Progress, step: str) -> Iterator[TopicTable]:
    """Start a Spark session for the block, and return the topic's table in it. `step`: text about the block."""
    from spark_jobs.iceberg.tables import TopicTable

    with spark_session(topic.platform, f"cleantail {command} {topic.topic}", progress) as spark:
        progress(step)
        yield TopicTable.of(spark, topic)


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Let Ctrl-C cancel Spark's jobs during the block. A second Ctrl-C ends the block at once.

    PySpark's own handler calls Java while a call into Java is running, and both hang. Raises KeyboardInterrupt if the
    block fails after Ctrl-C. A block that succeeds all the same returns as usual.
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

    if threading.current_thread() is not threading.main_thread():  # signals are handled only there
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
        for thread in canceller:  # a running cancellation would hit the next work
            thread.join(CANCEL_WITHIN_S)
        signal.signal(signal.SIGINT, before)

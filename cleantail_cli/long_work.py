"""What a command shows and heeds during long work: the progress line on stderr, the Spark session, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cleantail.config.platform import Platform
from cleantail.human import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Item = TypeVar("Item")
REDRAW_S = 0.1
"""The line is drawn anew so often at most while items are counted."""
POLL_S = 0.5
"""How often Spark is asked how far it is."""


class Progress(Protocol):
    """Shows how far long work is. A call names the step that begins, which is all that the jobs know of it."""

    def __call__(self, step: str) -> None:
        """Names the step; what was counted before belongs to the step before."""

    def about(self, text: str) -> None:
        """Says what the whole work is about, as `3 partitions, 1200 records`."""

    def counting(self, items: Iterable[Item], noun: str) -> Iterable[Item]:
        """Passes the items on and counts them; of a sequence it also says how many there are."""

    def watch(self, spark: Any) -> None:
        """Counts the tasks of the Spark session's stages from here on."""


class Silent:
    """Says nothing."""

    def __call__(self, step: str) -> None:
        """Does nothing."""

    def about(self, text: str) -> None:
        """Does nothing."""

    def counting(self, items: Iterable[Item], noun: str) -> Iterable[Item]:
        return items

    def watch(self, spark: Any) -> None:
        """Does nothing."""


SILENT = Silent()


class Line:
    """Is the line on a terminal. `draw` is given its texts: the step, what the work is about, and the counts."""

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
        """Runs in a thread, since Spark's answer may take a while; it ends with the work, or with Spark."""
        tracker = context.statusTracker()
        while not self._ended.wait(POLL_S):
            try:
                done, total = tasks(tracker)
            except Exception:
                return  # Spark has ended, and how far it was matters to nobody
            if total:
                self._draw(counts=f"{done} of {counted(total, 'task')}", total=total, completed=done)

    def end(self) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join(POLL_S * 4)


def tasks(tracker: Any) -> tuple[int, int]:
    """Counts the tasks of Spark's active stages that are done, and all of them."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    active = [stage for stage in stages if stage is not None]  # one may end between the two questions
    return sum(stage.numCompletedTasks for stage in active), sum(stage.numTasks for stage in active)


@contextmanager
def on_terminal() -> Iterator[Progress]:
    """Draws the line on stderr; nothing where that is no terminal that can draw it anew."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    texts = [
        TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[about]", "fields[counts]")
    ]
    columns = (SpinnerColumn(), texts[0], BarColumn(20), *texts[1:], TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True, highlight=False), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("starting", total=None, about="", counts="")
        line = Line(lambda **changes: bar.update(task, **changes))
        try:
            yield line
        finally:
            line.end()


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

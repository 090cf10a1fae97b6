"""Run a piece of work in a fresh process, without a JVM and without caches of other work."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


class BenchmarkError(Exception):
    """A measured program did not do its work."""


def in_fresh_process(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `work` in a new Python process and return its result. Raises BenchmarkError with the text of its error.

    If this process is killed, the new one ends too. Otherwise it would slow down every later measurement.
    """
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, initializer=_end_with_parent) as pool:
        result, error = pool.submit(_result_or_error, work, args, kwargs).result()
    if error:
        raise BenchmarkError(error)
    return cast(R, result)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _result_or_error(
    work: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[object, str]:
    """Return (result, ""), or (None, text of the error), because errors of the JVM cannot be pickled."""
    try:
        return work(*args, **kwargs), ""
    except Exception:
        return None, traceback.format_exc()


class Stopwatch:
    """Measures the seconds of named blocks, in the order in which they run."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds.setdefault(name, []).append(time.perf_counter() - began)


def say(text: str) -> None:
    """Print the progress of a long run to stderr."""
    print(f"  {time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def require_records(count: int, expected: int, what: str) -> None:
    """Raise BenchmarkError for another number of records than expected, so that the time of wrong work is not
    reported."""
    if count != expected:
        raise BenchmarkError(f"{what} left {count:,} records, and should have left {expected:,}")

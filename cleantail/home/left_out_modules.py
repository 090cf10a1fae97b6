"""Modules that a process does without, or somebody's imports do.

Libraries import them at once where they are there, and go without where they are not. PyArrow imports pandas as soon as
it is asked for anything, and Great Expectations Spark Connect.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _LeftOut(MetaPathFinder):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for these modules. Every other module the next finder is asked for."""
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is left out here", name=name)


def leave_out(*names: str) -> None:
    """Lets this process, and those that it forks, do without these modules. One that was imported before is there."""
    sys.meta_path = [_LeftOut(names), *sys.meta_path]


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Lets the imports of the block do without these modules, in all threads. One that was imported before is there.

    The list of finders is replaced, not changed: another thread may be going through it.
    """
    finder = _LeftOut(names)
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]

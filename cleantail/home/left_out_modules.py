"""Hides modules from a whole process, or from the imports of one block, which then take them for not installed.

Some libraries import large modules at once where these are installed, and work without them where they are not. So
PyArrow imports pandas as soon as it is asked for anything, and Great Expectations imports Spark Connect.
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
        """Raises ModuleNotFoundError for these modules. For every other module Python asks the next finder."""
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is left out here", name=name)


def leave_out(*names: str) -> None:
    """Hides these modules from this process, and from those that it forks. One that was imported before stays."""
    sys.meta_path = [_LeftOut(names), *sys.meta_path]


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Hides these modules from the imports of the block, and from those of all threads meanwhile. One that was imported
    before stays.

    The list of finders is replaced, not changed: another thread may be going through it.
    """
    finder = _LeftOut(names)
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]

"""Modules that are imported when something of them is first used, where it is somebody else's code that imports them.

importlib.util.LazyLoader does the same for imports of one's own; the next `import` of such a module would load it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_loading = threading.RLock()


@contextmanager
def imported_when_used(*names: str) -> Iterator[None]:
    """Gives the imports of the block stand-ins for these modules, where they are not imported yet and can be found.

    After the block only what the block has imported knows them: whoever imports such a module then gets it at once.
    """
    stand_ins = [_StandIn(name, spec) for name in names if name not in sys.modules and (spec := _spec_of(name))]
    sys.modules.update({stand_in.__name__: stand_in for stand_in in stand_ins})
    try:
        yield
    finally:
        with _loading:
            for stand_in in stand_ins:
                if sys.modules.get(stand_in.__name__) is stand_in:
                    del sys.modules[stand_in.__name__]


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except ModuleNotFoundError:  # of the package that it is in
        return None


class _StandIn(ModuleType):
    """Has what the module has. Python asks it for what it has not itself: all but its name and its spec."""

    def __init__(self, name: str, spec: ModuleSpec) -> None:
        super().__init__(name)
        self.__spec__ = spec

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._module(), attribute)

    def _module(self) -> ModuleType:
        with _loading:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return import_module(self.__name__)

"""Modules that are imported when something of them is first used, for imports that somebody else's code makes.

importlib.util.LazyLoader does the same for imports of one's own; the next `import` of such a module would load it.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_loading = threading.RLock()


def import_when_used(name: str) -> None:
    """Puts a stand-in where an import finds it, unless the module is there already, or nowhere to be found."""
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is not None:
        sys.modules[name] = _StandIn(name, spec)


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
                try:
                    return import_module(self.__name__)
                except BaseException:
                    sys.modules[self.__name__] = self
                    raise
        return sys.modules[self.__name__]

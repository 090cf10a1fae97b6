"""Run `cleantail ...`, and write the times at which its steps began and ended.

    python -m benchmarks.topics.watched_command RESULT STARTED_AT compact orders --force

STARTED_AT is the Unix time (s) at which the caller started this process. RESULT becomes JSON: step -> [begin, end], in
seconds from STARTED_AT. The watch is set while a module is imported, so that it imports no module earlier than usual.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

STEPS = {
    "cleantail.lake.evaluate": "evaluate_topic",
    "pyspark.java_gateway": "launch_gateway",
    "spark_jobs.iceberg.session": "start_session",
    "spark_jobs.round.make": "compact_unit",
    "spark_jobs.round.check": "check_round",
    "spark_jobs.round.publish": "publish_round",
    "spark_jobs.round.run": "expire_round",
}
"""Module -> its function that is a step."""
IMPORTS = ("cleantail.lake.table_metadata", "pyspark.sql", "spark_jobs.round.run", "great_expectations")
"""Modules whose import takes long. Their time includes the modules that they import."""


class Watch:
    """Stores begin and end of each step's first call, in seconds from the process's start."""

    def __init__(self, started_at_s: float) -> None:
        self._started_at_s = started_at_s
        self.spans: dict[str, tuple[float, float]] = {}

    def now(self) -> float:
        return time.time() - self._started_at_s

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            began = self.now()
            try:
                return function(*args, **kwargs)
            finally:
                self.spans.setdefault(name, (began, self.now()))

        return run


class Finder(MetaPathFinder):
    """Sets the watch in modules that other finders have found."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._left = {*STEPS, *IMPORTS}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._left:
            return None
        self._left.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            # the loader is this module's own object
            loader: Any = spec.loader
            loader.exec_module = self._executed(fullname, loader.exec_module)
        return spec

    def _executed(self, name: str, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        timed = self._watch.watched(f"import {name}", execute) if name in IMPORTS else execute

        def run(module: ModuleType) -> None:
            timed(module)
            if function := STEPS.get(name):
                setattr(module, function, self._watch.watched(function, getattr(module, function)))

        return run


def main(argv: list[str]) -> int:
    result, started_at, *command = argv
    watch = Watch(float(started_at))
    watch.spans["python starts"] = (0.0, watch.now())
    sys.meta_path.insert(0, Finder(watch))
    from cleantail_cli import main as cleantail

    code = cleantail(command)
    watch.spans["all of main"] = (watch.spans["python starts"][1], watch.now())
    Path(result).write_text(json.dumps(watch.spans))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Great Expectations as it is asked here: a context in memory, which keeps nothing, one for each thread that asks.

A context in files reads and writes its data source, suite, validation and checkpoint around every validation: several
times the work of judging the measures of a round. What is kept of a validation, spark_jobs.quality.data_docs writes.

Importing great_expectations costs seconds; it is imported on first use, which `preload` can start beside the JVM.
SciPy and Altair, which few checks of a topic need, and no rule, are imported once one does.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from cleantail.home.process import without
from spark_jobs.quality.data_docs import subject
from spark_jobs.quality.evaluation import RECORDS, Format

# importlib.util.LazyLoader does the same for one's own imports. The next `import` of such a module would load it.
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


SELDOM_USED = ("scipy.stats", "altair")
"""What Great Expectations imports for a few of its expectations and for charts of its own pages."""
NOT_USED = "pyspark.sql.connect"
"""What it does without where that is not installed: no session of ours is one of Spark Connect."""


def preload() -> None:
    """Starts the import in the background: it overlaps with the start of the JVM."""
    threading.Thread(target=imported, daemon=True).start()


def imported() -> Any:
    """Returns the module great_expectations."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    with nullcontext() if "great_expectations" in sys.modules else _quickly():
        import great_expectations

    # its log quotes what Spark says, which quotes values of records; what matters is in the results
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    return great_expectations


@contextmanager
def _quickly() -> Iterator[None]:
    with imported_when_used(*SELDOM_USED), without(NOT_USED):
        yield


def validate(name: str, expectations: list[Any], frame: Any, result_format: Format, round_id: str) -> Any:
    """Returns the ExpectationSuiteValidationResult of a frame: measures as pandas has them, records as Spark has.
    `name`: of the suite, which says what the frame is."""
    gx = imported()
    suite = gx.ExpectationSuite(name=name, expectations=expectations)
    batch = _batch_definition(gx, name).get_batch({"dataframe": frame})
    validation = batch.validate(suite, result_format=dict(result_format))
    validation.meta["run_id"] = gx.RunIdentifier(run_name=round_id)
    return validation


def as_of(validation: Any, round_id: str, kind: str, logs: Sequence[int]) -> Any:
    """Returns a validation of many rounds, in which nothing was wrong, as that of one of them. It says of each rule
    only that it holds, so what it says of all logs it says of these."""
    of_round = copy(validation)
    of_round.meta = {**validation.meta, "run_id": imported().RunIdentifier(run_name=round_id)}
    of_round.results = [_of_logs(result, kind, logs) for result in validation.results]
    return of_round


def _of_logs(result: Any, kind: str, logs: Sequence[int]) -> Any:
    of_logs = copy(result)
    of_logs.expectation_config = copy(result.expectation_config)
    of_logs.expectation_config.meta = (result.expectation_config.meta or {}) | subject(kind, logs)
    return of_logs


class _Known(threading.local):
    """Says what a thread has made. An engine of Great Expectations holds the frames of one validation at a time."""

    def __init__(self) -> None:
        self.context: Any = None
        self.batches: dict[str, Any] = {}


_known = _Known()


def _batch_definition(gx: Any, name: str) -> Any:
    """Returns the batch definition of a suite's frames, made once: with each, a context writes its configuration."""
    if _known.context is None:
        _known.context = gx.get_context(mode="ephemeral")
        _known.context.variables.progress_bars = {"globally": False}
    if name not in _known.batches:
        sources = _known.context.data_sources
        source = sources.add_spark(name, persist=False) if name == RECORDS else sources.add_pandas(name)
        _known.batches[name] = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole")
    return _known.batches[name]

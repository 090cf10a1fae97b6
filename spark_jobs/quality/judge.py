"""Run Great Expectations with an in-memory context per thread. spark_jobs.quality.data_docs stores the results.

A context in files reads and writes its data source, suite, validation and checkpoint at every validation. That costs
several times the work of judging the measures of a round.

great_expectations takes seconds to import, so it is imported on first use. `preload` starts the import while the JVM
starts. SciPy and Altair are imported only if a topic's check uses them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from cleantail.home.process import without
from spark_jobs.quality.data_docs import subject
from spark_jobs.quality.evaluation import RECORDS, Format

# importlib.util.LazyLoader is not enough: any later `import` of such a module would load it.
_loading = threading.RLock()


@contextmanager
def imported_when_used(*names: str) -> Iterator[None]:
    """Replace these modules by stand-ins for the imports of the block, if they exist and are not imported yet.

    A stand-in imports its module at the first access. After the block, other imports load the module at once.
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
    except ModuleNotFoundError:  # its package is not installed
        return None


class _StandIn(ModuleType):
    """A module that imports the real one at the first access of an attribute other than name or spec."""

    def __init__(self, name: str, spec: ModuleSpec) -> None:
        super().__init__(name)
        self.__spec__ = spec

    def __getattr__(self, attribute: str) -> Any:
        with _loading:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            module = import_module(self.__name__)
        return getattr(module, attribute)


SELDOM_USED = ("scipy.stats", "altair")
"""Imports of Great Expectations for a few expectations and for charts of its own pages."""
NOT_USED = "pyspark.sql.connect"
"""Optional import of Great Expectations: Cleantail never uses a Spark Connect session."""


def preload() -> None:
    """Start the import in the background, while the JVM starts."""
    threading.Thread(target=imported, daemon=True).start()


def imported() -> Any:
    """Return the module great_expectations."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    with ExitStack() as stack:
        if "great_expectations" not in sys.modules:
            stack.enter_context(imported_when_used(*SELDOM_USED))
            stack.enter_context(without(NOT_USED))
        import great_expectations

    # Its log quotes Spark's messages, which quote values of records. The results have what matters.
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    return great_expectations


def validate(name: str, expectations: list[Any], frame: Any, result_format: Format, round_id: str) -> Any:
    """Return the ExpectationSuiteValidationResult of a frame. `name`: suite, MEASURES (pandas) or RECORDS (Spark)."""
    gx = imported()
    suite = gx.ExpectationSuite(name=name, expectations=expectations)
    batch = _batch_definition(gx, name).get_batch({"dataframe": frame})
    validation = batch.validate(suite, result_format=dict(result_format))
    validation.meta["run_id"] = gx.RunIdentifier(run_name=round_id)
    return validation


def as_of(validation: Any, round_id: str, kind: str, logs: Sequence[int], records: int | None) -> Any:
    """Return a passed validation of many rounds as that of one of them: its logs are `logs`, with so many records."""
    of_round = copy(validation)
    of_round.meta = {**validation.meta, "run_id": imported().RunIdentifier(run_name=round_id)}
    of_round.results = [_of_logs(result, subject(kind, logs, records)) for result in validation.results]
    return of_round


def _of_logs(result: Any, of_round: dict[str, Any]) -> Any:
    of_logs = copy(result)
    of_logs.expectation_config = copy(result.expectation_config)
    of_logs.expectation_config.meta = (result.expectation_config.meta or {}) | of_round
    return of_logs


class _Known(threading.local):
    """The context of a thread. An engine of Great Expectations holds the frames of one validation at a time."""

    def __init__(self) -> None:
        self.context: Any = None
        self.batches: dict[str, Any] = {}


_known = _Known()


def _batch_definition(gx: Any, name: str) -> Any:
    """Return the cached batch definition of a suite: for each new one, a context writes its configuration."""
    if _known.context is None:
        _known.context = gx.get_context(mode="ephemeral")
        _known.context.variables.progress_bars = {"globally": False}
    if name not in _known.batches:
        sources = _known.context.data_sources
        source = sources.add_spark(name, persist=False) if name == RECORDS else sources.add_pandas(name)
        _known.batches[name] = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole")
    return _known.batches[name]

"""Run Great Expectations with an in-memory context per thread. spark_jobs.quality.data_docs stores the results.

A context in files reads and writes its data source, suite, validation and checkpoint at every validation. That costs
several times the work of judging the measures of a round.

great_expectations takes seconds to import, so it is imported on first use. `preload` starts the import while the JVM
starts.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any

from spark_jobs.quality.data_docs import subject
from spark_jobs.quality.time_limit import RECORDS, Format


def preload() -> None:
    """Start the import in the background, while the JVM starts."""
    threading.Thread(target=imported, daemon=True).start()


def imported() -> Any:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import great_expectations

    # its log quotes Spark's messages, which quote values of records
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
    """Return a passed validation of many rounds as that of one round, which has these logs and this many records."""
    of_round = copy(validation)
    of_round.meta = {**validation.meta, "run_id": imported().RunIdentifier(run_name=round_id)}
    of_round.results = [_of_logs(result, subject(kind, logs, records)) for result in validation.results]
    return of_round


def _of_logs(result: Any, of_round: dict[str, Any]) -> Any:
    of_logs = copy(result)
    of_logs.expectation_config = copy(result.expectation_config)
    of_logs.expectation_config.meta = (result.expectation_config.meta or {}) | of_round
    return of_logs


class _ThreadContext(threading.local):
    """The context of a thread. An engine of Great Expectations holds the frames of one validation at a time."""

    def __init__(self) -> None:
        self.context: Any = None
        self.batches: dict[str, Any] = {}


_of_thread = _ThreadContext()


def _batch_definition(gx: Any, name: str) -> Any:
    """Return the cached batch definition of a suite: for each new one, a context writes its configuration."""
    if _of_thread.context is None:
        _of_thread.context = gx.get_context(mode="ephemeral")
        _of_thread.context.variables.progress_bars = {"globally": False}
    if name not in _of_thread.batches:
        sources = _of_thread.context.data_sources
        source = sources.add_spark(name, persist=False) if name == RECORDS else sources.add_pandas(name)
        _of_thread.batches[name] = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole")
    return _of_thread.batches[name]

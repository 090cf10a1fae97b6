"""Great Expectations' store of validation results, into which no key or value of a record gets.

Great Expectations makes it by the names in STORE. It strips a result before it is written, and the caller has the same
object: so nothing that reads results (findings, Data Docs) ever sees more than what is stored.
"""

from __future__ import annotations

from typing import Any

from great_expectations.data_context.store import ValidationResultsStore

from cleantail.rounds.checked.check_results import kept_result
from spark_jobs.quality.evaluation_errors import error_info

MEASURES = "round"
"""The suite over the measures of a round, which are counts by partition."""


class ResultsStore(ValidationResultsStore):
    """Keeps counts and offsets."""

    def set(self, key: Any, value: Any, **more: Any) -> Any:
        """Strips the validation of records, then writes it."""
        if value.suite_name != MEASURES:
            for result in value.results:
                strip(result)
        return super().set(key, value, **more)


def strip(result: Any) -> None:
    """Leaves of one expectation's result what may be kept."""
    config = result.expectation_config
    result.exception_info = error_info(result)
    result.result = kept_result(config.type, config.kwargs, result.result or {})
    result.rendered_content = None

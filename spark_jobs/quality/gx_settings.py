"""What Great Expectations is told: how much of a result to give, and where validations are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.rounds.checked.check_results import EXAMPLES

Format = Mapping[str, Any]
WHETHER: Format = {"result_format": "BOOLEAN_ONLY"}
"""Of measures, whether they break a rule: what most rounds need to know, and half the work."""
BY_LOG: Format = {"result_format": "COMPLETE", "unexpected_index_column_names": [PARTITION]}
"""The measures are one row a log, and tell which."""
COUNTED: Format = {"result_format": "BASIC", "partial_unexpected_count": 0, "exclude_unexpected_values": True}
"""Of records, how many failed."""
LOCATED: Format = {
    **COUNTED,
    "result_format": "SUMMARY",
    "partial_unexpected_count": EXAMPLES,
    "unexpected_index_column_names": [OFFSET],
}
"""And where some of them are: one more scan, so only where there are any."""
RECORDS = "records"
STORE = {
    "class_name": "ResultsStore",
    "module_name": "spark_jobs.quality.results_store",
    "store_backend": {
        "class_name": "TupleFilesystemStoreBackend",
        "base_directory": "uncommitted/validations/",
    },
}
"""Where validations are kept, by the names by which Great Expectations makes it."""

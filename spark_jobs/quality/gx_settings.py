"""Says what Great Expectations is told: how much of a result to give, and what its suites are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.rounds.check_results import EXAMPLES

Format = Mapping[str, Any]
WHETHER: Format = {"result_format": "BOOLEAN_ONLY"}
"""Of measures, whether they break a rule: what most rounds need to know."""
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
EACH = "ExpectColumnValuesToBeBetween"
"""The expectation that a rule is asked by where it is broken somewhere (rule_expectation): it says by which log."""
MEASURES, RECORDS = "round", "records"
"""The suites: over the measures of a round, which are counts by partition, and over records, which the topic's own
checks look at."""

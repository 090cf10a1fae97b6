"""Names by which tasks find each other and what they hand on."""

from __future__ import annotations

EVALUATE = "evaluate"
ALERT = "alert"
ALERT_EARLY = "alert_early"
"""Of a topic whose rounds can wait for a person: what is wrong with it is told before that."""
OUTCOME = "outcome"
PLAN = "plan"
"""XCom of `evaluate`: the whole RunPlan. Its return value is the list of work units, over which compact is mapped."""

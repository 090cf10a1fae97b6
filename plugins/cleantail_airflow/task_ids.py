"""The names by which tasks find each other, and the XCom that `evaluate` hands on."""

from __future__ import annotations

EVALUATE = "evaluate"
ALERT = "alert"
ALERT_EARLY = "alert_early"
"""The task that tells what is wrong with a topic before its round waits for a person."""
OUTCOME = "outcome"
PLAN = "plan"
"""The XCom of `evaluate` with the whole RunPlan. Its return value is the work units, over which compact is mapped."""

"""Ids of tasks that cleantail.rounds.stations does not name, and the name of the XCom that `evaluate` writes."""

from __future__ import annotations

ALERT, OUTCOME = "alert", "outcome"
PLAN = "plan"
"""The XCom of `evaluate` with the RunPlan. Its return value is the work units, over which compact is mapped."""
ERASE = "erase"
"""The task of the DAG that continues requests to erase keys."""
DOCTOR = "doctor"
"""The task of the DAG that examines the installation. It returns the findings."""

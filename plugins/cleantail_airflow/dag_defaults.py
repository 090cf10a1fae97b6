"""What all DAGs of Cleantail share: default arguments, and ids that cleantail.rounds.stations does not name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cleantail.config.platform import Platform

ALERT, OUTCOME = "alert", "outcome"
PLAN = "plan"
"""The XCom of `evaluate` with the RunPlan. Its return value is the work units, over which compact is mapped."""
ERASE = "erase"
"""The task of the DAG that continues requests to erase keys."""
DOCTOR = "doctor"
"""The task of the DAG that examines the installation. It returns the findings."""


RETRIES = 2
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)  # catchup is off, so any day in the past will do


def default_args(owner: str, platform: Platform) -> dict[str, Any]:
    backoff_ms = platform.cleaner.log_cleaner_backoff_ms
    return {"owner": owner, "retries": RETRIES, "retry_delay": timedelta(milliseconds=backoff_ms)}

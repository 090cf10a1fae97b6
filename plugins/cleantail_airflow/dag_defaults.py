"""The defaults that all DAGs of Cleantail share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cleantail.config.platform import Platform

RETRIES = 2
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)  # catchup is off, so any day in the past will do


def default_args(owner: str, platform: Platform) -> dict[str, Any]:
    backoff_ms = platform.cleaner.log_cleaner_backoff_ms
    return {"owner": owner, "retries": RETRIES, "retry_delay": timedelta(milliseconds=backoff_ms)}

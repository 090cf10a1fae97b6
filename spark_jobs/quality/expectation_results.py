"""Results of Great Expectations as check results: what one expectation says of one log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cleantail.config.topic_checks import Check
from cleantail.config.topic_table import PARTITION
from cleantail.log.rules import rule_text, severity_of
from cleantail.rounds.check_results import OFFSETS, CheckResult, kept_result, observed_text
from spark_jobs.quality.evaluation_errors import error_in, error_text

OBSERVED_CHARS = 300


def rule_results(result: Any, logs: Sequence[int]) -> list[CheckResult]:
    """Returns one result for each log, of one rule of the round."""
    config = result.expectation_config
    column, error = config.kwargs["column"], error_in(result)
    wrong = {row[PARTITION]: row[column] for row in (result.result or {}).get("unexpected_index_list") or []}
    return [
        CheckResult(
            partition=p,
            expectation=column,
            rule=rule_text(column),
            severity=severity_of(column),
            passed=not error and p not in wrong,
            observed=error or f"{wrong.get(p, 0)} violations",
            error=bool(error),
        )
        for p in logs
    ]


def record_result(result: Any, partition: int) -> CheckResult:
    """Returns the result of one of the topic's own checks."""
    config = result.expectation_config
    error = error_in(result)
    kwargs = {k: v for k, v in config.kwargs.items() if k != "batch_id"}
    kept = kept_result(config.type, kwargs, result.result or {})
    return CheckResult(
        partition=partition,
        expectation=config.type,
        rule=_arguments(kwargs),
        severity=str(getattr(config.severity, "value", config.severity) or "critical"),
        passed=not error and bool(result.success),
        observed=error or observed_text(kept)[:OBSERVED_CHARS],
        error=bool(error),
        offsets=tuple(kept.get(OFFSETS, ())),
    )


def unevaluated(check: Check, partition: int, error: Exception) -> CheckResult:
    """Returns the result of a check for which Great Expectations raised an exception."""
    return CheckResult(
        partition=partition,
        expectation=check.expectation,
        rule=_arguments(check.kwargs),
        severity=check.severity,
        passed=False,
        observed=error_text(error),
        error=True,
    )


def _arguments(kwargs: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in kwargs.items())

"""The Great Expectations suites: the rules of a round on its measures, and the topic's own checks on its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_checks import Check, class_name, is_own
from cleantail.config.topic_table import PARTITION
from cleantail.log.round_state import COMPACT
from cleantail.log.rules import rule_text, severity_of
from cleantail.rounds.check_results import OFFSETS, CheckResult, kept_result, observed_text
from spark_jobs.quality.data_docs import DocsStore, Project, apart, subject
from spark_jobs.quality.gx_validation import as_of, imported, validate
from spark_jobs.quality.time_limit import (
    BY_LOG,
    COUNTED,
    EACH,
    LOCATED,
    MEASURES,
    RECORDS,
    WHETHER,
    Format,
    TimeLimit,
    TooLongError,
    UnusableCheckError,
    error_in,
    error_text,
)

OBSERVED_CHARS = 300
RECORDS_IN = "records_in"
"""Measure of a log: its records before the round."""


def rule_results(result: Any, logs: Sequence[int]) -> list[CheckResult]:
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


def expectation_class(check: Check, platform: Platform) -> type[Any]:
    """Return the class of a check. Only a module that platform.expectations names is imported. Raises
    UnusableCheckError if an expectation of the platform cannot be used here."""
    gx, name = imported(), check.expectation
    if not is_own(name):
        found: type[Any] = getattr(gx.expectations, class_name(name))
        return found
    if name not in platform.expectations:
        raise UnusableCheckError(f"{name} is not in platform.expectations")
    module, _, own = name.rpartition(".")
    try:
        found = getattr(import_module(module), own)
    except Exception as e:  # any error of that code, whose message may contain data
        raise UnusableCheckError(f"{name} cannot be imported in the Spark driver: {type(e).__name__}") from None
    if not (isinstance(found, type) and issubclass(found, gx.expectations.Expectation)):
        raise UnusableCheckError(f"{name} is not an expectation of Great Expectations")
    return found


@cache
def rule_expectation() -> type[Any]:
    """Return a subclass of Great Expectations' own that caches its configuration.

    A validation reads the configuration about fifty times. Without the cache, building it takes half of the time of a
    round's check.
    """
    highest: type[Any] = imported().expectations.ExpectColumnMaxToBeBetween
    from great_expectations.compatibility import pydantic

    class ExpectHighestCountToBeBetween(highest):  # type: ignore[misc]  # imported late
        _remembered: Any = pydantic.PrivateAttr(default=None)

        @property
        def configuration(self) -> Any:
            if self._remembered is None:
                self._remembered = super().configuration
            return self._remembered

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name != "_remembered":
                self._remembered = None

        def __copy__(self) -> Any:
            copied = super().__copy__()
            copied._remembered = None
            return copied

    return ExpectHighestCountToBeBetween


class Auditor:
    """Check the rounds of one topic by the suite of `rules` and by the topic's own checks."""

    def __init__(
        self, home: Path, topic: Topic, rules: Sequence[str], kind: str = COMPACT, store: DocsStore | None = None
    ) -> None:
        self._kind = kind
        self._topic = topic
        self._rules = list(rules)
        self.project = Project(home, topic.topic, store)

    def check_round(self, round_id: str, measures: Sequence[Mapping[str, int]]) -> list[CheckResult]:
        """Evaluate the rules of a round, and search for the failed logs only if one is broken. `measures`: for each
        log, `partition`, `records_in` and the number of violations of each rule."""
        import pandas as pd

        logs = [m[PARTITION] for m in measures]

        def validate(some: Sequence[int], rules: list[Any], result_format: Format) -> list[Any]:
            of_logs = [m for m in measures if m[PARTITION] in some]
            frame, records = pd.DataFrame(of_logs), _records_in(of_logs)
            return self._validated(MEASURES, rules, some, frame, result_format, round_id, records)

        results = validate(logs, self.rules(), WHETHER)
        if not all(result.success for result in results):
            self.project.forget_all_after(self.project.validations - 1)
            results = validate(logs, self._rules_of_each_log(), BY_LOG)
        findings = [finding for result in results for finding in rule_results(result, logs)]
        if len(logs) > 1 and (red := sorted({f.partition for f in findings if not f.passed})):
            self.project.forget_all_after(self.project.validations - 1)
            for some in apart(red, logs):
                validate(some, self._rules_of_each_log(), BY_LOG)
        return findings

    def rules(self) -> list[Any]:
        """Return the rules as expectations that the maximum of each measure is 0.

        This is faster than an expectation of 0 for each value, but the result does not have the failed logs."""
        return [self._rule(name, rule_expectation()) for name in self._rules]

    def _rules_of_each_log(self) -> list[Any]:
        return [self._rule(name, getattr(imported().expectations, EACH)) for name in self._rules]

    def take_over(self, validation: Any, round_id: str, measures: Sequence[Mapping[str, int]]) -> list[CheckResult]:
        """Store a passed validation of many rounds as the validation of this round, and return its results."""
        logs = [m[PARTITION] for m in measures]
        of_round = as_of(validation, round_id, self._kind, logs, _records_in(measures))
        return [finding for result in self.project.keep(of_round) for finding in rule_results(result, logs)]

    def _rule(self, measure: str, expectation: type[Any]) -> Any:
        meta, severity = {"rule": rule_text(measure)}, severity_of(measure)
        return expectation(column=measure, min_value=0, max_value=0, meta=meta, severity=severity)

    def check_records(
        self, round_id: str, records: DataFrame, logs: Sequence[int], limit: TimeLimit
    ) -> list[CheckResult]:
        """Evaluate the topic's own expectations on the records that a round would publish. If one fails, each log is
        evaluated alone. Checks that exceed the time limit count as not evaluated."""
        if not self._topic.checks:
            return []
        before = self.project.validations
        results = self._record_results(round_id, records, self._topic.checks, logs, limit)
        if all(f.passed for f in results):
            return results
        if len(logs) == 1:
            return self._located(round_id, records, results, before, limit)
        self.project.forget_all_after(before)
        return [f for p in logs for f in self._of_log(round_id, records.where(f"`{PARTITION}` = {p:d}"), p, limit)]

    def _of_log(self, round_id: str, records: DataFrame, log: int, limit: TimeLimit) -> list[CheckResult]:
        before = self.project.validations
        results = self._record_results(round_id, records, self._topic.checks, [log], limit)
        return self._located(round_id, records, results, before, limit)

    def _located(
        self, round_id: str, records: DataFrame, results: list[CheckResult], before: int, limit: TimeLimit
    ) -> list[CheckResult]:
        """Return one log's results with the offsets of some failed records, if Great Expectations can find them.
        `before`: number of validations before those of the results."""
        if all(f.passed or f.error for f in results):
            return results
        checks, logs = self._topic.checks, [results[0].partition]
        self.project.forget_all_after(before)
        located = self._record_results(round_id, records, checks, logs, limit, LOCATED)
        if [f.error for f in located] == [f.error for f in results]:
            return located
        self.project.forget_all_after(before)
        return self._record_results(round_id, records, checks, logs, limit)

    def _record_results(
        self,
        round_id: str,
        records: DataFrame,
        checks: Sequence[Check],
        logs: Sequence[int],
        limit: TimeLimit,
        result_format: Format = COUNTED,
    ) -> list[CheckResult]:
        """Evaluate the checks together. If one raises, evaluate each alone, so that it does not stop the others."""
        try:
            platform = self._topic.platform
            suite = [expectation_class(c, platform)(**c.kwargs, severity=c.severity) for c in checks]
            with limit.watched(records.sparkSession):
                results = self._validated(RECORDS, suite, logs, records, result_format, round_id)
        except TooLongError as e:
            return [unevaluated(check, p, e) for check in checks for p in logs]
        except (OSError, Py4JNetworkError):  # a full disk or a dead JVM: not caused by the data
            raise
        except Exception as e:
            if len(checks) == 1:
                return [unevaluated(checks[0], p, e) for p in logs]
            alone = (self._record_results(round_id, records, [check], logs, limit, result_format) for check in checks)
            return [f for results in alone for f in results]
        return [record_result(result, p) for p in logs for result in results]

    def _validated(
        self,
        suite: str,
        expectations: list[Any],
        logs: Sequence[int],
        frame: Any,
        result_format: Format,
        round_id: str,
        records: int | None = None,
    ) -> list[Any]:
        for expectation in expectations:
            expectation.meta = (expectation.meta or {}) | subject(self._kind, logs, records)
        return self.project.keep(validate(suite, expectations, frame, result_format, round_id))


def _records_in(measures: Sequence[Mapping[str, int]]) -> int | None:
    """Return the number of records of the logs before the round, None if it was not measured."""
    return sum(m[RECORDS_IN] for m in measures) if all(RECORDS_IN in m for m in measures) else None


def validated_together(rounds: Sequence[tuple[Auditor, str, Sequence[Mapping[str, int]]]]) -> list[list[CheckResult]]:
    """Return check_round's results for each (auditor, round, measures), all with the same rules. Validates all measures
    together, and each round alone only if a rule is broken."""
    import pandas as pd

    auditor = rounds[0][0]
    frame = pd.DataFrame([measure for _, _, measures in rounds for measure in measures])
    validation = validate(MEASURES, auditor.rules(), frame, WHETHER, rounds[0][1])
    if not all(result.success for result in validation.results):
        return [round_auditor.check_round(round_id, measures) for round_auditor, round_id, measures in rounds]
    return [round_auditor.take_over(validation, round_id, measures) for round_auditor, round_id, measures in rounds]

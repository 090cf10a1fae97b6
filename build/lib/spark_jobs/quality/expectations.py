"""The Great Expectations suites: the rules of a round on its measures, and the topic's own on its records.

Importing great_expectations costs seconds; it is imported on first use, which `preload` can start beside the JVM.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame

from cleantail.config.checks.expectation_names import class_name
from cleantail.config.checks.topic_check import Check
from cleantail.config.topic import Topic
from cleantail.config.topic_table import PARTITION
from cleantail.home.private_files import make_folder
from cleantail.log.round_state import COMPACT
from cleantail.log.rules import rule_text, severity_of
from cleantail.rounds.checked.check_results import CheckResult
from spark_jobs.quality.data_docs_pages import SITE, apart, build, subject
from spark_jobs.quality.evaluation_errors import error_text
from spark_jobs.quality.expectation_results import record_result, rule_results, unevaluated
from spark_jobs.quality.gx_settings import BY_LOG, COUNTED, LOCATED, RECORDS, STORE, Format
from spark_jobs.quality.time_limit import TimeLimit, TooLongError

logger = logging.getLogger("cleantail.expectations")

_WRITING: dict[Path, threading.Thread] = {}
"""Who writes Data Docs, by directory."""


def preload() -> None:
    """Starts the import in the background: it overlaps with the start of the JVM."""
    threading.Thread(target=_gx, daemon=True).start()


def _gx() -> Any:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import great_expectations

    # its log quotes what Spark says, which quotes values of records; what matters is in the results
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    return great_expectations


class Auditor:
    """A file-backed GX context of one topic, with the suite of `rules`: its Data Docs keep the results of all rounds.

    Directory: CLEANTAIL_HOME/data_docs/<topic>.
    """

    def __init__(self, home: Path, topic: Topic, rules: Sequence[str], kind: str = COMPACT) -> None:
        self._gx = _gx()
        self._kind = kind
        self._topic = topic
        self._root = home / "data_docs" / topic.topic
        self._rules = list(rules)
        self._results: list[Any] = []
        self._anew = False
        if (before := _WRITING.pop(self._root, None)) is not None:
            before.join()
        try:
            self._open()
        except Exception as e:  # a half-written file shows in many ways
            self._make_anew(e)

    def _open(self) -> None:
        make_folder(self._root.parents[1], "data_docs", self._root.name)
        context = self._gx.get_context(mode="file", project_root_dir=str(self._root))
        context.variables.progress_bars = {"globally": False}
        context.update_data_docs_site("local_site", SITE)
        context.add_store(context.validation_results_store_name, deepcopy(STORE))
        self._context = context

    def _make_anew(self, error: Exception) -> None:
        """Renames the stores, and creates new ones: a killed run can leave a file of GX's stores half written."""
        logger.warning("Great Expectations failed, its stores are made anew: %s", error_text(error))
        self._anew = True
        if self._root.exists():
            self._root.rename(self._root.with_name(f"{self._root.name}.broken-{time.time_ns()}"))
        self._open()

    @property
    def data_docs(self) -> str:
        return str(self._root / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html")

    def check_round(self, round_id: str, measures: Sequence[Mapping[str, int]]) -> list[CheckResult]:
        """Evaluates the rules of a round on its measures: one mapping for each log, with `partition` and the counts of
        violations."""
        import pandas as pd

        logs = [m[PARTITION] for m in measures]

        def validate(some: Sequence[int]) -> list[Any]:
            frame = pd.DataFrame([m for m in measures if m[PARTITION] in some])
            rules = [self._rule(name) for name in self._rules]
            return self._run(lambda: self._checkpoint("pandas", "round", rules, some, BY_LOG), frame, round_id)

        findings = [finding for result in validate(logs) for finding in rule_results(result, logs)]
        if len(logs) > 1 and (red := sorted({f.partition for f in findings if not f.passed})):
            self._forget_all_after(len(self._results) - 1)
            for some in apart(red, logs):
                validate(some)
        return findings

    def _rule(self, measure: str) -> Any:
        meta = {"rule": rule_text(measure)}
        severity = severity_of(measure)
        return self._expectation(
            "ExpectColumnValuesToBeBetween", column=measure, min_value=0, max_value=0, meta=meta, severity=severity
        )

    def check_records(
        self, round_id: str, records: DataFrame, logs: Sequence[int], limit: TimeLimit
    ) -> list[CheckResult]:
        """Evaluates the topic's own expectations on the records that a round would publish; by log only where one
        fails. Those that take too long count as not evaluated."""
        if not self._topic.checks:
            return []
        before = len(self._results)
        together = self._record_results(round_id, records, self._topic.checks, logs, limit)
        if all(f.passed for f in together):
            return together
        if len(logs) == 1:
            return self._located(round_id, records, together, before, limit)
        self._forget_all_after(before)
        return [f for p in logs for f in self._of_log(round_id, records.where(f"`{PARTITION}` = {p:d}"), p, limit)]

    def _of_log(self, round_id: str, records: DataFrame, log: int, limit: TimeLimit) -> list[CheckResult]:
        before = len(self._results)
        results = self._record_results(round_id, records, self._topic.checks, [log], limit)
        return self._located(round_id, records, results, before, limit)

    def _located(
        self, round_id: str, records: DataFrame, results: list[CheckResult], before: int, limit: TimeLimit
    ) -> list[CheckResult]:
        """Returns the results of one log with the offsets of some records that failed. Where Great Expectations fails
        at the offsets the results stay as they are. The validations after `before` are those of the results."""
        if all(f.passed or f.error for f in results):
            return results
        checks, logs = self._topic.checks, [results[0].partition]
        self._forget_all_after(before)
        located = self._record_results(round_id, records, checks, logs, limit, LOCATED)
        if [f.error for f in located] == [f.error for f in results]:
            return located
        self._forget_all_after(before)
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
        """Evaluates the checks on the logs together. Where Great Expectations fails at one of them, each is evaluated
        alone: one is no reason to stop the topic."""
        try:
            suite = [self._own_expectation(check) for check in checks]
            checkpoint = partial(self._checkpoint, "spark", RECORDS, suite, logs, result_format)
            with limit.watched(records.sparkSession):
                results = self._run(checkpoint, records, round_id)
        except TooLongError as e:
            return [unevaluated(check, p, e) for check in checks for p in logs]
        except (OSError, Py4JNetworkError):  # a full disk, a JVM that is gone: nothing that the data has done
            raise
        except Exception as e:
            if len(checks) == 1:
                return [unevaluated(checks[0], p, e) for p in logs]
            alone = (self._record_results(round_id, records, [check], logs, limit, result_format) for check in checks)
            return [f for results in alone for f in results]
        return [record_result(result, p) for p in logs for result in results]

    def _own_expectation(self, check: Check) -> Any:
        return self._expectation(class_name(check.expectation), **check.kwargs, severity=check.severity)

    def _expectation(self, name: str, **kwargs: Any) -> Any:
        return getattr(self._gx.expectations, name)(**kwargs)

    def _run(self, checkpoint: Callable[[], Any], frame: Any, round_id: str) -> list[Any]:
        try:
            return self._run_once(checkpoint(), frame, round_id)
        except Exception as e:  # as above; what fails with new stores too is raised
            if self._anew:
                raise
            self._make_anew(e)
        return self._run_once(checkpoint(), frame, round_id)

    def _run_once(self, checkpoint: Any, frame: Any, round_id: str) -> list[Any]:
        named = self._gx.RunIdentifier(run_name=round_id)
        run = checkpoint.run(batch_parameters={"dataframe": frame}, run_id=named)
        self._results += run.run_results
        return [result for validated in run.run_results.values() for result in validated.results]

    def _forget_all_after(self, count: int) -> None:
        """Forgets the validations of several logs of which one failed: each log then has one of its own, and Data Docs
        show those."""
        while len(self._results) > count:
            self._context.validation_results_store.remove_key(self._results.pop())

    def _checkpoint(
        self, source: str, name: str, expectations: list[Any], logs: Sequence[int], result_format: Format
    ) -> Any:
        """Names are always the same, since GX keeps what refers to them; of what a validation is, its results say."""
        gx, context = self._gx, self._context
        sources = context.data_sources
        pandas = source == "pandas"
        data_source = sources.add_or_update_pandas(name) if pandas else sources.add_or_update_spark(name, persist=False)
        asset = data_source.add_dataframe_asset(name)
        whole = asset.add_batch_definition_whole_dataframe("whole")
        for expectation in expectations:
            expectation.meta = (expectation.meta or {}) | subject(self._kind, logs)
        suite = context.suites.add_or_update(gx.ExpectationSuite(name=name, expectations=expectations))
        validation = context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=name, data=whole, suite=suite)
        )
        return context.checkpoints.add_or_update(
            gx.Checkpoint(name=name, validation_definitions=[validation], result_format=dict(result_format))
        )

    def begin_data_docs(self) -> None:
        """Pages of what was checked, written beside what follows. The next audit of the topic waits for them, and so
        does the end of the process."""
        _WRITING[self._root] = threading.Thread(target=self._write_data_docs, name="cleantail-data-docs")
        _WRITING[self._root].start()

    def _write_data_docs(self) -> None:
        """Writes the Data Docs. A failure of it fails no round: the results are in the evidence table too. What a full
        disk stops goes again at the next round; any other failure would come back with the same stores."""
        try:
            build(self._context, Path(self.data_docs), self._results)
        except OSError as e:
            logger.warning("Data Docs were not written: %s", e)
        except Exception as e:  # as above
            self._make_anew(e)

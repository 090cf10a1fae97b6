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
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame

from cleantail.check import Check
from cleantail.expectation_names import class_name
from cleantail.round_state import COMPACT
from cleantail.rules import rule_text, severity_of
from cleantail.topic import Topic
from cleantail.topic_table import PARTITION
from spark_jobs.data_docs_pages import SITE, apart, build, subject
from spark_jobs.evaluation_errors import error_text
from spark_jobs.findings import Finding, measure_findings, record_finding, unevaluated

logger = logging.getLogger("cleantail.expectations")

RESULT_FORMATS: dict[str, dict[str, Any]] = {
    "round": {"result_format": "COMPLETE", "unexpected_index_column_names": [PARTITION]},
    "records": {"result_format": "SUMMARY", "partial_unexpected_count": 5},
}
"""The measures are one row a log and tell which; of records a few examples do."""
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
        self._root.mkdir(parents=True, exist_ok=True)
        context = self._gx.get_context(mode="file", project_root_dir=str(self._root))
        context.variables.progress_bars = {"globally": False}
        context.update_data_docs_site("local_site", SITE)
        self._context = context

    def _make_anew(self, error: Exception) -> None:
        """A killed run can leave a file of GX's stores half written: they are kept, under another name."""
        logger.warning("Great Expectations failed, its stores are made anew: %s", error_text(error))
        self._anew = True
        if self._root.exists():
            self._root.rename(self._root.with_name(f"{self._root.name}.broken-{time.time_ns()}"))
        self._open()

    @property
    def data_docs(self) -> str:
        return str(self._root / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html")

    def check_round(self, round_id: str, measures: Sequence[Mapping[str, int]]) -> list[Finding]:
        """The rules of a round on its measures, one mapping a log with `partition` and the counts of violations."""
        import pandas as pd

        logs = [m[PARTITION] for m in measures]

        def validate(some: Sequence[int]) -> list[Any]:
            frame = pd.DataFrame([m for m in measures if m[PARTITION] in some])
            rules = [self._rule(name) for name in self._rules]
            return self._run(lambda: self._checkpoint("pandas", "round", rules, some), frame, round_id)

        findings = [finding for result in validate(logs) for finding in measure_findings(result, logs)]
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

    def check_records(self, round_id: str, records: DataFrame, logs: Sequence[int]) -> list[Finding]:
        """The topic's own expectations on the records that a round would publish; per log only where one fails."""
        if not self._topic.checks:
            return []
        checks, before = self._topic.checks, len(self._results)
        together = self._record_findings(round_id, records, checks, logs)
        if all(f.passed for f in together) or len(logs) == 1:
            return together
        self._forget_all_after(before)
        alone = ((p, records.where(f"`{PARTITION}` = {p:d}")) for p in logs)
        return [f for p, of_log in alone for f in self._record_findings(round_id, of_log, checks, [p])]

    def _record_findings(
        self, round_id: str, records: DataFrame, checks: Sequence[Check], logs: Sequence[int]
    ) -> list[Finding]:
        """What the checks say of the logs together. One that Great Expectations fails at is no reason to stop the
        topic: the others are asked alone."""
        try:
            suite = [self._own_expectation(check) for check in checks]
            results = self._run(lambda: self._checkpoint("spark", "records", suite, logs), records, round_id)
        except (OSError, Py4JNetworkError):  # a full disk, a JVM that is gone: nothing that the data has done
            raise
        except Exception as e:
            if len(checks) == 1:
                return [unevaluated(checks[0], p, e) for p in logs]
            return [f for check in checks for f in self._record_findings(round_id, records, [check], logs)]
        return [record_finding(result, p) for p in logs for result in results]

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
        """Validations of several logs of which one failed: each has one of its own, and Data Docs show those."""
        while len(self._results) > count:
            self._context.validation_results_store.remove_key(self._results.pop())

    def _checkpoint(self, source: str, name: str, expectations: list[Any], logs: Sequence[int]) -> Any:
        """Names are always the same, since GX keeps what refers to them; of what a validation is, its results say."""
        gx, context = self._gx, self._context
        sources = context.data_sources
        pandas = source == "pandas"
        made = sources.add_or_update_pandas(name) if pandas else sources.add_or_update_spark(name, persist=False)
        asset = made.add_dataframe_asset(name)
        whole = asset.add_batch_definition_whole_dataframe("whole")
        for expectation in expectations:
            expectation.meta = (expectation.meta or {}) | subject(self._kind, logs)
        suite = context.suites.add_or_update(gx.ExpectationSuite(name=name, expectations=expectations))
        validation = context.validation_definitions.add_or_update(
            gx.ValidationDefinition(name=name, data=whole, suite=suite)
        )
        return context.checkpoints.add_or_update(
            gx.Checkpoint(name=name, validation_definitions=[validation], result_format=RESULT_FORMATS[name])
        )

    def begin_data_docs(self) -> None:
        """Pages of what was checked, written beside what follows. The next audit of the topic waits for them, and so
        does the end of the process."""
        _WRITING[self._root] = threading.Thread(target=self._write_data_docs, name="cleantail-data-docs")
        _WRITING[self._root].start()

    def _write_data_docs(self) -> None:
        """Not a reason for a round to fail: the results are in the evidence table too. What a full disk stops goes
        again at the next round; any other failure would come back with the same stores."""
        try:
            build(self._context, Path(self.data_docs), self._results)
        except OSError as e:
            logger.warning("Data Docs were not written: %s", e)
        except Exception as e:  # as above
            self._make_anew(e)

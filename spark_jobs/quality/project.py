"""The Great Expectations project of a topic, in files: its stores, its checkpoints, and Data Docs of all its rounds.

Importing great_expectations costs seconds; it is imported on first use, which `preload` can start beside the JVM.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from cleantail.home.private_files import make_folder
from spark_jobs.quality.data_docs_pages import SITE, build
from spark_jobs.quality.evaluation_errors import error_text
from spark_jobs.quality.gx_settings import STORE, Format

logger = logging.getLogger("cleantail.expectations")

_WRITING: dict[Path, threading.Thread] = {}
"""Who writes Data Docs, by directory."""


def preload() -> None:
    """Starts the import in the background: it overlaps with the start of the JVM."""
    threading.Thread(target=imported, daemon=True).start()


def imported() -> Any:
    """Returns the module great_expectations."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import great_expectations

    # its log quotes what Spark says, which quotes values of records; what matters is in the results
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    return great_expectations


class Project:
    """A file-backed GX context of one topic. Directory: CLEANTAIL_HOME/data_docs/<topic>."""

    def __init__(self, home: Path, topic: str) -> None:
        self._gx = imported()
        self._root = home / "data_docs" / topic
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

    @property
    def validations(self) -> int:
        """Returns how many validations were run, and not forgotten."""
        return len(self._results)

    def run(self, checkpoint: Callable[[], Any], frame: Any, round_id: str) -> list[Any]:
        """Runs a checkpoint on a frame, and returns the result of each expectation. Stores that fail are made anew
        once, and the checkpoint with them."""
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

    def forget_all_after(self, count: int) -> None:
        """Forgets the validations of several logs of which one failed: each log then has one of its own, and Data Docs
        show those."""
        while len(self._results) > count:
            self._context.validation_results_store.remove_key(self._results.pop())

    def checkpoint(self, source: str, name: str, expectations: list[Any], result_format: Format) -> Any:
        """Returns a checkpoint of these expectations on frames of pandas or spark, which is what `source` says. Names
        are always the same, since GX keeps what refers to them; of what a validation is, its results say."""
        gx, context = self._gx, self._context
        sources = context.data_sources
        pandas = source == "pandas"
        data_source = sources.add_or_update_pandas(name) if pandas else sources.add_or_update_spark(name, persist=False)
        asset = data_source.add_dataframe_asset(name)
        whole = asset.add_batch_definition_whole_dataframe("whole")
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

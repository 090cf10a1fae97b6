"""Files of validation results, into which no key or value of a record gets.

A result is stripped as soon as it is there, and whoever reads results (findings, Data Docs) has the same object: so
nothing ever sees more than what is stored. The files are those of Great Expectations' own store: its JSON, at
SUITE/ROUND/TIME/BATCH.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cleantail.rounds.check_results import kept_result
from spark_jobs.quality.evaluation_errors import error_info
from spark_jobs.quality.gx_settings import MEASURES


def strip(validation: Any) -> None:
    """Leaves of a validation of records what may be kept: counts and offsets. Measures are counts by partition."""
    if validation.suite_name == MEASURES:
        return
    for result in validation.results:
        config = result.expectation_config
        result.exception_info = error_info(result)
        result.result = kept_result(config.type, config.kwargs, result.result or {})
        result.rendered_content = None


def place_of(validation: Any, suffix: str) -> Path:
    """Returns where a file of the validation is, relative to the folder of all."""
    suite, run = validation.suite_name, validation.meta["run_id"]
    return Path(suite, *run.to_tuple(), f"{suite}-{suite}{suffix}")  # its data source and asset have its name


def write_result(store: Path, validation: Any) -> None:
    """Writes the result as JSON."""
    text = json.dumps(validation.to_json_dict(), indent=2, sort_keys=True)
    write_whole(store / place_of(validation, ".json"), text)


def write_whole(file: Path, text: str) -> None:
    """Writes a file that others read meanwhile: as it was, or as it is now."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, file)

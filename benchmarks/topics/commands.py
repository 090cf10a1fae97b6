"""Run commands in a fresh Python each, as a person or a scheduler does, and time them from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.harness.fresh_process import BenchmarkError
from benchmarks.harness.lake import Lake, spark_jars
from differential.broker import ROOT

NOTHING: dict[str, str] = {}


def timed(lake: Lake, arguments: Sequence[str], extra_environment: Mapping[str, str] = NOTHING) -> float:
    """Return the seconds of `python ARGUMENTS` on the lake, from start to end. Raises BenchmarkError if it fails."""
    environment = {
        **os.environ,
        "CLEANTAIL_HOME": str(lake.home),
        "CLEANTAIL_JARS": str(spark_jars()),
        "PYTHONPATH": str(ROOT),
        **extra_environment,
    }
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise BenchmarkError(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return seconds


def cleantail(lake: Lake, *arguments: str, config: Path | None = None, before: str = "") -> float:
    """Return the seconds of `cleantail ARGUMENTS`. `before`: Python code that the process runs first."""
    code = f"{before}\nfrom cleantail_cli.app import run_and_exit\nrun_and_exit()"
    return timed(lake, ["-c", code, *arguments, "--config", str(config or lake.config)])


def saved(lake: Lake) -> Callable[[], None]:
    """Return a function that restores the lake's present content at the same path. Iceberg's paths are absolute."""
    kept = lake.directory / "saved"
    shutil.copytree(lake.home, kept)

    def again() -> None:
        shutil.rmtree(lake.home)
        shutil.copytree(kept, lake.home, copy_function=_linked)

    return again


def _linked(source: str, target: str) -> None:
    """Copy a file. A data file gets a hard link instead, because it never changes."""
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)

"""Modules that are imported when something of them is first used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.quality.judge import imported_when_used

OF_GX = """
import sys
from spark_jobs.quality.judge import imported

gx = imported()
read = {"altair.vegalite", "scipy.stats._stats_py", "pyspark.sql.connect"}
assert not read & sys.modules.keys(), read & sys.modules.keys()
from great_expectations.compatibility import pyspark as of_spark
assert of_spark.Bucketizer.__module__ == "pyspark.ml.feature"
from great_expectations.expectations.core import expect_column_kl_divergence_to_be_less_than as of_gx
assert round(of_gx.stats.norm.cdf(0.0), 3) == 0.5
from scipy.stats._distn_infrastructure import rv_continuous
import scipy.stats
assert "scipy.stats._stats_py" in sys.modules and scipy.stats.norm is of_gx.stats.norm
assert isinstance(of_gx.stats.norm, rv_continuous)
assert of_gx.alt.Chart.__module__.startswith("altair")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Makes a module of this code, which notes in `reads` that it was read."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, code: str) -> str:
        (tmp_path / f"{name}.py").write_text(f"import builtins\nbuiltins.{name}_reads = 1\n{code}\n")
        importlib.invalidate_caches()
        return name

    yield make
    for name in ("seldom_used", "broken_used"):
        sys.modules.pop(name, None)


def was_read(name: str) -> bool:
    import builtins

    return hasattr(builtins, f"{name}_reads")


def test_a_module_is_read_when_something_of_it_is_used_and_then_it_is_the_module(module) -> None:  # type: ignore[no-untyped-def]
    name = module("seldom_used", "answer = 42")
    with imported_when_used(name):
        seldom_used = importlib.import_module(name)
        assert importlib.import_module(name) is seldom_used
    assert name not in sys.modules
    assert not was_read(name)
    assert seldom_used.answer == 42
    assert was_read(name)
    real = importlib.import_module(name)
    assert (real is seldom_used, real.answer) == (False, 42)
    with pytest.raises(AttributeError, match="no attribute 'question'"):
        _ = seldom_used.question


def test_a_module_that_is_used_in_the_block_or_was_imported_before_stays(module) -> None:  # type: ignore[no-untyped-def]
    name = module("seldom_used", "answer = 42")
    for _ in range(2):
        with imported_when_used(name):
            assert importlib.import_module(name).answer == 42
        assert sys.modules[name].answer == 42


def test_a_module_that_cannot_be_read_says_so_each_time_it_is_used(module) -> None:  # type: ignore[no-untyped-def]
    name = module("broken_used", "raise OSError('it is broken')")
    with imported_when_used(name):
        broken_used = importlib.import_module(name)
    for _ in range(2):
        with pytest.raises(OSError, match="it is broken"):
            _ = broken_used.answer


@pytest.mark.parametrize("name", ["nowhere_to_be_found", "nowhere_to_be_found.inside"])
def test_a_module_that_is_nowhere_stays_nowhere(name) -> None:  # type: ignore[no-untyped-def]
    with imported_when_used(name), pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_great_expectations_is_imported_without_what_few_checks_use() -> None:
    done = subprocess.run([sys.executable, "-c", OF_GX], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

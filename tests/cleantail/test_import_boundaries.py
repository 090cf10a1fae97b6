"""The kernel imports no Spark, no Airflow and no Great Expectations, and the command line no job until it runs one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(file.relative_to(REPOSITORY).with_suffix("").parts)
    for file in (REPOSITORY / "cleantail").rglob("*.py")
    if not file.stem.startswith("__")
)
SCRIPT = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(name)
    found[name] = sorted({m.partition(".")[0] for m in set(sys.modules) - before})
print(json.dumps(found))
"""


def imported_by(*modules):
    """Top-level packages that each module, imported in this order, brings in."""
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT, *modules], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return json.loads(made.stdout)


@pytest.fixture(scope="module")
def imported():
    return imported_by(*MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_kernel_module_imports_no_engine(imported, module):
    assert not {"pyspark", "airflow", "great_expectations", "py4j", "spark_jobs"} & set(imported[module])


@pytest.mark.parametrize("module", MODULES)
def test_a_kernel_module_opens_no_catalog_when_it_is_imported(imported, module):
    """A DAG file imports the kernel each time that Airflow parses it."""
    assert not {"pyiceberg", "pyarrow", "pandas", "numpy", "sqlalchemy", "confluent_kafka"} & set(imported[module])


def test_the_command_line_imports_no_job_before_it_runs_one():
    assert "spark_jobs" not in imported_by("cleantail.cli")["cleantail.cli"]


@pytest.mark.parametrize("arguments", [["--help"], ["status"], ["plan", "customer-cdc"]], ids=" ".join)
def test_a_command_that_needs_no_spark_imports_none(arguments, tmp_path):
    """Nor Airflow, nor Great Expectations: it answers at once."""
    script = (
        "import sys\nfrom cleantail.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*{m.partition('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    env = os.environ | {"CLEANTAIL_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script, *arguments]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY, env=env)
    assert made.stdout
    assert not {"pyspark", "airflow", "great_expectations", "py4j", "spark_jobs"} & set(made.stderr.split())

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
ENGINES = {"pyspark", "airflow", "great_expectations", "py4j", "spark_jobs"}
IMPORTS = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(name)
    found[name] = sorted({m.partition(".")[0] for m in set(sys.modules) - before})
print(json.dumps(found))
"""
COMMANDS = """
import contextlib, io, json, sys
from cleantail_cli import main
found = {}
for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(line.split())
    found[line] = [out.getvalue(), sorted({m.partition(".")[0] for m in sys.modules})]
print(json.dumps(found))
"""


def told_by(script, arguments, **env):
    command = [sys.executable, "-c", script, *arguments]
    return json.loads(subprocess.check_output(command, text=True, cwd=REPOSITORY, env=os.environ | env))


@pytest.fixture(scope="module")
def imported():
    """Top-level packages that each module, imported in this order, brings in."""
    return told_by(IMPORTS, MODULES)


def test_a_kernel_module_imports_no_engine(imported):
    assert {module for module, packages in imported.items() if ENGINES & set(packages)} == set()


def test_a_kernel_module_opens_no_catalog_when_it_is_imported(imported):
    """A DAG file imports the kernel each time that Airflow parses it."""
    catalogs = {"pyiceberg", "pyarrow", "pandas", "numpy", "sqlalchemy", "confluent_kafka"}
    assert {module for module, packages in imported.items() if catalogs & set(packages)} == set()


def test_a_command_that_needs_no_spark_imports_none(tmp_path):
    """Nor Airflow, nor Great Expectations: it answers at once."""
    lines = ["--help", "status", "plan customer-cdc"]
    for line, (answer, packages) in told_by(COMMANDS, lines, CLEANTAIL_HOME=str(tmp_path)).items():
        assert answer and not ENGINES & set(packages), line

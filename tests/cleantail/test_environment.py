"""The environment of the process is read in few files (docs/architecture.md, decision 12)."""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("cleantail", "cleantail_cli", "spark_jobs", "plugins", "embedded_airflow")
READERS = {
    # where a process gets its configuration
    "cleantail/config/loading.py",
    "cleantail_cli/app.py",
    "cleantail_cli/command.py",
    "cleantail_cli/class_archive.py",
    "plugins/cleantail_airflow/installation.py",
    "plugins/cleantail_airflow/tasks/doctor_task.py",
    # what belongs to no platform
    "cleantail/lake/foreign_errors.py",
    "plugins/cleantail_airflow/page/metrics_endpoint.py",
    # where the processes of Airflow start
    "embedded_airflow/supervisor.py",
    # where a connection of Airflow fills in a login
    "plugins/cleantail_airflow/catalog_login.py",
    # settings that a library takes only from there
    "spark_jobs/iceberg/session.py",
    "spark_jobs/quality/gx_validation.py",
}
NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def reads_environment(source: str) -> bool:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node.value) == "os":
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "os" and NAMES & {alias.name for alias in node.names}:
            return True
    return False


def test_only_these_files_read_the_environment_of_the_process():
    files = (file for package in PACKAGES for file in (REPOSITORY / package).rglob("*.py"))
    found = {str(f.relative_to(REPOSITORY)) for f in files if reads_environment(f.read_text(encoding="utf-8"))}
    assert found == READERS


def test_both_ways_to_the_environment_are_found():
    assert reads_environment("import os\ndef f(env=os.environ): ...")
    assert reads_environment("from os import getenv")
    assert not reads_environment("platform.env.get('environ')")

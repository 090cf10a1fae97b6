"""An Airflow of its own for the tests: a home of their own, set before anything imports airflow.

Import it in a conftest.py, first. The database is made by the fixture `airflow_db`, in the same process.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOME = Path(tempfile.mkdtemp(prefix="cleantail-airflow-"))
BASE_URL = "http://127.0.0.1:8080"
BUNDLE = "dags-folder"

os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
    "AIRFLOW__API__BASE_URL": BASE_URL,
    "AIRFLOW__API_AUTH__JWT_SECRET": "j" * 64,
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
}
sys.path[:0] = [str(ROOT / "plugins"), str(ROOT / "dags")]
atexit.register(shutil.rmtree, HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_db() -> Iterator[Path]:
    """A migrated SQLite database with the pools; gives its file."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.utils.db import initdb

    from cleantail_airflow.tasks.spark_pool import ensure_pool
    from tests.quick_sqlite import wait_for_no_disk

    check_each_schema_once()
    wait_for_no_disk()
    initdb()
    ensure_pool()
    DagBundlesManager().sync_bundles_to_db()
    yield HOME / "airflow.db"


def check_each_schema_once() -> None:
    """Airflow validates a DAG's parameters several times a task, and jsonschema checks their schema each time: more than
    a quarter of a run with quick jobs. Here a schema that was found right is not checked again."""
    from jsonschema import Draft202012Validator

    check, found_right = Draft202012Validator.check_schema, set()

    def check_schema(schema: Any, *arguments: Any, **named: Any) -> None:
        text = json.dumps(schema, sort_keys=True, default=repr)
        if text not in found_right:
            check(schema, *arguments, **named)
            found_right.add(text)

    Draft202012Validator.check_schema = staticmethod(check_schema)

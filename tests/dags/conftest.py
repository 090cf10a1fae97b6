"""The environment first: nothing may import airflow before it."""

from tests.airflow_environment import airflow_db as airflow_database  # noqa: F401, I001
from tests.airflow_site import jobs, site  # noqa: F401
from tests.alert_sinks import hook, mailbox  # noqa: F401
from tests.quick_airflow_api import build_what_is_asked_for
from tests.statsd_sink import statsd  # noqa: F401

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def airflow_db(airflow_database: Path) -> Path:  # noqa: F811
    """A migrated SQLite database with the pools, and an API that is quick to build and to ask; gives the file."""
    build_what_is_asked_for()
    return airflow_database

"""SQLite in tests, Airflow's database and PyIceberg's catalogs, as far as this process opens them."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def wait_for_no_disk() -> None:
    """Has no commit wait until the disk has it: what a test commits need not outlive a power cut, and a run of a DAG
    commits more than a hundred times."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    event.listen(Engine, "connect", _connected)


def _connected(connection: Any, _: Any) -> None:
    if "sqlite" in type(connection).__module__:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = OFF")
        cursor.close()

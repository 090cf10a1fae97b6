"""SQLite in tests, Airflow's database and PyIceberg's catalogs, as far as this process opens them."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def wait_for_no_disk() -> None:
    """Let commits return before the disk has them. Data of a test need not survive a power cut, and a DAG run makes more
    than a hundred commits."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    event.listen(Engine, "connect", _connected)


def _connected(connection: Any, _: Any) -> None:
    if "sqlite" in type(connection).__module__:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = OFF")
        cursor.close()

"""What a driver prints in the log of its task. What it gets of the environment: tests/dags/test_whole_run.py."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from cleantail_airflow.tasks.spark_job import DriverHook


def test_lines_of_a_driver_command_no_terminal() -> None:
    """Spark's own lines too: its JVM logs the paths of files that others named."""
    hook: Any = DriverHook.__new__(DriverHook)
    hook.__dict__.update(_driver_id=None, _is_yarn=False, _is_kubernetes=False)
    hook.__dict__.update(_exception_anchor_seen=False, _last_submit_log_lines=deque())
    hook._should_track_driver_status = False
    told: list[str] = []
    hook._log = SimpleNamespace(info=lambda form, *values: told.append(form % values if values else form))
    hook._process_spark_submit_log(iter(["WARN \x1b[31ms3://b/\u202ef\r\n", "at x\n"]))
    assert [line.strip() for line in told] == ["WARN [31ms3://b/f", "at x"]

"""The demonstration's calls of Airflow's REST API, as a logged-in user."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from demo.home import DemoError

REQUEST_S = 90
CONFLICT, SERVER_ERROR = 409, 500
DAG_THERE_WITHIN_S = 120
TRIGGER = threading.Lock()
"""Airflow's API server notes each request in its SQLite, in the thread of all requests. Two triggers at a time block
each other there, until SQLite gives up after a minute."""


class AirflowApi:
    """Calls `http://127.0.0.1:<port>/api/v2` with a token of the user."""

    def __init__(self, port: int, password: str, user: str = "admin") -> None:
        self._address = f"http://127.0.0.1:{port}"
        login = {"username": user, "password": password}
        self.token = ""
        self.token = self._call("/auth/token", login)["access_token"]

    def wait_for_dag(self, dag_id: str, is_stopped: Callable[[], bool]) -> None:
        """Wait until Airflow has the DAG. The DAG processor reads the files some seconds after the start. Raises
        DemoError."""
        end = time.monotonic() + DAG_THERE_WITHIN_S
        while time.monotonic() < end and not is_stopped():
            try:
                self._call(f"/api/v2/dags/{quote(dag_id)}")
                return
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
            if errors := self.import_errors():
                raise DemoError("\n".join([f"Airflow has no DAG {dag_id}:", *errors]))
            time.sleep(0.5)
        raise DemoError(f"Airflow has no DAG {dag_id} after {DAG_THERE_WITHIN_S} s")

    def import_errors(self) -> list[str]:
        errors = self._call("/api/v2/importErrors")["import_errors"]
        return [f"{error['filename']}: {error['stack_trace']}" for error in errors]

    def trigger(self, dag_id: str, run_id: str) -> None:
        """Start a new run of that name."""
        body: dict[str, Any] = {"dag_run_id": run_id, "logical_date": None, "conf": {}}
        try:
            with TRIGGER:
                self._call(f"/api/v2/dags/{quote(dag_id)}/dagRuns", body)
        except urllib.error.HTTPError as error:
            if error.code != CONFLICT:  # the run exists: the first try had succeeded
                raise

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        return self._call(_run(dag_id, run_id))

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances. A mapped task has several."""
        tasks: list[dict[str, Any]] = self._call(f"{_run(dag_id, run_id)}/taskInstances")["task_instances"]
        return tasks

    def log(self, task: dict[str, Any]) -> list[str]:
        """Return the lines that a task logged at its last try, with its final exception."""
        logs = f"taskInstances/{quote(task['task_id'])}/logs/{task['try_number']}?map_index={task['map_index']}"
        content = self._call(f"{_run(task['dag_id'], task['dag_run_id'])}/{logs}&full_content=true")["content"]
        return [line for event in content for line in _lines(event)]

    def _call(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        return _answer(urllib.request.Request(self._address + path, data, headers))


def _answer(request: urllib.request.Request) -> dict[str, Any]:
    """Return the answer. Retries after internal errors, because the server's SQLite may be locked on a busy machine."""
    for pause_s in (1, 2, 4, 8, None):
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
                result: dict[str, Any] = json.load(answer)
                return result
        except (urllib.error.HTTPError, TimeoutError) as error:
            if pause_s is None or getattr(error, "code", SERVER_ERROR) < SERVER_ERROR:
                raise
        time.sleep(pause_s)
    raise AssertionError("unreachable: the last try raises")


def _run(dag_id: str, run_id: str) -> str:
    return f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}"


def _lines(event: str | dict[str, Any]) -> list[str]:
    """Return the text of a structured line of the log, with its exceptions."""
    if isinstance(event, str):
        return [event]
    raised = [f"{error['exc_type']}: {error['exc_value']}" for error in event.get("error_detail") or []]
    return [line for text in (str(event.get("event", "")), *raised) for line in text.splitlines()]

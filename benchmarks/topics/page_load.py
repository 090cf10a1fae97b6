"""Load pages from a real API server of Airflow, and write the seconds to the file RESULT.

The server is Airflow's own, with its login, its database and the mounted page. It runs in this process, so the times
exclude the network. The first request is for the menu's icon, as in a browser. On this request the server begins to
read metadata.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from cleantail.config.loading import load_topics, scan_groups
from cleantail.config.topic import dag_id_of
from differential.broker import ROOT

TOPICS, ICON, METRICS = "/cleantail/topics", "/cleantail/static/icon.svg", "/cleantail/metrics"
AGAIN = 5
"""Number of further loads of each page. Their median is reported."""


def main(argv: list[str]) -> int:
    """Load the pages. Return the exit code: 1 if a topic is missing on the page of all topics."""
    config = Path(os.environ["CLEANTAIL_CONFIG"])
    names = sorted(topic.topic for topic in load_topics(config))
    get = _server(config)
    # 1. the first load of a server, and loads until it has read all metadata
    seconds = {}
    get(ICON)
    first, text = _timed(get, TOPICS)
    began = time.perf_counter() - first.wall
    while 'id="reading"' in text:
        time.sleep(0.2)
        text = get(TOPICS)
    seconds["first"], seconds["complete"] = first.wall, time.perf_counter() - began
    cpu = {"first": first.cpu}
    # 2. loads after that
    paths = {
        "all topics": TOPICS,
        "search": f"{TOPICS}?q={names[-1]}",
        "one topic": f"{TOPICS}/{names[-1]}",
        "metrics": METRICS,
    }
    for name, path in paths.items():
        get(path)
        spent = [_timed(get, path)[0] for _ in range(AGAIN)]
        seconds[name] = median([each.wall for each in spent])
        cpu[name] = median([each.cpu for each in spent])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # 3. the result
    Path(argv[0]).write_text(json.dumps(seconds | {"cpu": cpu, "memory_bytes": memory}))
    return 0 if f">{names[-1]}</a>" in get(paths["search"]) else 1


class Spent(NamedTuple):
    """Seconds of one request: by the clock, and of the processor. Other processes on the machine do not increase the
    latter."""

    wall: float
    cpu: float


def _timed(get: Callable[[str], str], path: str) -> tuple[Spent, str]:
    wall, cpu = time.perf_counter(), time.process_time()
    text = get(path)
    return Spent(time.perf_counter() - wall, time.process_time() - cpu), text


def _server(config: Path) -> Callable[[str], str]:
    """Start Airflow's API server in this process, with a DAG for each group. Return a function that loads a page as an
    admin."""
    home = Path(os.environ["AIRFLOW_HOME"])
    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({"ann": "ann-password"}))
    os.environ |= {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API_AUTH__JWT_SECRET": "j" * 64,
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    sys.path[:0] = [str(ROOT / "plugins"), str(ROOT / "dags")]
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.app import create_app
    from airflow.utils.db import initdb
    from fastapi.testclient import TestClient

    if not (home / "airflow.db").exists():
        initdb()
        _write_dags([dag_id_of(file.stem, "") for file, _ in scan_groups(config)])
    client = TestClient(create_app(), follow_redirects=False)
    login = client.post("/auth/token", json={"username": "ann", "password": "ann-password"}).json()
    headers = {"Authorization": f"Bearer {login['access_token']}"}

    def get(path: str) -> str:
        answer = client.get(path, headers=headers)
        answer.raise_for_status()
        return str(answer.text)

    return get


def _write_dags(dag_ids: list[str]) -> None:
    """Register these DAGs in Airflow's database, as the dag-processor does."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        bundle: Any = DagBundleModel(name="dags-folder")
        session.add(bundle)
        session.flush()
        for dag_id in dag_ids:
            model: Any = DagModel
            session.add(model(dag_id=dag_id, bundle_name="dags-folder", fileloc="", is_stale=False))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

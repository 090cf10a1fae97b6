"""Asks a real API server of Airflow for the pages, and writes down how long that took: `... RESULT`.

The server is Airflow's own, with its login, its database and the mounted page, in this process; what is left out is the
network. Its first request is for the menu's icon, as a browser's is: with it the server begins to read metadata.
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
from typing import Any

from cleantail.config.claims.dag_ids import dag_id_of
from cleantail.config.groups.loading_groups import scan_groups
from cleantail.config.loading import load_topics
from differential.broker import ROOT

TOPICS, ICON, METRICS = "/cleantail/topics", "/cleantail/static/icon.svg", "/cleantail/metrics"
AGAIN = 5
"""A page is asked for again so often; the median counts."""


def main(argv: list[str]) -> int:
    """Loads the pages. The exit code is 1 where a topic is missing on the page of all topics."""
    config = Path(os.environ["CLEANTAIL_CONFIG"])
    names = sorted(topic.topic for topic in load_topics(config))
    get = _server(config)
    # 1. the first load of a server, and loads until all metadata is there
    seconds = {}
    get(ICON)
    began = time.perf_counter()
    text = get(TOPICS)
    seconds["first"] = time.perf_counter() - began
    while 'id="reading"' in text:
        time.sleep(0.5)
        text = get(TOPICS)
    seconds["complete"] = time.perf_counter() - began
    # 2. loads after that
    last = f"{TOPICS}/{names[-1]}"
    paths = {"all topics": TOPICS, "search": f"{TOPICS}?q={names[-1]}", "one topic": last, "metrics": METRICS}
    for name, path in paths.items():
        get(path)
        seconds[name] = sorted(_timed(get, path) for _ in range(AGAIN))[AGAIN // 2]
    seconds["memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # 3. the result
    Path(argv[0]).write_text(json.dumps(seconds))
    return 0 if f">{names[-1]}</a>" in get(paths["search"]) else 1


def _timed(get: Callable[[str], str], path: str) -> float:
    began = time.perf_counter()
    get(path)
    return time.perf_counter() - began


def _server(config: Path) -> Callable[[str], str]:
    """Starts Airflow's API server in this process, with a DAG for each group. Returns what gets a page as an admin."""
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
        _write_dags([dag_id_of(file.stem, "") for file, _ in scan_groups(config, os.environ)])
    client = TestClient(create_app(), follow_redirects=False)
    login = client.post("/auth/token", json={"username": "ann", "password": "ann-password"}).json()
    headers = {"Authorization": f"Bearer {login['access_token']}"}

    def get(path: str) -> str:
        answer = client.get(path, headers=headers)
        answer.raise_for_status()
        return str(answer.text)

    return get


def _write_dags(dag_ids: list[str]) -> None:
    """Writes down that these DAGs are there, as the dag-processor does."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        bundle: Any = DagBundleModel(name="dags-folder")
        session.add(bundle)
        session.flush()
        for dag_id in dag_ids:
            session.add(DagModel(dag_id=dag_id, bundle_name="dags-folder", fileloc="", is_stale=False))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

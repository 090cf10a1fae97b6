"""Run by the Python of an installation: what Airflow's own discovery sees there, as one line of JSON.

python airflow_probe.py DAGS_FOLDER ...          # DAGs, import errors, plugins, provider
python airflow_probe.py --run DAG DAGS_FOLDER    # the states of the tasks of one run, by `dag.test()`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MARK = "SEEN"


def bag_of(folder: str) -> Any:
    """All DAG files of the folder, parsed as the dag-processor does it."""
    try:
        from airflow.dag_processing.dagbag import BundleDagBag
    except ImportError:  # until Airflow 3.1
        from airflow.models.dagbag import DagBag

        return DagBag(folder, include_examples=False)
    return BundleDagBag(dag_folder=folder, bundle_path=Path(folder), bundle_name="dags-folder")


def parsed(folder: str) -> dict[str, Any]:
    bag = bag_of(folder)
    files = {name: [t.application for t in dag.tasks if hasattr(t, "application")] for name, dag in bag.dags.items()}
    return {"dags": sorted(bag.dags), "errors": bag.import_errors, "files": files}


def plugins() -> tuple[list[str], dict[str, str]]:
    from airflow import plugins_manager as manager

    if hasattr(manager, "_get_plugins"):
        found, errors = manager._get_plugins()
    else:  # until Airflow 3.1
        manager.ensure_plugins_loaded()
        found, errors = manager.plugins, manager.import_errors
    return [str(plugin.name) for plugin in found], errors


def seen(folders: list[str]) -> dict[str, Any]:
    from airflow.providers_manager import ProvidersManager

    names, errors = plugins()
    manager = ProvidersManager()
    info, hook = manager.providers["cleantail"], manager.hooks["cleantail_kafka"]
    for each in (*info.data["operators"], *info.data["sensors"]):
        for module in each["python-modules"]:
            __import__(module)
    return {
        "parsed": [parsed(folder) for folder in folders],
        "plugins": names,
        "plugin_errors": errors,
        "version": info.version,
        "hook": hook.hook_name if hook else "",
        "notifications": [getattr(n, "notification_class_name", n) for n in manager.notification],
    }


def states_of_run(dag: str, folder: str) -> dict[str, str]:
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    DagBundlesManager().sync_bundles_to_db()
    run = bag_of(folder).dags[dag].test()
    return {"run": str(run.state), **{ti.task_id: str(ti.state) for ti in run.get_task_instances()}}


if __name__ == "__main__":
    arguments = sys.argv[1:]
    answer = states_of_run(*arguments[1:]) if arguments[:1] == ["--run"] else seen(arguments)
    print(MARK + json.dumps(answer), flush=True)

"""What Airflow's own discovery finds of ours: one plugin, the DAG files, and nothing that a list kept by hand hides."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from cleantail_airflow.plugin import CleantailPlugin
from tests.airflow_site import ROOT

pytestmark = pytest.mark.airflow
PLUGINS, DAGS = ROOT / "plugins", ROOT / "dags"


def scanned(folder: Path) -> list[str]:
    """The Python files that Airflow loads from a plugins folder or looks for DAGs in, by its own walk."""
    from airflow._shared.module_loading import find_path_from_directory

    files = (Path(file) for file in find_path_from_directory(str(folder), ".airflowignore", "glob"))
    return sorted(str(file.relative_to(folder)) for file in files if file.suffix == ".py")


@pytest.fixture
def discovered() -> Iterator[object]:
    """Airflow's plugins manager, which scans again and keeps no result for other tests."""
    from airflow import plugins_manager

    plugins_manager._get_plugins.cache_clear()
    yield plugins_manager
    plugins_manager._get_plugins.cache_clear()


def test_airflow_loads_one_plugin_of_ours_and_meets_no_second_one(airflow_db: Path, discovered: object) -> None:
    plugins, errors = discovered._get_plugins()  # type: ignore[attr-defined]
    assert [plugin.name for plugin in plugins if "cleantail" in f"{plugin.name} {plugin.__module__}"] == ["cleantail"]
    assert errors == {}


WITHOUT_A_PROVIDER = """
import sys

import airflow.plugins_manager

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("airflow.providers.apache.spark"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Blocked())
import cleantail_airflow.plugin as plugin

assert "cleantail_airflow.tasks.spark_job" not in sys.modules
print(plugin.CleantailPlugin.fastapi_apps[0]["name"])
"""


def test_a_server_without_airflows_provider_for_spark_has_the_page_all_the_same(airflow_db: Path) -> None:
    """The plugin imports ahead what DAGs need; a failed import there does not disable the plugin."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_A_PROVIDER], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip().splitlines()[-1:]) == (0, ["Cleantail"]), done.stderr[-2000:]


@pytest.mark.parametrize("installed", [True, False], ids=["installed", "only the folder"])
def test_the_plugins_folder_gives_the_plugin_only_where_no_entry_point_does(
    discovered: object, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("cleantail", "cleantail_airflow.plugin:CleantailPlugin", "airflow.plugins")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints([point] if installed else []))
    plugins, errors = discovered._load_plugins_from_plugin_directory(str(PLUGINS))  # type: ignore[attr-defined]
    assert scanned(PLUGINS) == ["cleantail_plugin.py"]
    assert [plugin.name for plugin in plugins] == ([] if installed else [CleantailPlugin.name])
    assert errors == {}


def test_airflow_does_not_scan_modules_added_to_the_package(tmp_path: Path) -> None:
    folder = shutil.copytree(PLUGINS, tmp_path / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("added.py", "tasks/added.py", "added/__init__.py", "added/plugins.py"):
        (folder / "cleantail_airflow" / name).parent.mkdir(exist_ok=True)
        (folder / "cleantail_airflow" / name).write_text("from airflow.plugins_manager import AirflowPlugin\n")
    (folder / "beside.py").write_text("from airflow.plugins_manager import AirflowPlugin\n")
    assert scanned(folder) == ["cleantail_plugin.py"]


def test_every_python_file_in_dags_is_a_dag_file() -> None:
    """So the folder needs no .airflowignore: what the DAG files import lies with the plugin."""
    assert scanned(DAGS) == sorted(file.name for file in DAGS.glob("*.py"))
    assert {file.name for file in DAGS.iterdir()} - {"__pycache__"} == set(scanned(DAGS))

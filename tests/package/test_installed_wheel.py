"""The wheel next to a team's own Airflow, outside the repository: its content, DAGs, plugin, jars, a round."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import pytest

from tests.package import airflow_probe
from tests.package.clean_environment import ROOT, CleanEnvironment
from tests.versions import OLDEST

pytestmark = pytest.mark.integration
TOPIC = "packaged-orders"
PAGE = (ROOT / "docs" / "installing.md").read_text()
CONFIG_IN_PAGE = "/etc/cleantail/config"
THEIRS = """
from airflow.sdk import DAG

with DAG("their_own"):
    pass
"""


def in_page(example: str, config: Path) -> str:
    """A DAG file from the documentation, with another configuration."""
    [block] = re.findall(rf"<!-- example: {example} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert block.count(CONFIG_IN_PAGE) >= 1
    return str(block).replace(CONFIG_IN_PAGE, str(config))


def seen_by_airflow(environment: CleanEnvironment, *dags: Path, **env: str) -> dict[str, Any]:
    """Return the result of Airflow's own discovery in a process of the environment."""
    return answer_of(environment.run("python", airflow_probe.__file__, *dags, **env).stdout)


def answer_of(output: str) -> dict[str, Any]:
    """Return the line that the probe prints between lines of Airflow."""
    (line,) = [line for line in output.splitlines() if line.startswith(airflow_probe.MARK)]
    answer: dict[str, Any] = json.loads(line.removeprefix(airflow_probe.MARK))
    return answer


@pytest.fixture(scope="module")
def config(place: Path) -> Path:
    """A configuration in a folder for administrators, without CLEANTAIL_HOME."""
    folder = place / "etc" / "cleantail" / "config"
    (folder / "topics").mkdir(parents=True)
    topic = {"topic": TOPIC, "config": {"segment.ms": 1, "min.cleanable.dirty.ratio": 0}}
    (folder / "topics" / f"{TOPIC}.yaml").write_text(json.dumps(topic))
    return folder


@pytest.fixture(scope="module")
def dags(place: Path, config: Path) -> Path:
    """A team's DAGs folder: the file of the page, and a DAG of their own."""
    folder = place / "dags"
    folder.mkdir()
    (folder / "cleantail.py").write_text(in_page("dags", config))
    (folder / "theirs.py").write_text(THEIRS)
    return folder


@pytest.fixture(scope="module")
def broken_dags(place: Path, config: Path) -> Path:
    """A DAGs folder with a configuration that has one broken topic, and the file that reports it."""
    broken = shutil.copytree(config, place / "broken" / "config")
    (broken / "topics" / "bad.yaml").write_text('{"topic": "bad", "config": {"segment.sm": 1}}')
    folder = place / "broken" / "dags"
    folder.mkdir()
    (folder / "cleantail.py").write_text(in_page("dags", broken))
    (folder / "broken.py").write_text(in_page("broken dags", broken))
    return folder


@pytest.fixture(scope="module")
def seen(everything: CleanEnvironment, place: Path, config: Path, dags: Path, broken_dags: Path) -> dict[str, Any]:
    """The result of Airflow's discovery of both folders, with a plugins folder of the team. Nothing was written."""
    (place / "plugins").mkdir()
    before = tree(config.parent)
    seen = seen_by_airflow(everything, dags, broken_dags, AIRFLOW__CORE__PLUGINS_FOLDER=str(place / "plugins"))
    assert tree(config.parent) == before
    return seen


@pytest.fixture(scope="module")
def with_jars(everything: CleanEnvironment, fetched_jars: Path) -> CleanEnvironment:
    """`cleantail jars` was called, from a folder instead of a registry."""
    everything.run("cleantail", "jars", "--from", str(fetched_jars))
    return everything


def tree(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


def test_the_wheel_has_plugin_pages_jobs_schema_and_defaults_and_nothing_of_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        assert files.read("cleantail/config/topic.schema.json") == (ROOT / "config/topic.schema.json").read_bytes()
        assert files.read("cleantail/config/defaults.yaml") == (ROOT / "config/defaults.yaml").read_bytes()
    for source, inside in (
        ("cleantail", ""),
        ("cleantail_cli", ""),
        ("spark_jobs", ""),
        ("plugins/cleantail_airflow", "plugins/"),
    ):
        for file in (ROOT / source).rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                assert str(file.relative_to(ROOT)).removeprefix(inside) in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "cleantail",
        "cleantail_airflow",
        "cleantail_cli",
        "spark_jobs",
    }


def test_without_extras_there_are_the_rules_and_the_command_line(base: CleanEnvironment, config: Path) -> None:
    assert not [
        name for name in ("pyspark", "airflow", "great_expectations") if (base.folder / "links" / name).exists()
    ]
    assert "jars that Spark needs" in base.run("cleantail", "--help").stdout
    checked = json.loads(base.run("cleantail", "check-config", "--config", str(config), "--json").stdout)
    assert (checked["ok"], [each["topic"] for each in checked["topics"]]) == (True, [TOPIC])
    missing = base.run("cleantail", "jars", check=False)
    assert missing.returncode == 2
    assert "PySpark is not installed: pip install 'cleantail[spark]'" in missing.stderr


def test_one_file_makes_the_dags_beside_those_of_the_team(everything: CleanEnvironment, seen: dict[str, Any]) -> None:
    parsed = seen["parsed"][0]
    assert (parsed["dags"], parsed["errors"]) == (sorted([TOPIC, "their_own", "cleantail_doctor"]), {})
    files = [Path(file) for file in parsed["files"][TOPIC]]
    assert everything.site / "spark_jobs" / "run_station.py" in files
    assert all(file.is_file() for file in files)


def test_a_broken_topic_hides_no_other_and_a_second_file_says_what_is_wrong(seen: dict[str, Any]) -> None:
    parsed = seen["parsed"][1]
    assert parsed["dags"] == sorted([TOPIC, "cleantail_doctor"])
    ((file, text),) = parsed["errors"].items()
    assert file.endswith("broken.py")
    assert "bad.yaml:1: config.segment.sm" in text


def test_airflow_finds_the_plugin_once(seen: dict[str, Any]) -> None:
    assert seen["plugins"].count("cleantail") == 1
    assert seen["plugin_errors"] == {}


@pytest.mark.deep
def test_the_plugins_folder_of_the_embedded_airflow_gives_it_no_second_time(everything: CleanEnvironment) -> None:
    """With the repository on Python's path, as in the embedded Airflow. Both tests of test_plugin_discovery.py that load
    this folder test the rule. This test repeats it with the wheel."""
    folder = {"AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"), "PYTHONPATH": str(ROOT)}
    seen = seen_by_airflow(everything, **folder)
    assert seen["plugins"].count("cleantail") == 1
    assert seen["plugin_errors"] == {}


def test_airflow_lists_the_provider_with_its_connection_type_and_its_notifier(
    everything: CleanEnvironment, seen: dict[str, Any]
) -> None:
    assert seen["version"] == everything.run("cleantail", "--version").stdout.split()[-1]
    assert seen["hook"] == "Kafka (Cleantail)"
    assert "cleantail_airflow.alerts.topic_notifier.TopicNotifier" in seen["notifications"]


def test_jars_that_are_not_the_listed_ones_are_refused_and_none_is_put_anywhere(
    everything: CleanEnvironment, place: Path, fetched_jars: Path
) -> None:
    wrong = place / "wrong-jars"
    shutil.copytree(fetched_jars, wrong, ignore=lambda *_: ["classes.jsa"])
    small = min(wrong.glob("*.jar"), key=lambda jar: jar.stat().st_size)
    small.write_bytes(bytes(small.stat().st_size))
    cache = str(place / "other-cache")
    refused = everything.run("cleantail", "jars", "--from", str(wrong), check=False, XDG_CACHE_HOME=cache)
    assert refused.returncode == 2
    assert f"{small.name} has the SHA-256" in refused.stderr.replace("\n", " ")
    assert not Path(cache).exists()


def example(page: str, name: str, language: str) -> str:
    """Return a block of a page unchanged."""
    text = (ROOT / "docs" / page).read_text()
    [block] = re.findall(rf"<!-- example: {name} -->\n```{language}\n(.*?)```", text, re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def checkout(with_jars: CleanEnvironment, place: Path) -> Path:
    """A folder for the commands of docs/quickstart.md, with the environment and the examples."""
    folder = place / "checkout"
    shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")
    (folder / ".venv").symlink_to(with_jars.folder)
    return folder


def test_the_first_commands_as_written_compact_on_a_fresh_home_with_the_jars_and_print_nothing_else(
    with_jars: CleanEnvironment, base: CleanEnvironment, checkout: Path, fetched_jars: Path
) -> None:
    """Run the whole block in one shell. stderr is not a terminal, so it has no progress and no line of a library. The jars
    have the class archive of `make setup`, which contains the path of Spark, not of a link to it."""
    before = tree(checkout / "docs")
    spark_home = str(Path(str(distribution("pyspark").locate_file("pyspark"))).resolve())
    env = with_jars.env(CLEANTAIL_JARS=str(fetched_jars), SPARK_HOME=spark_home)
    shell = ["bash", "-euo", "pipefail", "-c", example("quickstart.md", "first commands", "sh")]
    done = subprocess.run(shell, cwd=checkout, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "orders: 8 records appended" in done.stdout
    assert "orders: 1 of 1 partition is due" in done.stdout
    assert "10 of 10 checks passed" in done.stdout
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(r["offset"], r["key"]) for r in records] == [
        (4, "order-2"), (5, "order-1"), (6, "order-3"), (7, "order-4"),
    ]  # fmt: skip
    assert records[0]["payload"] is None
    assert done.stderr == ""
    # nothing is written next to the configuration, except into its home
    assert tree(checkout / "docs") == before
    (home,) = (with_jars.home / ".local" / "share" / "cleantail").iterdir()
    assert "docs-examples-config" in home.name
    jars = with_jars.home / ".cache" / "cleantail" / "jars"
    assert [folder.name[:6] for folder in jars.iterdir()] == ["spark-"]
    # reading needs no Spark: the environment without extras reads the table that the other one compacted
    config = str(checkout / "docs" / "examples" / "config")
    latest = base.run("cleantail", "latest", "orders", "--config", config, "--json").stdout
    assert sorted(json.loads(line)["key"] for line in latest.splitlines()) == ["order-1", "order-3", "order-4"]
    the_example_in_python(base, checkout / "docs" / "examples")


def the_example_in_python(base: CleanEnvironment, beside_the_configuration: Path) -> None:
    """In the documented folder, the command finds the topic of the first commands."""
    program = f"{example('reading.md', 'python', 'python')}\nprint(sorted(cache), go_on_from)"
    run = [str(base.python), "-c", program]
    done = subprocess.run(run, cwd=beside_the_configuration, env=base.env(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[b'order-1', b'order-3', b'order-4'] {0: 8}\n"


@pytest.mark.deep
def test_without_jars_a_command_names_the_way_to_get_them(
    everything: CleanEnvironment, config: Path, place: Path
) -> None:
    """test_the_class_path_is_empty_if_no_jar_was_fetched in test_jar_list.py tests the rule. This test repeats it with
    the wheel."""
    empty = str(place / "no-cache")
    refused = everything.run(
        "cleantail",
        "ingest",
        TOPIC,
        "--file",
        str(ROOT / "docs" / "examples" / "orders.jsonl"),
        "--config",
        str(config),
        check=False,
        XDG_CACHE_HOME=empty,
        CLEANTAIL_HOME=empty,
    )
    assert refused.returncode == 2
    assert "run `cleantail jars`" in " ".join(refused.stderr.split())


def test_jars_that_the_cluster_has_are_neither_looked_for_nor_fetched(
    everything: CleanEnvironment, config: Path, place: Path
) -> None:
    of_cluster = shutil.copytree(config, place / "cluster" / "config")
    (of_cluster / "defaults.yaml").write_text("platform: {spark: {jars: cluster}}")
    empty = place / "no-cache-of-cluster"
    told = everything.run("cleantail", "jars", "--config", str(of_cluster), XDG_CACHE_HOME=str(empty)).stdout
    assert "the cluster has the jars, and none are fetched" in told
    assert not empty.exists()


def test_the_page_shows_the_versions_that_make_test_versions_tries() -> None:
    newest = {name: version(name) for name in ("apache-airflow", "pyspark")}
    for end, versions in (("oldest", OLDEST), ("newest", newest)):
        assert f"| {end} | {versions['apache-airflow']} | {versions['pyspark']} |" in PAGE

"""What Airflow makes of dags/: one DAG per good topic, the doctor's, one import error for broken topics, nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cleantail.config.loading import load_topics
from tests.airflow_environment import BUNDLE, ROOT
from tests.airflow_site import Site

BROKEN_FILE = "cleantail_broken_topics.py"
TOPICS_FILE = "cleantail_topics.py"
DOCTOR_FILE = "cleantail_doctor.py"
DOCTOR = "cleantail_doctor"


def stored(bag: Any) -> tuple[dict[str, str], dict[str, bool]]:
    """Writes the bag to Airflow's database; gives the import errors by file, and whether each DAG can be used."""
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.models.errors import ParseImportError
    from airflow.utils.session import create_session

    sync_bag_to_db(bag, BUNDLE, None)
    with create_session() as session:
        errors = {e.filename: e.stacktrace for e in session.query(ParseImportError)}
        usable = {d.dag_id: not (d.is_stale or d.has_import_errors) for d in session.query(DagModel)}
    return errors, usable


def test_every_topic_of_the_repository_has_one_dag_and_no_import_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(ROOT / "config"))
    bag = site.bag()
    assert bag.import_errors == {}
    assert sorted(bag.dags) == sorted([DOCTOR, *(topic.topic for topic in load_topics(ROOT / "config"))])
    assert len(bag.dags) >= 4


def test_a_broken_topic_is_the_only_import_error_and_every_other_dag_stays(site: Site) -> None:
    site.topic("orders")
    site.topic("customers")
    site.broken_topic("broken")
    bag = site.bag()
    assert sorted(bag.dags) == [DOCTOR, "customers", "orders"]
    assert bag.dags[DOCTOR].dag_display_name == "cleantail_doctor: 1 error in the configuration"
    assert list(bag.import_errors) == [BROKEN_FILE]
    text = bag.import_errors[BROKEN_FILE]
    assert f"{site.config / 'topics' / 'broken.yaml'}:1: config.segment.sm\n" in f"{text}\n"
    assert "cleantail check-config" in text
    assert "orders" not in text


def test_an_import_error_says_nothing_of_what_is_in_a_file(site: Site) -> None:
    """Airflow shows it to all who may see import errors, whatever DAGs they may read."""
    site.topic("one", pwd="hunter2", owner=["hunter3"], config={"cleanup.policy": "hunter4", "x": "hunter5"})
    site.topic("two", schedule="hunter6")
    site.topic("three", table="cleantail.four")
    site.topic("four", table="cleantail.four", schedule={"assets": ["postgres://hunter7"]})
    (site.config / "topics" / "five.yaml").write_text("topic: hunter8\n")
    text = site.bag().import_errors[BROKEN_FILE]
    assert "hunter" not in text
    for place in ("one.yaml:1: pwd", "one.yaml:1: owner", "one.yaml:1: config.cleanup.policy", "two.yaml:1: schedule"):
        assert f"{place}\n" in text
    assert "five.yaml:1: topic" in text


@pytest.mark.airflow
def test_the_database_keeps_the_other_dags_usable_while_a_topic_is_broken(site: Site, airflow_db: Path) -> None:
    site.topic("db-orders")
    site.topic("db-customers")
    site.broken_topic("db-broken")
    errors, usable = stored(site.bag())
    assert list(errors) == [BROKEN_FILE]
    assert usable["db-orders"]
    assert usable["db-customers"]
    assert "db-broken" not in usable


@pytest.mark.airflow
def test_the_import_error_goes_when_the_file_is_right_again(site: Site, airflow_db: Path) -> None:
    site.broken_topic("mended")
    assert list(stored(site.bag())[0]) == [BROKEN_FILE]
    site.topic("mended")
    errors, usable = stored(site.bag())
    assert errors == {}
    assert usable["mended"]


def test_several_broken_topics_are_all_named(site: Site) -> None:
    site.broken_topic("one")
    site.broken_topic("two")
    text = site.bag().import_errors[BROKEN_FILE]
    for name in ("one", "two"):
        assert re.search(rf"{name}\.yaml:\d+: config\.segment\.sm", text)


def test_broken_defaults_are_named_once_however_many_topics_they_break(site: Site) -> None:
    site.topic("orders")
    site.topic("customers")
    (site.config / "defaults.yaml").write_text("platfrom: {}\n")
    bag = site.bag()
    assert list(bag.dags) == [DOCTOR]
    assert bag.import_errors[BROKEN_FILE].count("defaults.yaml:1: platfrom") == 1


def test_a_missing_configuration_is_an_import_error_of_the_topics_file(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(tmp_path / "nowhere"))
    assert "no such directory" in site.bag().import_errors[TOPICS_FILE]


def test_without_topics_there_is_only_the_doctors_dag_and_no_error(site: Site) -> None:
    bag = site.bag()
    assert (list(bag.dags), bag.import_errors) == ([DOCTOR], {})


def test_a_task_builds_only_its_own_dag(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.topic("orders")
    site.topic("customers")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "orders")
    assert sorted(site.bag().dags) == [DOCTOR, "orders"]


@pytest.mark.parametrize("name", ["topic", "wanted", "scan_topics", "dag", "os", "a.b-c_d"])
def test_a_topic_may_have_the_name_of_anything_in_the_dag_file(site: Site, name: str) -> None:
    site.topic(name)
    site.topic("zebra")
    assert sorted(site.bag().dags) == sorted([DOCTOR, name, "zebra"])


WATCH = """
import json, os, sys
from airflow.dag_processing.dagbag import BundleDagBag
seen = []
def bag():
    return BundleDagBag(dag_folder=sys.argv[1], bundle_path=sys.argv[1], bundle_name="dags-folder")
def parse():
    seen.clear()
    return [sorted(bag().dags), seen[:], sorted({name.partition(".")[0] for name in sys.modules})]
def watch(event, args):
    if event in ("open", "socket.connect", "subprocess.Popen", "os.system", "sqlite3.connect"):
        seen.append([event, str(args[0])])
parse()
sys.addaudithook(watch)
by_processor = parse()
context = {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "house", "_AIRFLOW_PARSING_CONTEXT_TASK_ID": "evaluate"}
os.environ.update(context)
by_task = parse()
for name in context:
    del os.environ[name]
from airflow.serialization.serialized_objects import DagSerialization
written = json.dumps(DagSerialization.to_dict(bag().dags["house"]), sort_keys=True)
print("WATCHED" + json.dumps([by_processor, by_task, written]))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, list[Any], list[Any], str]:
    """A site; DAGs, what was opened, loaded libraries, where the DAG processor parses, and then a task of `house`; and
    the serialized DAG `house`. The process has other hashes than this one."""
    site = Site(*(tmp_path_factory.mktemp("watched") / name for name in ("config", "home")))
    for name in ("topics", "groups"):
        (site.config / name).mkdir(parents=True)
    site.topic("orders", source={"path": "landing/*.jsonl"}, alerts=[{"type": "mail", "to": ["a@b.example"]}])
    site.topic("rooms", group="house", config={"cleanup.policy": "compact,delete", "retention.ms": 9})
    site.topic("halls", group="house")
    (site.config / "groups" / "house.yaml").write_text("group: house\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "plugins", ROOT / "dags")))}
    env |= {"CLEANTAIL_CONFIG": str(site.config), "CLEANTAIL_HOME": str(site.home), "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", WATCH, str(ROOT / "dags")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return site, *json.loads(done.stdout.partition("WATCHED")[2])


def test_parsing_reads_yaml_and_nothing_else_and_loads_no_heavy_library(watched: tuple[Site, Any, Any, str]) -> None:
    site, (names, seen, loaded), *_ = watched
    assert names == [DOCTOR, "house", "orders"]
    assert {"pyspark", "great_expectations", "pyiceberg", "pyarrow", "pandas"}.isdisjoint(loaded)
    assert {event for event, _ in seen} == {"open"}
    assert {Path(file).suffix for _, file in seen} <= {".py", ".pyc", ".yaml", ".airflowignore", ""}
    assert not [file for _, file in seen if str(site.home) in file]
    file = str(site.config / "topics" / "orders.yaml")
    assert [opened for _, opened in seen].count(file) == len([TOPICS_FILE, DOCTOR_FILE, BROKEN_FILE])


def test_the_serialized_dag_of_a_group_is_the_same_in_another_process(
    watched: tuple[Site, Any, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a DAG processor makes it. Airflow makes a new version of a DAG that differs."""
    from airflow.serialization.serialized_objects import DagSerialization

    site, _, _, written = watched
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(site.config))
    assert json.dumps(DagSerialization.to_dict(site.dag("house")), sort_keys=True) == written


def test_a_task_of_a_group_reads_no_topics_yaml_and_has_the_tasks_that_the_dag_has(
    watched: tuple[Site, Any, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _, (names, seen, _), _ = watched
    monkeypatch.setenv("CLEANTAIL_CONFIG", str(site.config))
    whole, file = site.dag("house"), str(site.config / "topics" / "rooms.yaml")
    assert names == [DOCTOR, "house"]
    assert [opened for _, opened in seen].count(file) == len([BROKEN_FILE])  # which a task does not parse
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "house")
    assert (site.dag("house").doc_md, list(site.bag().dags)) == (whole.doc_md, names), "`airflow dags test` writes it"
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "evaluate")
    of_a_task = site.dag("house")
    assert "- rooms" in whole.doc_md and "- rooms" not in of_a_task.doc_md
    assert of_a_task.task_ids == whole.task_ids
    for task in whole.tasks:
        assert of_a_task.get_task(task.task_id).downstream_task_ids == task.downstream_task_ids


@pytest.mark.parametrize("file", [TOPICS_FILE, DOCTOR_FILE, BROKEN_FILE])
def test_dag_files_only_loop(file: str) -> None:
    assert len((ROOT / "dags" / file).read_text().splitlines()) <= 30


def test_the_example_of_a_dag_after_a_compaction_can_be_parsed_and_waits_for_the_asset(site: Site) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    examples = ROOT / "docs" / "examples"
    bag = BundleDagBag(dag_folder=examples, bundle_path=examples, bundle_name="examples")
    assert bag.import_errors == {}
    (waits_for,) = bag.dags["after_compaction"].timetable.asset_condition.objects
    site.topic("orders")
    (updated,) = site.dag("orders").get_task("publish").outlets
    assert (waits_for.name, waits_for.uri) == (updated.name, updated.uri)

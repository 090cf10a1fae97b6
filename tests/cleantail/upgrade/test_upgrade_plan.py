"""What an earlier version has left, found without Spark and without changing anything."""

import json
import os

import pyarrow as pa
import pytest

from cleantail.cli import main
from cleantail.errors import ConfigError
from cleantail.home.data_docs import GENERATOR, site_of
from cleantail.rounds.evidence_row import EVIDENCE_COLUMNS
from cleantail.upgrade.changes import Area, By
from cleantail.upgrade.config_files import planned_config, write
from cleantail.upgrade.plan import planned
from cleantail.upgrade.tables import missing_properties, planned_catalog, unpublishable
from tests.cleantail.orders_table import OrdersTable

OLD = {name: kind for name, kind in EVIDENCE_COLUMNS.items() if name not in ("checked_round", "sample", "dag_id")}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "config" / "topics").mkdir(parents=True)
    (tmp_path / "config" / "topics" / "orders.yaml").write_text("topic: orders\n")
    return tmp_path


def config_of(project, env=None):
    return planned_config(project / "config", project / "home", env or {})


def told(changes, by=By.UPGRADE):
    return [(change.area, change.subject) for change in changes if change.by is by]


# ---- configuration


def test_a_configuration_of_this_version_needs_nothing(project):
    found = config_of(project)
    assert (found.changes, found.edits, [t.topic for t in found.topics]) == ((), (), ["orders"])
    assert (found.platform.home, found.platform.config_dir) == (project / "home", project / "config")


def test_gone_keys_are_taken_out_and_what_was_is_kept(project):
    defaults = project / "config" / "defaults.yaml"
    text = "platform:\n  spark:\n    columnar: never\n    insecure: true  # closed network\n"
    defaults.write_text(text)
    defaults.chmod(0o640)
    found = config_of(project)
    assert told(found.changes) == [(Area.CONFIGURATION, "defaults.yaml")]
    assert found.platform.spark.insecure
    assert defaults.read_text() == text  # a look changes nothing
    write(project / "config", found.edits, project / "kept")
    assert defaults.read_text() == "platform:\n  spark:\n    insecure: true  # closed network\n"
    assert (project / "kept" / "defaults.yaml").read_text() == text
    assert defaults.stat().st_mode & 0o777 == 0o640
    assert config_of(project).changes == ()


def test_a_file_gets_the_name_of_its_topic_unless_another_has_it(project):
    topics = project / "config" / "topics"
    (topics / "old-name.yml").write_text("topic: payments\n")
    (topics / "copy.yaml").write_text("topic: orders\n")
    found = config_of(project)
    assert told(found.changes) == [(Area.CONFIGURATION, "topics/old-name.yml")]
    assert told(found.changes, By.PERSON) == [(Area.CONFIGURATION, "topics/copy.yaml")]
    write(project / "config", found.edits, project / "kept")
    assert sorted(file.name for file in topics.iterdir()) == ["copy.yaml", "orders.yaml", "payments.yml"]


@pytest.mark.parametrize("name", ["../other", "/etc/x", "..", ""])
def test_no_file_gets_a_name_that_leads_elsewhere(project, name):
    (project / "config" / "topics" / "old.yaml").write_text(json.dumps({"topic": name}))
    found = config_of(project)
    assert (found.edits, told(found.changes, By.PERSON)) == ((), [(Area.CONFIGURATION, "topics/old.yaml")])


def test_what_this_version_refuses_is_for_a_person_with_file_and_line(project):
    (project / "config" / "defaults.yaml").write_text("platform:\n  spark: {master: spark://h:7077}\n")
    found = config_of(project)
    [change] = found.changes
    assert (change.by, change.subject, found.platform) == (By.PERSON, "defaults.yaml", None)
    assert change.text.startswith("this version refuses it: line 2: platform.spark.master")
    whole = planned(project / "config", {"CLEANTAIL_HOME": str(project / "home")})
    assert (whole.platform, whole.catalog.changes) == (None, [])


def test_there_has_to_be_a_configuration(tmp_path):
    with pytest.raises(ConfigError, match="no such directory"):
        planned(tmp_path / "config", {"CLEANTAIL_HOME": str(tmp_path)})


# ---- state


def test_a_state_beside_the_configuration_that_is_not_used_any_more_is_told(project):
    (project / ".cleantail").mkdir()
    (project / ".cleantail" / "catalog.db").touch()
    env = {"CLEANTAIL_HOME": str(project / "home"), "CLEANTAIL_JARS": os.environ.get("CLEANTAIL_JARS", "")}
    plan = planned(project / "config", env)
    assert (Area.STATE, str(project / ".cleantail")) in told(plan.changes, By.PERSON)
    assert not (project / "home" / "catalog.db").exists()
    used = planned(project / "config", {})  # it is used where nothing else is named
    assert used.home == project / ".cleantail"
    assert Area.STATE not in {change.area for change in used.changes}


def test_jars_of_another_version_are_told(project):
    (project / "home" / "jars").mkdir(parents=True)
    (project / "home" / "jars" / "iceberg-spark-runtime-4.0_2.13-1.10.0.jar").touch()
    plan = planned(project / "config", {"CLEANTAIL_HOME": str(project / "home")})
    assert told(plan.changes, By.PERSON) == [(Area.JARS, str(project / "home" / "jars"))]


def test_pages_of_an_earlier_version_are_made_anew_and_ours_are_not(project):
    for topic, head in (("orders", "<title>Data Docs created by Great Expectations</title>"), ("new", GENERATOR)):
        site = site_of(project / "home", topic)
        site.mkdir(parents=True)
        (site / "index.html").write_text(f"<!DOCTYPE html><html><head>{head}</head></html>")
    plan = planned(project / "config", {"CLEANTAIL_HOME": str(project / "home")})
    assert (told(plan.changes), plan.docs) == ([(Area.DATA_DOCS, "orders")], ("orders",))


# ---- catalog


@pytest.fixture
def orders(project):
    return OrdersTable(project)


def test_a_table_without_what_newer_ones_have_gets_it(orders):
    found = planned_catalog(orders.platform, [orders.topic])
    assert told(found.changes) == [(Area.TABLE, "cleantail.orders")] * 2
    [needed] = found.tables
    assert (needed.tombstone, needed.properties["commit.retry.num-retries"]) == (True, "20")
    assert "write.metadata.metrics.default" not in needed.properties  # it is there


def test_a_setting_of_a_person_stays(orders):
    wanted = missing_properties({}, orders.topic)
    assert missing_properties(dict.fromkeys(wanted, "theirs"), orders.topic) == {}


def test_a_state_that_cannot_be_read_is_for_a_person(orders):
    orders.set_properties(**{"cleantail.partition.0": '{"version": 2}'})
    [change] = planned_catalog(orders.platform, [orders.topic]).changes
    assert (change.area, change.by) == (Area.TABLE, By.PERSON)
    assert "not a partition state of version 1" in change.text


def test_a_side_table_that_does_not_say_whose_it_is_is_for_a_person(orders):
    for suffix, properties in (("_deleted_versions", {}), ("_keyless", {"cleantail.side-of": "orders"})):
        schema = orders.table.schema()
        orders.catalog.create_table(f"cleantail.orders{suffix}", schema, properties=properties)
    found = planned_catalog(orders.platform, [orders.topic])
    assert told(found.changes, By.PERSON) == [(Area.SIDE_TABLE, "cleantail.orders_deleted_versions")]


def evidence(orders, columns, **row):
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns.items()])
    table = orders.catalog.create_table("cleantail.cleantail_evidence", schema)
    table.append(pa.Table.from_pylist([row], schema))


@pytest.mark.parametrize("columns", [OLD, EVIDENCE_COLUMNS], ids=["without the column", "with the column, null"])
def test_a_round_that_waits_and_was_not_written_down_is_told_where_it_has_a_branch(orders, columns):
    evidence(orders, columns, topic="orders", round="r1", outcome="checked", partition=0)
    assert Area.ROUND not in {c.area for c in planned_catalog(orders.platform, [orders.topic]).changes}
    orders.append((0, 0, 1, b"a", b"x"))
    snapshot = orders.table.current_snapshot().snapshot_id
    orders.table.manage_snapshots().create_branch(snapshot, "ct_r1_u0_1700000000").commit()
    found = planned_catalog(orders.platform, [orders.topic])
    assert told(found.changes, By.ITSELF) == [(Area.ROUND, "orders: r1")]
    assert found.evidence == (columns is OLD)


def test_rounds_of_other_branches_and_kept_ones_do_not_wait():
    rows = [{"topic": "a", "round": "r1"}, {"topic": "b", "round": "r2"}]
    assert unpublishable(rows, {"a": ("ct_r11_u0_1", "failed_r1_u0_1"), "b": ()}) == []
    [change] = unpublishable([*rows, rows[0]], {"a": ("ct_r1_u0_1", "ct_r1_u1_1")})
    assert change.subject == "a: r1"


def test_a_dry_run_changes_nothing_and_answers_machines(orders, project, monkeypatch, capsys):
    monkeypatch.setenv("CLEANTAIL_HOME", str(project / "home"))
    before = orders.table.metadata_location
    main(["upgrade", "--dry-run", "--json", "--config", str(project / "config")])
    document = json.loads(capsys.readouterr().out)
    assert (document["done"], document["kept"], document["tables_looked_at"]) == (False, None, True)
    assert {"area": "table", "subject": "cleantail.orders", "by": "upgrade"}.items() <= document["changes"][-1].items()
    assert orders.catalog.load_table("cleantail.orders").metadata_location == before
    assert not (project / "home" / "upgrades").exists()

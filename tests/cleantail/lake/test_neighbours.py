"""The check that a table shares its folder with no other, on real catalogs, with metadata that an owner may write."""

import os
import sqlite3

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import LongType, NestedField

from cleantail.config.loading import load_platform
from cleantail.config.topic_table import Columns
from cleantail.errors import TableError
from cleantail.lake.catalogs import open_catalog, require_usable
from cleantail.lake.neighbours import (
    may_delete_files,
    named_files,
    require_inner_files,
    require_inner_paths,
    require_separate_folder,
)
from cleantail.lake.records.topic_columns import PROPERTY_COLUMNS, property_of_columns
from cleantail.lake.storage_locations import require_safe_commits
from cleantail_cli import main

SCHEMA = Schema(NestedField(1, "offset", LongType()))


@pytest.fixture
def platform(project):
    return load_platform(project / "config")


@pytest.fixture
def table(platform):
    """table(name, location, **properties): create a table at the location, or at the catalog's default."""
    catalog = open_catalog(platform)

    def make(name, location=None, **properties):
        catalog.create_namespace_if_not_exists(name.partition(".")[0])
        return catalog.create_table(name, SCHEMA, location=location, properties=properties)

    return make


def check(platform, table):
    return require_separate_folder(open_catalog(platform), platform, table)


def test_tables_in_sibling_folders_are_allowed(platform, table):
    table("sinks.other")
    assert check(platform, table("sinks.orders")) == ""


@pytest.mark.parametrize("where", ["{0}", "{0}/", "{0}/data", "{0}/../victim", "file://{1}", "{1}/deep/er"])
@pytest.mark.parametrize("namespace", ["sinks", "elsewhere"])
def test_a_table_in_or_at_the_folder_of_another_is_refused_by_both_names(platform, table, where, namespace):
    victim = table("sinks.victim")
    location = where.format(victim.location(), victim.location().removeprefix("file:"))
    attacker = table(f"{namespace}.attacker", location)
    message = rf"{namespace}\.attacker lies at .*sinks\.victim at .*nothing was changed"
    with pytest.raises(TableError, match=message):
        check(platform, attacker)
    with pytest.raises(TableError, match=r"sinks\.victim lies at .*attacker at"):
        check(platform, victim)


def test_a_folder_around_others_and_a_link_to_it_are_refused(platform, table, tmp_path):
    victim = table("sinks.victim", f"file:{tmp_path}/lake/sub/victim")
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(TableError, match=r"around lies at .* table sinks\.victim at"):
        check(platform, table("sinks.around", f"{tmp_path}/link"))
    with pytest.raises(TableError, match=r"victim lies at .* table sinks\.around at"):
        check(platform, victim)


def test_where_a_table_has_its_data_counts_not_where_its_metadata_is(platform, table, tmp_path):
    """One query returns the locations of metadata. A table may have its data elsewhere."""
    table("sinks.victim", f"file:{tmp_path}/far/victim", **{"write.metadata.path": f"file:{tmp_path}/meta/victim"})
    for number, location in enumerate((f"file:{tmp_path}/far", f"file:{tmp_path}/meta")):
        with pytest.raises(TableError, match=r"table sinks\.victim at"):
            check(platform, table(f"sinks.attacker{number}", location))


def test_a_data_path_of_another_counts_as_its_place(platform, table, tmp_path):
    table("sinks.victim", **{"write.data.path": f"file:{tmp_path}/objects/victim"})
    with pytest.raises(TableError, match=r"table sinks\.victim at file:.*objects/victim"):
        check(platform, table("sinks.attacker", f"file:{tmp_path}/objects"))


def test_tables_of_another_catalog_in_the_same_database_count(platform, table):
    victim = table("sinks.victim")
    with sqlite3.connect(platform.home / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET catalog_name = 'of_another_team'")
    with pytest.raises(TableError, match=r"table of_another_team\.sinks\.victim at"):
        check(platform, table("sinks.attacker", victim.location()))


def test_a_broken_table_counts_by_where_its_metadata_was(platform, table):
    victim = table("sinks.victim")
    os.unlink(victim.metadata_location.removeprefix("file:"))
    with pytest.raises(TableError, match=r"table sinks\.victim at"):
        check(platform, table("sinks.attacker", f"{victim.location()}/data"))


@pytest.mark.parametrize("up", ["warehouse", "."])
def test_a_folder_that_has_the_warehouse_or_the_home_in_it_is_refused(platform, table, up):
    with pytest.raises(TableError, match=r"which contains (the warehouse|CLEANTAIL_HOME) \("):
        check(platform, table("sinks.attacker", f"file:{platform.home / up}"))


@pytest.mark.parametrize("where", ["landing", "landing/orders", "airflow", "warehouse/../alerts", "warehouse2"])
def test_a_table_among_what_else_is_in_the_home_is_refused(platform, table, where):
    """For example, its write.data.path is another topic's landing folder. No snapshot references the files there."""
    with pytest.raises(TableError, match=r"table sinks\.attacker lies at .*, in .* and not in the warehouse"):
        check(platform, table("sinks.attacker", f"file:{platform.home}/{where}"))


def test_a_table_where_the_platform_has_its_sources_is_refused_and_one_beside_them_is_not(platform, table, tmp_path):
    """A name that begins with another name is not a folder inside the other folder."""
    apart = platform.model_copy(update={"sources": (str(tmp_path / "drop"),)})
    with pytest.raises(TableError, match=r"in a folder of sources, .*/drop, and not in the warehouse"):
        check(apart, table("sinks.attacker", f"file:{tmp_path}/drop/deep"))
    assert check(apart, table("sinks.drop2", f"file:{tmp_path}/drop2")) == ""
    around = platform.model_copy(update={"sources": (str(tmp_path),)})
    assert check(around, table("sinks.in_the_warehouse")) == ""


@pytest.mark.parametrize("key", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
def test_a_property_that_puts_files_outside_the_location_is_refused(key):
    with pytest.raises(TableError, match=rf"n\.t has {key}=s3://b/x, which is outside its location s3://b/t"):
        require_inner_paths("n.t", "s3://b/t", {key: "s3://b/x"})
    require_inner_paths("n.t", "s3://b/t", {key: "s3a://b/t/x"})


def test_files_that_only_an_old_snapshot_names_are_seen(table):
    mine, victim = table("sinks.mine"), table("sinks.victim")
    victim.append(pa.table({"offset": [1]}))
    [foreign] = [task.file.file_path for task in victim.scan().plan_files()]
    mine.add_files([foreign])
    mine.delete("offset >= 0")
    with pytest.raises(TableError, match=r"metadata of table n\.mine names files outside its location .*victim/data/"):
        require_inner_files("n.mine", mine.location(), named_files(mine))
    require_inner_files("n.victim", victim.location(), named_files(victim))


@pytest.mark.parametrize(("value", "may"), [("false", False), ("FALSE", False), ("true", True), (None, True)])
def test_gc_enabled_says_whether_files_may_go(value, may):
    assert may_delete_files({} if value is None else {"gc.enabled": value}) is may


def test_a_table_whose_commits_would_delete_metadata_elsewhere_is_refused(orders_table, tmp_path):
    """By write.metadata.delete-after-commit.enabled, which each commit applies."""
    table, moved = orders_table.table, f"file:{tmp_path}/moved"
    orders_table.append((0, 0, 1, b"a", b"x"))
    with table.transaction() as transaction:
        transaction.set_properties({"write.metadata.delete-after-commit.enabled": "true"})
        transaction._apply((SetLocationUpdate(location=moved),))
    with pytest.raises(TableError, match=r"its metadata log names .* a commit would delete it; nothing was changed"):
        require_safe_commits(table)
    # an adopted table, whose metadata its sink writes, is checked before every command and job that commits
    columns = Columns(partition="partition", offset="offset", key="key")
    orders_table.set_properties(**{PROPERTY_COLUMNS: property_of_columns(columns)})
    topic = orders_table.topic.model_copy(update={"columns": columns})
    with pytest.raises(TableError, match="a commit would delete it"):
        require_usable(topic)


class Guarded(RestCatalog):
    """A REST catalog that shows a client only one namespace, with one table."""

    def __init__(self):
        self.name = "rest"

    def list_namespaces(self, namespace=()):
        if namespace == ():
            return [("sinks",), ("hidden",)]
        return []

    def list_tables(self, namespace):
        if namespace == ("hidden",):
            raise ForbiddenError("not for you")
        return [("sinks", "orders"), ("sinks", "secret")]

    def load_table(self, identifier):
        raise ForbiddenError("not for you")


def test_of_a_catalog_that_hides_tables_it_is_said_how_many(platform, table):
    unseen = require_separate_folder(Guarded(), platform, table("sinks.orders"))
    assert unseen == "2 namespaces or tables of catalog rest are hidden from this login"


@pytest.mark.parametrize("name", ["cleantail_evidence", "orders_keyless", "orders_deleted_versions"])
def test_tables_that_cleantail_keeps_for_itself_are_neighbours_as_all_are(platform, table, name):
    own = table(f"cleantail.{name}")
    with pytest.raises(TableError, match=rf"attacker lies at .*cleantail\.{name} at"):
        check(platform, table("sinks.attacker", own.location()))


def test_files_that_only_a_branch_names_are_seen(table):
    orders = table("sinks.orders")
    rows = pa.table({"offset": [1]})
    orders.append(rows)
    before = set(named_files(orders))
    orders.manage_snapshots().create_branch(orders.current_snapshot().snapshot_id, "aside").commit()
    orders.append(rows, branch="aside")
    new = set(named_files(orders)) - before
    assert [path for path in new if path.endswith(".parquet")]
    with pytest.raises(TableError, match="names files outside its location"):
        require_inner_files("sinks.orders", "file:/elsewhere", [p for p in new if p.endswith(".parquet")])


@pytest.mark.parametrize(
    ("name", "properties", "reason"),
    [
        ("orders_keyless", {"cleantail.side-of": "orders"}, "a side table that Cleantail keeps for topic orders"),
        ("cleantail_evidence", {}, "the name of the table with the evidence of all topics"),
        ("cleantail_erased_keys", {}, "the name of the table with the erased keys of all topics"),
    ],
)
def test_a_table_that_cleantail_keeps_for_itself_is_not_adopted(project, table, capsys, name, properties, reason):
    """It has the columns of a topic table, so a round would treat its records as those of a topic."""
    from tests.cleantail.orders_table import SCHEMA as TOPIC_SCHEMA

    made = table("cleantail.other")  # makes the namespace
    made.catalog.create_table(f"cleantail.{name}", TOPIC_SCHEMA, properties=properties)
    argv = ["adopt", f"cleantail.{name}", "--topic", "mine", "--config", str(project / "config")]
    for more in ([], ["--dry-run"]):
        assert main([*argv, *more]) == 2
        assert reason in capsys.readouterr().err
    assert not (project / "config" / "topics" / "mine.yaml").exists()

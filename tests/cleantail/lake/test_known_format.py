"""State and configuration carry the number of their format. A number that this version does not read is refused."""

from __future__ import annotations

import json

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from cleantail.config.loading import load_platform
from cleantail.config.topic_table import table_properties
from cleantail.errors import ConfigError, TableError
from cleantail.lake.catalogs import require_usable, side_tables
from cleantail.lake.recorded_rounds import load_evidence
from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PACK_RESULT_JSON
from cleantail_cli import main

COMMANDS = (
    ("status", "orders"),
    ("plan", "orders"),
    ("compact", "orders", "--force"),
    ("read", "orders"),
    ("latest", "orders"),
    ("rollback", "orders", "--to", "last"),
    ("release", "orders", "0"),
    ("reclaim", "orders"),
    ("reader", "set", "orders", "r", "--partition", "0", "--offset", "0"),
)


@pytest.mark.parametrize("number", ["2", "0", "x"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_table_of_an_unknown_format_is_refused_by_name_before_anything_is_changed(
    orders_table, project, capsys, command, number
):
    orders_table.append((0, 0, 1, b"a", b"x")).set_properties(**{"cleantail.format": number})
    before = orders_table.table.refresh().metadata_location
    code = main([*command, "--config", str(project / "config")])
    err = capsys.readouterr().err
    assert code == 2 and f"table cleantail.orders has cleantail.format={number}" in err and "reads format 1" in err
    assert orders_table.table.refresh().metadata_location == before


@pytest.mark.parametrize("properties", [{}, {"cleantail.format": "1"}], ids=["without a number", "1"])
def test_format_1_is_read_with_and_without_its_number(orders_table, properties):
    orders_table.append((0, 0, 1, b"a", b"x"))
    if properties:
        orders_table.set_properties(**properties)
    require_usable(orders_table.topic)
    assert table_properties("orders", orders_table.topic.config)["cleantail.format"] == "1"


def test_evidence_of_an_unknown_format_is_refused(orders_table):
    schema = Schema(NestedField(1, "topic", StringType()))
    orders_table.catalog.create_table("cleantail.cleantail_evidence", schema, properties={"cleantail.format": "2"})
    unknown = r"table cleantail\.cleantail_evidence has cleantail\.format=2"
    with pytest.raises(TableError, match=unknown):
        load_evidence(orders_table.catalog, orders_table.platform)
    with pytest.raises(TableError, match=unknown):
        require_usable(orders_table.topic)


@pytest.mark.parametrize(
    "command",
    [("compact", "orders", "--force"), ("ingest", "orders", "--file", "-"), ("rollback", "orders", "--to", "last")],
)
def test_no_work_begins_if_the_format_of_the_evidence_is_unknown(orders_table, project, capsys, command):
    orders_table.append((0, 0, 1, b"a", b"x"))
    schema = Schema(NestedField(1, "topic", StringType()))
    orders_table.catalog.create_table("cleantail.cleantail_evidence", schema, properties={"cleantail.format": "2"})
    before = orders_table.table.refresh().metadata_location
    code = main([*command, "--config", str(project / "config")])
    assert code == 2 and "cleantail_evidence has cleantail.format=2" in capsys.readouterr().err
    assert orders_table.table.refresh().metadata_location == before


@pytest.mark.parametrize("command", [("mend", "cleantail.orders"), ("convert-deletes", "cleantail.orders")])
def test_a_table_that_is_named_is_refused_too(orders_table, project, capsys, command):
    orders_table.append((0, 0, 1, b"a", b"x")).set_properties(**{"cleantail.format": "2"})
    assert main([*command, "--config", str(project / "config")]) == 2
    assert "table cleantail.orders has cleantail.format=2" in capsys.readouterr().err


SIDE_TABLES = {
    "_keyless": {"cleantail.keyless.policy": "quarantine"},
    "_unholdable": {"cleantail.unholdable.policy": "quarantine"},
    "_deleted_versions": {"cleantail.tombstone.lateness.ms": 1},
}


@pytest.mark.parametrize("suffix", SIDE_TABLES)
def test_no_work_begins_if_the_format_of_a_side_table_that_the_topic_uses_is_unknown(orders_table, suffix):
    orders_table.append((0, 0, 1, b"a", b"x"))
    name, schema = f"cleantail.orders{suffix}", Schema(NestedField(1, "partition", StringType()))
    own = {"cleantail.side-of": "orders", "cleantail.format": "2"}
    orders_table.catalog.create_table(name, schema, properties=own)
    topic = orders_table.topic
    require_usable(topic)  # no run touches the table
    config = topic.config.model_validate(topic.config.model_dump(by_alias=True) | SIDE_TABLES[suffix])
    unknown = rf"table {name} has cleantail\.format=2: this version of Cleantail reads format 1; nothing was changed"
    with pytest.raises(TableError, match=unknown):
        require_usable(topic.model_copy(update={"config": config}))
    with pytest.raises(TableError, match=unknown):
        side_tables(topic)


@pytest.mark.parametrize("codec", [PACK_REQUEST_JSON, PACK_RESULT_JSON], ids=["request", "result"])
@pytest.mark.parametrize("number", ["2", "true", "1.0", '"1"'])
def test_a_pack_of_an_unknown_format_is_refused_with_what_is_allowed(codec, number):
    known = {"topics": [], "now_ms": 1}
    refused = rf"format: {number} is not allowed: this version of Cleantail reads format 1; .*Install the version"
    with pytest.raises(TableError, match=refused):
        codec.value(json.dumps(known | {"format": json.loads(number)}), "--request")
    assert codec.plain(codec.value(json.dumps(known | {"format": 1}), "--request"))["format"] == 1


@pytest.mark.parametrize("number", ["2", "true", "1.0", "'1'"])
def test_a_configuration_of_an_unknown_format_is_refused_with_what_is_allowed(project, number):
    (project / "config" / "defaults.yaml").write_text(f"format: {number}\n")
    text = number.replace("'", '"')
    with pytest.raises(ConfigError, match=rf"defaults\.yaml:1: format: {text} is not allowed: .*format 1; .*Install"):
        load_platform(project / "config", {})
    (project / "config" / "defaults.yaml").write_text("format: 1\n")
    assert load_platform(project / "config", {}) is not None

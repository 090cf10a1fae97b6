"""State as an earlier version has left it, in the middle of a quarantine and of an approval, and the way on from there.

The state is made by this version and taken back to the old format. tests/jobs/upgrade/test_upgrade_of_commits.py has the real
thing.
"""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pytest

from cleantail.home.data_docs import is_ours, site_of
from cleantail.lake.catalogs import open_catalog
from cleantail.rounds.answers import answered, question, write_answer
from cleantail.rounds.checked.recorded_checks import REFERENCE_JSON
from cleantail.rounds.evidence_row import EVIDENCE_COLUMNS
from spark_jobs import publish
from tests.jobs.round.test_held_rounds import SHORT, branches, checked_round, ingest
from tests.jobs.round.test_rounds import NOW, offsets
from tests.round_builders import reference_of

OF_0_1_0 = list(EVIDENCE_COLUMNS)[:20]
"""The columns of the evidence in version 0.1.0."""
TASK = ("upgraded", "manual__1", "approve")


@pytest.fixture
def platform_yaml(workshop):
    """Writes defaults.yaml; a namespace of its own has an evidence table of its own."""

    def write(namespace, **spark):
        settings = {"catalog": {"namespace": namespace}, "allow_clock": True, "spark": {"master": "local[2]", **spark}}
        (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": settings}))

    return write


def made_old(workshop, namespace, *tables):
    """Takes from the tables, and from the evidence, what version 0.1.0 did not write."""
    for table in tables:
        table.spark.sql(f"ALTER TABLE {table.name} DROP COLUMN tombstone")
        table.spark.sql(f"ALTER TABLE {table.name} UNSET TBLPROPERTIES ('commit.retry.min-wait-ms')")
    catalog = open_catalog(workshop.platform(), os.environ)
    evidence = catalog.load_table(f"{namespace}.cleantail_evidence")
    rows = evidence.scan(selected_fields=tuple(OF_0_1_0)).to_arrow()
    catalog.drop_table(f"{namespace}.cleantail_evidence")
    schema = pa.schema([(name, pa.type_for_alias(EVIDENCE_COLUMNS[name])) for name in OF_0_1_0])
    catalog.create_table(f"{namespace}.cleantail_evidence", schema).append(rows.select(OF_0_1_0).cast(schema))


def old_page(home, topic):
    index = site_of(home, topic) / "index.html"
    index.write_text("<!DOCTYPE html><html><head><title>Data Docs created by Great Expectations</title>")
    return index


def test_a_quarantine_and_a_waiting_round_of_an_earlier_version_come_through(
    workshop, table_of, platform_yaml, home, capsys
):
    platform_yaml("earlier")
    red = workshop.topic("upgraded-red", checks=[SHORT])
    asks = workshop.topic("upgraded-asks", publish="approve")
    ingest(workshop, red, "red.jsonl", (0, "long key", "x"), (1, "long key", "y"), (2, "b", None))
    ingest(workshop, asks, "asks.jsonl", (0, "a", "x"), (1, "a", "y"))
    assert workshop.run("compact", red, "--now", NOW)[0] == 1
    waiting = checked_round(workshop, table_of(asks))
    tables = [table_of(red), table_of(asks)]
    index = old_page(home, red)
    made_old(workshop, "earlier", *tables)
    platform_yaml("earlier", columnar="always")
    assert workshop.run("status", red)[0] == 2

    # 1. what it would do, which changes nothing
    code, out, _ = workshop.run("upgrade", "--dry-run", "--json")
    subjects = [(c["area"], c["subject"], c["by"]) for c in json.loads(out)["changes"]]
    assert code == 0
    assert subjects == [
        ("configuration", "defaults.yaml", "upgrade"),
        *[("table", f"earlier.{name.replace('-', '_')}", "upgrade") for name in (asks, asks, red, red)],
        ("evidence", "earlier.cleantail_evidence", "upgrade"),
        ("round", f"{asks}: {waiting.round}", "itself"),
        ("Data Docs", red, "upgrade"),
    ]
    assert workshop.run("upgrade", "--dry-run", "--json")[1] == out

    # 2. the upgrade, once
    code, out, _ = workshop.run("upgrade", "--json")
    done = json.loads(out)
    assert (code, done["done"], len(done["changes"])) == (0, True, 8)
    assert is_ours(index)
    code, out, _ = workshop.run("upgrade", "--json")
    again = json.loads(out)
    assert (code, again["kept"], [c["by"] for c in again["changes"]]) == (0, None, ["itself"])

    # 3. the quarantine is there, and a release lets the next round through
    [log] = workshop.json("status", red, "--now", NOW)["topics"][red]
    assert log["state"]["quarantine"]["reason"].startswith("check failed")
    workshop.topic(red)
    workshop.ok("release", red, 0)
    workshop.ok("compact", red, "--now", NOW + 1)
    assert offsets(workshop.read(red)) == [1, 2]

    # 4. an approval of what was not written down publishes nothing; the round is made anew, and approved
    told = json.dumps(REFERENCE_JSON.plain(reference_of(waiting)))
    assert "was checked by an earlier version" in _published(workshop, asks, told, waiting)["error"]
    assert offsets(workshop.read(asks)) == [0, 1]
    fresh = checked_round(workshop, table_of(asks), NOW + 5)
    told = json.dumps(REFERENCE_JSON.plain(reference_of(fresh)))
    assert _published(workshop, asks, told, fresh)["published"] == [0]
    assert offsets(workshop.read(asks)) == [1]
    ingest(workshop, asks, "asks-1.jsonl", (2, "a", None))
    marks = table_of(asks).spark.table(table_of(asks).name).orderBy("offset").select("tombstone").collect()
    assert [row.tombstone for row in marks] == [None, True]
    assert [name for name in branches(table_of(asks)) if waiting.round not in name] == []


def _published(workshop, topic, told, checked):
    """Anna says yes, and the job publishes."""
    catalog = open_catalog(workshop.platform(), os.environ)
    asked = question(checked, TASK, NOW)
    write_answer(catalog, workshop.find(topic), asked)
    said = answered(asked, TASK, True, {"id": "anna", "name": "Anna"}, NOW)
    write_answer(catalog, workshop.find(topic), said)
    result = workshop.config / "result.json"
    publish.main(["--config", str(workshop.config), "--topic", topic, "--result", str(result), "--round", told])
    return json.loads(result.read_text())

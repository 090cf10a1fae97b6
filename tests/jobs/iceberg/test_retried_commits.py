"""Commits that lose against others: what is tried again, what is void, and what another writer never notices."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.table import Table
from pyiceberg.types import StringType

from cleantail.config.topic_table import EVIDENCE
from cleantail.errors import ConflictError, OvertakenError
from cleantail.lake import own_tables
from cleantail.lake.catalogs import open_catalog
from cleantail.retries import COMMITS
from spark_jobs.iceberg import commits
from spark_jobs.iceberg.commits import Rollback
from spark_jobs.round import evidence
from tests.jobs.round.test_rounds import record


@pytest.fixture
def table(workshop, table_of, request):
    topic = workshop.topic(f"retried-{request.node.originalname.replace('_', '-')[-40:]}")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(o, "k", "v") for o in range(3)]))
    return table_of(topic)


def branches(table):
    return set(map(str, table.load().refs().keySet()))


def other_commit(table, value):
    table.load().updateProperties().set("somebody", value).commit()


def test_a_branch_creation_overtaken_by_another_commit_is_retried_on_the_new_table(table, monkeypatch):
    tries = []

    def late(*_):
        tries.append(1)
        if len(tries) == 1:
            other_commit(table, "else")

    monkeypatch.setattr(commits, "before_commit", late)
    table.create_branch("ct_mine_1", None)
    assert len(tries) == 2
    assert "ct_mine_1" in branches(table)
    assert table.load().properties().get("somebody") == "else"


def test_a_branch_that_loses_every_time_is_overtaken(table, monkeypatch):
    monkeypatch.setattr(commits, "COMMITS", replace(COMMITS, tries=3, pause_s=(0, 0)))
    tries = []

    def late(*_):
        tries.append(1)
        other_commit(table, str(len(tries)))

    monkeypatch.setattr(commits, "before_commit", late)
    with pytest.raises(OvertakenError, match="the table changed in a way .*CommitFailedException"):
        table.create_branch("ct_mine_1", None)
    assert len(tries) == 3
    assert "ct_mine_1" not in branches(table)


def test_a_snapshot_whose_rows_were_numbered_meanwhile_is_tried_again(spark):
    checked = spark._jvm.org.apache.iceberg.RetryableValidationException.check
    with pytest.raises(Py4JJavaError) as raised:
        checked(False, "first-row-id is behind", spark._sc._gateway.new_array(spark._jvm.Object, 0))
    assert isinstance(commits.conflict(raised.value), OvertakenError)


def test_a_snapshot_goes_with_its_branch_unless_another_reference_or_main_was_at_it(table):
    first = table.load().currentSnapshot().snapshotId()
    table.load().newFastAppend().set("somebody", "else").commit()
    second = table.load().currentSnapshot().snapshotId()
    table.create_branch("ct_mine_1", second)
    table.load().newFastAppend().toBranch("ct_mine_1").commit()
    shared = table.head_of("ct_mine_1")
    table.load().manageSnapshots().createTag("kept", shared).commit()
    table.load().newFastAppend().toBranch("ct_mine_1").commit()
    alone = table.head_of("ct_mine_1")
    table.create_branch("ct_mine_2", second)
    table.load().newFastAppend().toBranch("ct_mine_2").commit()
    once_main = table.head_of("ct_mine_2")
    table.load().manageSnapshots().setCurrentSnapshot(once_main).commit()
    table.load().manageSnapshots().setCurrentSnapshot(first).commit()  # others roll `main` back
    table.drop_branches(["ct_mine_1", "ct_mine_2"])
    assert branches(table) == {"main", "kept"}
    there = table.load()
    kept = [there.snapshot(number) is not None for number in (first, second, shared, once_main, alone)]
    assert kept == [True] * 4 + [False]


def test_a_rollback_overtaken_by_another_commit_is_planned_again(table):
    plans = []

    def plan(history, properties):
        plans.append([c.snapshot_id for c in history])
        if len(plans) == 1:
            table.set_properties({"somebody": "else"})
        return Rollback(history[0].snapshot_id, (), {"seen": properties.get("somebody", "")}, {"note": "x"})

    snapshot_id = commits.roll_back(table, plan)
    assert len(plans) == 2
    assert table.load().properties().get("seen") == "else"
    assert int(table.load().currentSnapshot().snapshotId()) == snapshot_id


def test_a_plan_that_raises_a_conflict_is_not_retried(table):
    plans = []

    def plan(history, properties):
        plans.append(history)
        raise ConflictError("another round was published")

    with pytest.raises(ConflictError, match="another round was published"):
        commits.roll_back(table, plan)
    assert len(plans) == 1


def test_columns_that_the_evidence_lacks_are_added_while_another_round_adds_them(workshop, monkeypatch):
    platform = workshop.platform()
    catalog, name = open_catalog(platform), f"{platform.catalog.namespace}.{EVIDENCE}"
    early = pa.schema([field for field in evidence.SCHEMA if field.name not in ("sample", "saved_bytes")])
    catalog.create_namespace_if_not_exists(platform.catalog.namespace)
    if catalog.table_exists(name):
        catalog.drop_table(name)
    catalog.create_table(name, early)
    real, tries = Table.transaction, []

    def late(self):
        tries.append(self)
        if len(tries) == 1:
            with catalog.load_table(name).update_schema() as other:
                other.add_column("sample", StringType())
        return real(self)

    monkeypatch.setattr(Table, "transaction", late)
    made = evidence.evidence_table(platform)
    assert set(made.schema().column_names) == set(evidence.SCHEMA.names)
    assert own_tables.PROPERTIES.items() <= made.properties.items()
    assert len(tries) == 2

"""History that others rewrote: a table whose last round is not in main any more is cleaned from its start."""

from __future__ import annotations

import pytest

from cleantail.errors import ConflictError
from cleantail.rounds.rewritten_history import PROPERTY_HISTORY
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.round.publish import publish_round
from tests.jobs.round.test_held_rounds import checked_round

T0 = 1_800_000_000_000
DAY = 86_400_000
NOTE = "history was rewritten"


def record(offset, key, value, ts=T0):
    return {"topic": "t", "partition": 0, "offset": offset, "ts": ts, "key": key, "payload": value}


@pytest.fixture
def deleted(workshop):
    """Makes a topic with a key that is deleted, and ingests it."""

    def make(name, **config):
        workshop.topic(name, {"delete.retention.ms": DAY} | config)
        rows = [record(0, "k1", "v1"), record(1, "k2", "a"), record(2, "k1", None)]
        workshop.ok("ingest", name, "--file", workshop.file(f"{name}.jsonl", rows), "--any-topic")
        return name

    return make


def current(table):
    return int(table.load().currentSnapshot().snapshotId())


def state_of(workshop, name, now=T0):
    return workshop.json("status", name, "--now", now)["topics"][name][0]


def seen(workshop, name):
    return {r["key"]: r["payload"] for r in workshop.read(name)}


ACTS = {
    "rollback_to_snapshot": "CALL cleantail.system.rollback_to_snapshot('{table}', {before})",
    "set_current_snapshot": "CALL cleantail.system.set_current_snapshot('{table}', {before})",
    "rollback_to_timestamp": "CALL cleantail.system.rollback_to_timestamp('{table}', TIMESTAMP '{after_ms}')",
}


QUICK = "rollback_to_snapshot"
"""The acts differ only in what Spark does."""


@pytest.mark.parametrize(
    "act", [pytest.param(act, id=name, marks=() if name == QUICK else pytest.mark.deep) for name, act in ACTS.items()]
)
def test_a_deleted_key_stays_deleted_after_another_engine_rolled_the_round_back(
    workshop, deleted, table_of, spark, act, request
):
    name = deleted(f"rolled-{request.node.callspec.id.split('_')[0]}-{len(act)}")
    table = table_of(name)
    before, at_ms = current(table), int(table.load().currentSnapshot().timestampMillis())
    assert workshop.json("compact", name, "--now", T0 + 1)["ok"]
    assert seen(workshop, name) == {"k1": None, "k2": "a"}
    after = spark.sql(f"SELECT string(timestamp_millis({at_ms + 1})) AS s").first().s
    full = table.name.replace("`", "").removeprefix("cleantail.")
    spark.sql(act.format(table=f"cleantail.{full}", before=before, after_ms=after))
    # status says so before anything is written, and the log begins at its start
    log = state_of(workshop, name, T0 + 2)
    assert (log["checkpoint"], log["first_dirty_offset"], log["horizons"]) == (None, 0, [])
    assert [NOTE in w for w in log["warnings"]] == [True]
    # past the first horizon the tombstone gets a new one: nothing goes that others beat
    late = T0 + 2 * DAY
    workshop.ok("compact", name, "--now", late)
    assert seen(workshop, name) == {"k1": None, "k2": "a"}
    assert [NOTE in w for w in state_of(workshop, name, late)["warnings"]] == [True]
    assert state_of(workshop, name, late + DAY)["warnings"] == []
    workshop.ok("compact", name, "--now", late + DAY + 1)
    assert seen(workshop, name) == {"k2": "a"}
    assert workshop.json("check", name)["ok"]


def test_a_replaced_table_forgets_the_checkpoints_and_log_starts_of_its_logs(workshop, deleted, table_of, spark):
    name = deleted("replaced")
    table = table_of(name)
    workshop.ok("compact", name, "--now", T0 + 1)
    spark.sql(
        f"CREATE OR REPLACE TABLE {table.name} USING iceberg PARTITIONED BY (`partition`) AS "
        f"SELECT * FROM {table.name} VERSION AS OF {first_snapshot(table)}"
    )
    assert (log := state_of(workshop, name, T0 + 2))["checkpoint"] is None
    assert NOTE in log["warnings"][0]
    workshop.ok("compact", name, "--now", T0 + 2 * DAY)
    assert seen(workshop, name) == {"k1": None, "k2": "a"}


def first_snapshot(table):
    return min((s for s in table.load().snapshots()), key=lambda s: s.sequenceNumber()).snapshotId()


def test_a_round_is_not_published_on_a_history_that_was_rewritten_after_it_was_staged(
    workshop, deleted, table_of, spark
):
    name = deleted("between")
    table = table_of(name)
    first = current(table)
    workshop.ok("ingest", name, "--file", workshop.file("more.jsonl", [record(3, "k2", "b")]), "--any-topic")
    checked = checked_round(workshop, table, T0 + 1)
    spark.sql(f"CALL cleantail.system.rollback_to_snapshot('{table.name}', {first})")
    with pytest.raises(ConflictError, match="rolled back|history of main"):
        publish_round(table, checked)
    assert current(table) == first


def test_files_whose_records_were_rolled_back_are_ingested_again(workshop, deleted, table_of, spark):
    name = deleted("files-again")
    table, more = table_of(name), workshop.file("second.jsonl", [record(3, "k3", "c")])
    first = current(table)
    workshop.ok("ingest", name, "--file", more, "--any-topic")
    spark.sql(f"CALL cleantail.system.rollback_to_snapshot('{table.name}', {first})")
    assert NOTE in state_of(workshop, name)["warnings"][0]
    workshop.ok("ingest", name, "--file", more, "--any-topic")
    assert seen(workshop, name)["k3"] == "c"
    workshop.ok("ingest", name, "--file", more, "--any-topic")
    assert [r["offset"] for r in workshop.read(name)] == [0, 1, 2, 3]


def test_a_rollback_of_later_appends_leaves_the_state_of_an_earlier_round(workshop, deleted, table_of, spark):
    name = deleted("later-appends")
    table = table_of(name)
    workshop.ok("compact", name, "--now", T0 + 1)
    published, before = current(table), state_of(workshop, name, T0 + 2)
    spark.sql(
        f"INSERT INTO {table.name} SELECT * REPLACE (9L AS `offset`) FROM {table.name} LIMIT 1".replace(
            "* REPLACE (9L AS `offset`)", "`partition`, 9L, `timestamp`, timestamp_type, key, value, headers, tombstone"
        )
    )
    spark.sql(f"CALL cleantail.system.rollback_to_snapshot('{table.name}', {published})")
    after = state_of(workshop, name, T0 + 2)
    assert (after["checkpoint"], after["horizons"], after["warnings"]) == (3, before["horizons"], [])


def test_own_rollbacks_and_expired_snapshots_are_no_rewritten_history(workshop, deleted, table_of, spark):
    name = deleted("own", **{"cleantail.snapshot.retention.ms": 1})
    table = table_of(name)
    workshop.ok("compact", name, "--now", T0 + 1)
    workshop.ok("rollback", name)
    assert state_of(workshop, name)["warnings"] == []
    workshop.ok("compact", name, "--now", T0 + 2)
    spark.sql(f"INSERT INTO {table.name} SELECT `partition`, 9L, `timestamp`, timestamp_type, key, value, headers, "
              f"tombstone FROM {table.name} LIMIT 1")  # fmt: skip
    spark.sql(
        f"CALL cleantail.system.expire_snapshots(table => '{table.name}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    log = state_of(workshop, name, T0 + 3)
    assert (log["checkpoint"], log["warnings"]) == (3, [])
    assert PROPERTY_HISTORY in texts(table.load().properties())


def forget_marks(spark, table):
    """Leaves the table as a version did that had no marks."""
    spark.sql(f"ALTER TABLE {table.name} UNSET TBLPROPERTIES ('{PROPERTY_HISTORY}')")


@pytest.mark.parametrize(
    ("ingests", "act"),
    [
        pytest.param(False, "rolled back", id="at once", marks=pytest.mark.deep),
        pytest.param(True, "rolled back", id="an ingestion of this version came after it"),
        pytest.param(False, "replaced", id="by CREATE OR REPLACE TABLE", marks=pytest.mark.deep),
    ],
)
def test_a_round_that_a_version_without_marks_published_is_missed_too(
    workshop, deleted, table_of, spark, ingests, act, request
):
    name = deleted(f"unmarked-{act.split()[0]}-{ingests}")
    table = table_of(name)
    before = current(table)
    workshop.ok("compact", name, "--now", T0 + 1)
    forget_marks(spark, table)
    assert state_of(workshop, name, T0 + 2)["warnings"] == []
    if ingests:
        more = workshop.file("later.jsonl", [record(3, "k2", "b")])
        workshop.ok("ingest", name, "--file", more, "--any-topic")
        assert state_of(workshop, name, T0 + 2)["warnings"] == []
    if act == "replaced":
        spark.sql(
            f"CREATE OR REPLACE TABLE {table.name} USING iceberg PARTITIONED BY (`partition`) AS "
            f"SELECT * FROM {table.name} VERSION AS OF {before}"
        )
    else:
        spark.sql(f"CALL cleantail.system.rollback_to_snapshot('{table.name}', {before})")
    log = state_of(workshop, name, T0 + 2)
    assert (log["checkpoint"], log["first_dirty_offset"], log["horizons"]) == (None, 0, [])
    assert NOTE in log["warnings"][0]
    late = T0 + 2 * DAY
    workshop.ok("compact", name, "--now", late)
    assert seen(workshop, name) == {"k1": None, "k2": "a"}
    assert NOTE in state_of(workshop, name, late)["warnings"][0]
    if not ingests and act != "replaced":
        workshop.ok("compact", name, "--now", late + DAY + 1)
        assert seen(workshop, name) == {"k2": "a"}


# test_own_rollbacks_and_expired_snapshots_are_no_rewritten_history holds the rule; here by other commands
@pytest.mark.deep
def test_cherry_picks_fast_forwards_and_rollbacks_to_the_round_are_not_rewritten_history(
    workshop, deleted, table_of, spark
):
    name = deleted("forward")
    table = table_of(name)
    first = current(table)
    workshop.ok("compact", name, "--now", T0 + 1)
    published = current(table)
    insert = "INSERT INTO {} SELECT `partition`, {}L, `timestamp`, timestamp_type, key, value, headers, tombstone FROM {} LIMIT 1"
    spark.sql(f"ALTER TABLE {table.name} CREATE BRANCH other")
    spark.sql(insert.format(f"{table.name}.branch_other", 9, table.name))
    spark.sql(f"CALL cleantail.system.fast_forward('{table.name}', 'main', 'other')")
    assert (state_of(workshop, name)["checkpoint"], state_of(workshop, name)["warnings"]) == (3, [])
    spark.sql(insert.format(table.name, 10, table.name))
    picked = current(table)
    spark.sql(f"CALL cleantail.system.set_current_snapshot('{table.name}', {first})")
    assert NOTE in state_of(workshop, name)["warnings"][0]
    spark.sql(f"CALL cleantail.system.set_current_snapshot('{table.name}', {published})")
    spark.sql(insert.format(table.name, 11, table.name))
    spark.sql(f"CALL cleantail.system.cherrypick_snapshot('{table.name}', {picked})")
    log = state_of(workshop, name)
    assert (log["checkpoint"], log["log_end_offset"], log["warnings"]) == (3, 12, [])

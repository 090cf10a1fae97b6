"""UPDATE by another engine, and columns that are renamed: each has one outcome, and no partition waits for ever."""

from __future__ import annotations

import pytest

from cleantail.errors import TableError
from spark_jobs.round.publish import publish_round
from tests.jobs.conftest import settings
from tests.jobs.round.intake.test_adopt import HOUR, NOW
from tests.jobs.round.test_held_rounds import checked_round
from tests.jobs.round.test_shared_files import COLUMNS, SELECT

ROWS = [(0, 0, NOW - HOUR, "k1", "old"), (0, 1, NOW - HOUR, "k1", "v1"), (0, 2, NOW - HOUR, "k2", "v2"),
        (0, 3, NOW - HOUR, "k3", "v3"), (0, 4, NOW - HOUR, "gone", None), (0, 1, NOW - HOUR, "k1", "v1")]  # fmt: skip
"""The last one is a copy, which a round hides."""


@pytest.fixture
def sink_table(workshop, lake):
    """Makes an adopted table in which another engine updates; gives its name in Spark."""

    def make(name, mode="merge-on-read", version=3):
        properties = ", ".join(f"'write.{act}.mode'='{mode}'" for act in ("update", "merge", "delete"))
        table = lake(name, COLUMNS, [ROWS], SELECT, "", f"'format-version'='{version}', {properties}")
        workshop.ok("adopt", table, "--topic", name)
        settings(workshop, name, **{"delete.retention.ms": 24 * HOUR})
        return f"cleantail.sinks.`{name}`"

    return make


def seen(workshop, name):
    return {r["key"]: (r["offset"], r["payload"]) for r in workshop.read(name)}


UPDATES = {
    "a value": ("SET value = 'new' WHERE key = 'k1'", {"k1": (1, "new")}),
    "a value by MERGE": ("MERGE", {"k1": (1, "new")}),
    "a key": ("SET key = 'k9' WHERE key = 'k2'", {"k2": None, "k9": (2, "v2")}),
    "a key to one that wins later": ("SET key = 'k3' WHERE key = 'k2'", {"k2": None, "k3": (3, "v3")}),
    "a tombstone to a value": ("SET value = 'back' WHERE key = 'gone'", {"gone": (4, "back")}),
    "a value to a tombstone": ("SET value = NULL WHERE key = 'k2'", {"k2": (2, None)}),
}
FIRST = {"k1": (1, "v1"), "k2": (2, "v2"), "k3": (3, "v3"), "gone": (4, None)}


@pytest.mark.parametrize(
    ("updates", "mode", "version"),
    [
        # those of one table change different records
        pytest.param(("a value", "a key"), "merge-on-read", 3, marks=pytest.mark.deep),
        (("a value by MERGE", "a key to one that wins later", "a tombstone to a value"), "merge-on-read", 3),
        pytest.param(("a value to a tombstone",), "merge-on-read", 3, marks=pytest.mark.deep),
        pytest.param(("a value",), "merge-on-read", 2, marks=pytest.mark.deep),
        pytest.param(("a value",), "copy-on-write", 3, marks=pytest.mark.deep),
        pytest.param(("a key",), "copy-on-write", 2, marks=pytest.mark.deep),
    ],
)
def test_an_updated_record_replaces_the_one_of_its_offset_after_a_round(
    workshop, sink_table, spark, updates, mode, version
):
    name = f"updated-{'-'.join(str(list(UPDATES).index(update)) for update in updates)}-{mode[0]}-{version}"
    table, changed = sink_table(name, mode, version), {}
    workshop.ok("compact", name, "--now", NOW, "--force")
    assert seen(workshop, name) == FIRST
    for update in updates:
        what, changes = UPDATES[update]
        changed |= changes
        if what == "MERGE":
            spark.sql(
                f"MERGE INTO {table} t USING (SELECT 'k1' AS key) s ON t.key = s.key "
                "WHEN MATCHED THEN UPDATE SET value = 'new'"
            )
        else:
            spark.sql(f"UPDATE {table} {what}")
    assert workshop.json("compact", name, "--now", NOW + 1, "--force")["ok"]
    expected = {k: v for k, v in (FIRST | changed).items() if v is not None}
    assert seen(workshop, name) == expected
    assert workshop.json("check", name)["ok"]


# test_a_late_record_is_compared_with_... in test_late_contradictions.py holds the rule; here after an update
@pytest.mark.deep
def test_another_record_at_an_offset_that_a_round_hid_still_contradicts_it_after_an_update(workshop, sink_table, spark):
    table = sink_table("updated-contradicted")
    workshop.ok("compact", "updated-contradicted", "--now", NOW, "--force")
    spark.sql(f"UPDATE {table} SET value = 'new' WHERE key = 'k2'")
    spark.sql(f"INSERT INTO {table} SELECT 0, 0L, `timestamp`, 'k7', 'other' FROM {table} WHERE `offset` = 3")
    code, out, _ = workshop.run("compact", "updated-contradicted", "--now", NOW + 1, "--force")
    assert (code, "contradict" in out) == (1, True)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        pytest.param("RENAME COLUMN key TO id", "column key \\(key\\) is now called id", id="renamed"),
        pytest.param("DROP COLUMN key", "column key \\(key\\) was dropped", id="dropped", marks=pytest.mark.deep),
        pytest.param(
            "DROP COLUMN value",
            "column value \\(value\\) was dropped",
            id="another one dropped",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_a_round_whose_columns_were_changed_after_its_check_is_refused(
    workshop, sink_table, spark, table_of, act, says
):
    name = f"changed-{act.replace(' ', '-').lower()}"
    full = sink_table(name)
    table = table_of(name)
    checked = checked_round(workshop, table, NOW)
    before = table.load().currentSnapshot().snapshotId()
    spark.sql(f"ALTER TABLE {full} {act}")
    with pytest.raises(TableError, match=says):
        publish_round(table, checked)
    assert table.load().currentSnapshot().snapshotId() == before


T0, DAY = 1_800_000_000_000, 86_400_000


@pytest.mark.parametrize("mode", [pytest.param("copy-on-write", marks=pytest.mark.deep), "merge-on-read"])
def test_the_value_alone_decides_in_an_own_table_whose_tombstone_column_an_update_left_as_it_was(
    workshop, spark, table_of, mode
):
    name = f"stale-{mode[:4]}"
    workshop.topic(name, {"delete.retention.ms": DAY})
    values = {0: ("k1", "v1"), 1: ("k2", "a"), 2: ("k1", None), 3: ("k3", None)}
    rows = [
        {"topic": name, "partition": 0, "offset": o, "ts": T0, "key": k, "payload": v} for o, (k, v) in values.items()
    ]
    workshop.ok("ingest", name, "--file", workshop.file("rows.jsonl", rows))
    workshop.ok("compact", name, "--now", T0 + 1)
    table = table_of(name)
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.update.mode'='{mode}')")
    # as many values become null as nulls become values: the counts of the file say nothing
    spark.sql(
        f"UPDATE {table.name} SET value = CASE `offset` WHEN 2 THEN X'6869' WHEN 1 THEN NULL ELSE value END "
        "WHERE `offset` > 0"
    )
    assert workshop.json("compact", name, "--now", T0 + 2, "--force")["ok"]
    assert seen(workshop, name) == {"k1": (2, "hi"), "k2": (1, None), "k3": (3, None)}
    assert workshop.json("compact", name, "--now", T0 + 3 * DAY)["ok"]
    assert seen(workshop, name) == {"k1": (2, "hi")}
    assert workshop.json("check", name)["ok"]

"""Tables as sinks write them, adopted and compacted in place: what survives is what the rules say."""

from __future__ import annotations

import json

import pytest

from cleantail_cli import adopt_commands
from tests.jobs.conftest import settings
from tests.model import compacted, without_tombstones

NOW = 1_800_000_000_000
HOUR = 3_600_000


def changes(partitions=3, count=40, keys=6):
    """(partition, offset, ms, key, value or None): some hours of changes, a tombstone that wins (offset 37) in every log."""
    for p in range(partitions):
        for o in range(count):
            key = f"k{(o * 7 + p) % keys}"
            yield p, o, NOW - 5 * HOUR + o * HOUR // 10, key, None if o % 11 == 4 else f"v{o}"


def expected(records):
    """By the model of the rules: the winner of every key of each log, tombstones and all."""
    rows = [{"partition": p, "offset": o, "key": k, "payload": v, "ts": ms} for p, o, ms, k, v in records]
    return [(r["partition"], r["offset"], r["key"], r["payload"]) for r in compacted(rows)]


def read(workshop, topic):
    return [(r["partition"], r["offset"], r["key"], r["payload"]) for r in workshop.read(topic)]


@pytest.mark.parametrize(
    "version, upgrade",
    [(1, ["--upgrade"]), *(pytest.param(2, upgrade, marks=pytest.mark.deep) for upgrade in (["--upgrade"], []))],
)  # test_rounds_and_a_rollback_by_position_deletes_of_one_file_each in test_format_2.py holds the rule for version 2
def test_redpandas_iceberg_topic_is_adopted_and_compacted_in_place(workshop, redpanda, spark, version, upgrade):
    """A table of version 1 is upgraded only when that is said."""
    records, topic = list(changes(partitions=2)), f"orders-v{version}{'-up' * len(upgrade)}"
    table = redpanda(topic, records, version)
    if version == 1:
        code, told, err = workshop.run("adopt", table)
        assert code == 2
        assert "partition 1: 40 records, offsets 0 to 39, 0 duplicates" in told
        assert (
            "its format version is 1, which has no deletes of rows: --upgrade makes it 3, which cannot be undone" in err
        )
        assert not list((workshop.config / "topics").iterdir())
    # found out, and nothing changed
    out = workshop.ok("adopt", table, *upgrade, "--dry-run")
    assert f"sinks.{topic}: Redpanda's Iceberg topics" in out
    assert "partition 1: 40 records, offsets 0 to 39, 0 duplicates" in out
    assert "partitioned by hour(redpanda.timestamp)" in out
    found = workshop.json("adopt", table, *upgrade, "--dry-run")
    assert found["mapped"]["key"] == "redpanda.key" and found["tombstones"] == 8
    assert found["files_without_bounds"] == found["files"] == 8
    assert not list((workshop.config / "topics").iterdir())

    before = files_of(spark, table)
    out = workshop.ok("adopt", table, *upgrade)
    assert (f"format version {version} -> 3" in out, f"{topic}.yaml in" in out) == (bool(upgrade), True)
    assert f"next: `cleantail plan {topic}`" in out
    assert "nothing, because the table was already adopted" in workshop.ok("adopt", table)
    settings(workshop, topic)
    assert read(workshop, topic) == [(p, o, k, v) for p, o, _, k, v in records]

    result = workshop.json("compact", topic, "--now", NOW)
    assert result["ok"] and result["compacted"]["published"] == [0, 1]
    assert read(workshop, topic) == expected(records)
    assert files_of(spark, table) == before  # the sink's own files, together with delete files
    assert {(f.content, f.file_format) for f in delete_files_of(spark, table)} == {
        (1, "PUFFIN" if upgrade else "PARQUET")
    }
    alive = [r for r in expected(records) if r[3] is not None]
    view = spark.table(f"cleantail.sinks.`{topic}_latest`").select("partition", "offset", "key").collect()
    assert sorted((r["partition"], r["offset"], bytes(r["key"]).decode()) for r in view) == [a[:3] for a in alive]


def files_of(spark, table):
    namespace, name = table.split(".")
    rows = spark.sql(f"SELECT file_path FROM cleantail.{namespace}.`{name}`.data_files").collect()
    return sorted(row.file_path for row in rows)


def delete_files_of(spark, table):
    namespace, name = table.split(".")
    return spark.sql(f"SELECT * FROM cleantail.{namespace}.`{name}`.delete_files").collect()


CONNECT = {
    "nested, one task for all partitions": (
        "id bigint, payload string, _kafka_metadata struct<topic: string, `partition`: int, `offset`: bigint, "
        "`timestamp`: bigint>",
        "named_struct('topic', 'pg.public.orders', 'partition', p, 'offset', o, 'timestamp', ms) AS _kafka_metadata",
        "",
    ),
    "prefixed, cut by a column of the record": (
        "id bigint, payload string, _kafka_metadata_topic string, _kafka_metadata_partition int, "
        "_kafka_metadata_offset bigint, _kafka_metadata_timestamp bigint",
        "'pg.public.orders' AS _kafka_metadata_topic, p AS _kafka_metadata_partition, o AS _kafka_metadata_offset, "
        "ms AS _kafka_metadata_timestamp",
        "PARTITIONED BY (truncate(1, payload))",
    ),
}  # fmt: skip


# test_logs_that_share_files_with_a_failed_log_wait_for_the_next_round adopts such a table
@pytest.mark.deep
@pytest.mark.parametrize("layout", CONNECT)
@pytest.mark.parametrize("version", [2, 3])
def test_kafka_connects_table_is_adopted_with_the_key_that_is_named(workshop, lake, spark, layout, version):
    columns, metadata, by = CONNECT[layout]
    name = f"connect_{list(CONNECT).index(layout)}_v{version}"
    records = [(p, o, ms, k[1:], v) for p, o, ms, k, v in changes(partitions=2)]
    twice = [r for r in records if r[0] == 1 and r[1] in (38, 39)]  # at least once
    select = ["CAST(k AS BIGINT) AS id", "v AS payload", *_split(metadata)]
    properties = f"'format-version'='{version}', 'write.spark.fanout.enabled'='true'"
    table = lake(name, columns, [records[::2], records[1::2], twice], select, by, properties)

    code, _, err = workshop.run("adopt", table)
    assert (code, "no column for the key was found: name it with --column key=COLUMN" in err) == (2, True)
    out = workshop.ok("adopt", table, "--column", "key=id", "--column", "value=payload", "--topic", name)
    assert "note: files that hold several partitions: " in out
    assert "note: records that share their offset with another: 2" in out
    assert "partition 1: 42 records, offsets 0 to 39, 2 duplicates" in out
    settings(workshop, name)
    result = workshop.json("compact", name, "--now", NOW)
    assert result["ok"], result
    assert read(workshop, name) == expected(records)
    assert result["compacted"]["measures"][1]["deleted"]["copies"] == 2
    plan = workshop.json("plan", name, "--now", NOW)
    assert [row["action"] for row in plan["partitions"]] == ["none", "none"]
    gone = workshop.json("compact", name, "--now", NOW + 2000)["expired"]
    assert gone["published"] == [0, 1]
    assert read(workshop, name) == [r for r in expected(records) if r[3] is not None]
    assert without_tombstones([{"payload": None}]) == []


def _split(metadata):
    return [metadata] if metadata.startswith("named_struct") else metadata.split(", ")


def test_logs_that_share_files_with_a_failed_log_wait_for_the_next_round(workshop, lake):
    columns, metadata, by = CONNECT["nested, one task for all partitions"]
    records = [(p, o, ms, k[1:], v) for p, o, ms, k, v in changes(partitions=2)]
    bad = [(p, o, ms, k, "BAD" if (p, o) == (1, 39) else v) for p, o, ms, k, v in records]
    select = ["CAST(k AS BIGINT) AS id", "v AS payload", metadata]
    table = lake("shared", columns, [bad], select, by, "'format-version'='3'")
    workshop.ok("adopt", table, "--column", "key=id", "--column", "value=payload")
    file = workshop.config / "topics" / "pg.public.orders.yaml"
    check = {
        "expectation": "expect_column_values_to_not_be_in_set",
        "kwargs": {"column": "value", "value_set": ["BAD"]},
    }
    file.write_text(file.read_text() + f"config: {{segment.ms: 1}}\nchecks: [{json.dumps(check)}]\n")
    _, planned, _ = workshop.run("plan", "pg.public.orders", "--now", NOW)
    assert "1 task for all, because they share files" in " ".join(planned.split())
    code, out, _ = workshop.run("compact", "pg.public.orders", "--now", NOW, "--json")
    result = json.loads(out)["compacted"]
    assert (code, result["published"], result["held_back"]) == (1, [], [0, 1])
    assert len(read(workshop, "pg.public.orders")) == 80
    states = workshop.json("status", "pg.public.orders", "--now", NOW)["topics"]["pg.public.orders"]
    assert [bool(log["state"]["quarantine"]) for log in states] == [False, True]
    assert workshop.json("compact", "pg.public.orders", "--now", NOW, "--partition", 0)["compacted"]["published"] == [0]
    left = [r for r in read(workshop, "pg.public.orders") if r[0] == 0]
    assert left == [r for r in expected(bad) if r[0] == 0]
    assert len(read(workshop, "pg.public.orders")) == 40 + len(left)


def test_a_file_created_by_another_process_during_an_adoption_is_not_changed(workshop, redpanda, monkeypatch):
    topic, adopt = "made-meanwhile", adopt_commands._adopt
    table, file = redpanda(topic, [(0, 0, NOW, "k", "v")], 3), workshop.config / "topics" / f"{topic}.yaml"

    def meanwhile(*arguments):
        adopt(*arguments)
        file.write_text("topic: mine\n")

    with monkeypatch.context() as patch:
        patch.setattr(adopt_commands, "_adopt", meanwhile)
        code, _, err = workshop.run("adopt", table)
    assert code == 2 and f"{file} was created by another process in the meantime, and was not changed" in err
    assert file.read_text() == "topic: mine\n"
    file.unlink()
    workshop.ok("adopt", table)
    assert [r["offset"] for r in workshop.read(topic)] == [0]

"""Records without a key under the policy `fail`: only their partition is blocked, and a warning precedes the round."""

import json

import pytest
from pyspark.sql import SparkSession

from cleantail.config.topic_table import SMALL_METADATA
from cleantail.lake.evaluate import evaluate_topic
from cleantail.log.partition_state import states_of_properties
from cleantail.rounds.pack_results import PackRequest
from spark_jobs.run.topic_run import TopicRun
from tests.jobs.engine.test_late_versions import in_rounds
from tests.jobs.round.test_rounds import NOW, branches, offsets, record

REASON = "1 record without a key, the first at offset 1; cleantail.keyless.policy is fail"
WARNING = "the next round will block this partition: 1 record without a key (cleantail.keyless.policy: fail)"


def _ingest(workshop, topic, *records):
    workshop.ok("ingest", topic, "--file", workshop.file(f"{records[0]['offset']}.jsonl", records))


def _three_logs():
    """A record without a key is in partition 1 alone; each has a superseded record."""
    return [record(i, None if (p, i) == (1, 1) else "k", "v", partition=p) for p in (0, 1, 2) for i in (0, 1, 2)]


def test_a_record_without_a_key_blocks_only_its_partition_until_a_policy_handles_it(workshop, table_of):
    topic = workshop.topic("one-keyless")
    _ingest(workshop, topic, *_three_logs())
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 1
    assert f"partition 1: invalid_left (no record without a key is left below the first dirty offset): {REASON}" in err
    left = [(r["partition"], r["offset"]) for r in workshop.read(topic)]
    assert left == [(0, 2), (1, 0), (1, 1), (1, 2), (2, 2)]
    states = states_of_properties(dict(table_of(topic).load().properties()), topic)
    assert [states[p].checkpoint for p in (0, 1, 2)] == [3, None, 3]
    held = states[1].quarantine
    assert (held.reason, held.branch) == (f"check failed: invalid_left ({REASON})", "")
    assert branches(table_of(topic)) == []
    [row] = [row for row in workshop.evidence(topic) if row["partition"] == 1]
    [check] = json.loads(row["checks"])
    assert (check["expectation"], check["passed"], check["observed"]) == ("invalid_left", False, REASON)
    assert (row["records_in"], row["records_out"]) == (3, 3)
    workshop.topic("one-keyless", {"cleantail.keyless.policy": "drop"})
    workshop.ok("compact", topic, "--now", NOW)
    assert [(r["partition"], r["offset"]) for r in workshop.read(topic)] == [(0, 2), (1, 2), (2, 2)]
    logs = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert [log["state"]["quarantine"] for log in logs] == [None] * 3


# test_a_record_without_a_key_blocks_only_its_partition_until_a_policy_handles_it holds the rule; here it is in a later
# round
@pytest.mark.deep
def test_a_record_without_a_key_blocks_its_partition_before_the_first_of_several_rounds(workshop):
    """Whatever file it is in, and wherever the map of that round is full."""
    topic = workshop.topic("keyless-beyond")
    in_rounds(workshop, 1)
    _ingest(workshop, topic, record(0, "a", "v"), record(1, "a", "w"), record(2, "b", "v"), record(3, "b", "w"))
    _ingest(workshop, topic, record(4, "c", "v"), record(5, None, "v"))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert (code, offsets(workshop.read(topic))) == (1, [0, 1, 2, 3, 4, 5])
    assert "1 record without a key, the first at offset 5" in err


def test_status_and_plan_announce_the_effect_of_a_record_without_a_key_before_a_round(workshop):
    topic = workshop.topic("keyless-ahead")
    _ingest(workshop, topic, *_three_logs())
    logs = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert [log["warnings"] for log in logs] == [[], [WARNING], []]
    code, out, err = workshop.run("plan", topic, "--now", NOW)
    assert (code, err) == (0, f"warning: partition 1: {WARNING}\n")
    for policy, what in (("drop", "drop them"), ("quarantine", "move them to the side table")):
        workshop.topic("keyless-ahead", {"cleantail.keyless.policy": policy})
        code, out, err = workshop.run("plan", topic, "--now", NOW)
        note = f"partition 1: the next round will {what}: 1 record without a key (cleantail.keyless.policy: {policy})"
        assert (code, err) == (0, "")
        assert note in " ".join(out.split())
    workshop.ok("compact", topic, "--now", NOW)
    [gone] = [log for log in workshop.json("status", topic, "--now", NOW)["topics"][topic] if log["partition"] == 1]
    assert gone["cleanable_keyless"] == gone["uncleanable_keyless"] == {"at_least": 0, "at_most": 0}


# test_a_record_without_a_key_blocks_only_its_partition_until_a_policy_handles_it holds the rule; here logs share files
@pytest.mark.deep
def test_a_log_is_published_though_one_that_shares_its_files_is_blocked_for_a_missing_key(workshop, lake):
    columns = "part int, off bigint, ts timestamp, k binary, v binary"
    rows = [(p, i, 1000, None if (p, i) == (1, 1) else "k", "v") for i in (0, 1, 2) for p in (0, 1)]
    select = ["p AS part", "o AS off", "timestamp_millis(ms) AS ts", "CAST(k AS BINARY) AS k", "CAST(v AS BINARY) AS v"]
    table = lake("shared-keyless", columns, [rows], select)
    found = ("--column", "partition=part", "--column", "offset=off", "--column", "timestamp=ts", "--column", "key=k")
    workshop.ok("adopt", table, *found, "--column", "value=v")
    file = workshop.config / "topics" / "shared-keyless.yaml"
    file.write_text(file.read_text() + "config: {segment.ms: 1}\n")
    logs = workshop.json("status", "shared-keyless", "--now", NOW)["topics"]["shared-keyless"]
    assert [log["warnings"] for log in logs] == [[], [WARNING]]
    assert workshop.run("compact", "shared-keyless", "--now", NOW)[0] == 1
    assert [(r["partition"], r["offset"]) for r in workshop.read("shared-keyless")] == [(0, 2), (1, 0), (1, 1), (1, 2)]


# test_retention_goes_on_in_a_red_log_... in test_round_kinds.py holds the rule; here no check was made
@pytest.mark.deep
def test_retention_continues_in_a_log_that_a_record_without_a_key_blocks(workshop, table_of):
    hour = 3_600_000
    config = {"cleanup.policy": "compact,delete", "retention.ms": 10 * hour, "segment.ms": hour, "segment.bytes": 14}
    topic = workshop.topic("keyless-retained", config)
    for n, age in enumerate((20 * hour, 3 * hour)):
        lines = [record(2 * n + i, None if (n, i) == (1, 0) else f"k{i}", "v", ts=NOW - age) for i in (0, 1)]
        _ingest(workshop, topic, *lines)
    assert workshop.run("compact", topic, "--now", NOW)[0] == 1
    assert offsets(workshop.read(topic)) == [2, 3]
    run = TopicRun(SparkSession.active(), workshop.find(topic), PackRequest((topic,), NOW + 1000), by_person=True)
    run.take(evaluate_topic(workshop.find(topic), now_ms=NOW + 1000))  # the scheduler: in the pause
    run.finish()
    assert run.outcome.ok
    assert offsets(workshop.read(topic)) == [2, 3]


def test_small_files_of_a_side_table_become_one_and_its_metadata_stay_small(workshop, table_of, spark, monkeypatch):
    at_once = {"cleantail.reclaim.deleted.ratio": 0}  # else the topic's own small files wait, and reclaim with them
    topic = workshop.topic("keyless-many", {"cleantail.keyless.policy": "quarantine", **at_once})
    monkeypatch.setattr("spark_jobs.round.reclaim.MIN_FILES", 2)
    side = f"cleantail.{workshop.find(topic).table}_keyless"
    for first, partitions in ((0, (0, 2)), (4, (0,))):
        keyless = [record(first + 1, None, f"v{first}", partition=p) for p in partitions]
        _ingest(workshop, topic, record(first, "k", "v"), *keyless)
        workshop.ok("compact", topic, "--now", NOW + first)
    assert spark.table(f"{side}.files").count() == 3
    workshop.ok("reclaim", topic)
    assert spark.table(f"{side}.files").count() == 2  # one file of each log
    rows = spark.table(side).select("partition", "offset", "value").collect()
    assert sorted((r["partition"], r["offset"], bytes(r["value"])) for r in rows) == [
        (0, 1, b"v0"),
        (0, 5, b"v4"),
        (2, 1, b"v0"),
    ]
    properties = {r["key"]: r["value"] for r in spark.sql(f"SHOW TBLPROPERTIES {side}").collect()}
    assert {name: properties.get(name) for name in SMALL_METADATA} == SMALL_METADATA

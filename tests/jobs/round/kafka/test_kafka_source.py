"""A topic that is read from a real broker: what lands is what a plain consumer sees, and each record once."""

from __future__ import annotations

import random
import time

import pytest

from differential.kafka_client import LET_GO


def test_what_lands_is_what_a_plain_consumer_sees(kafka, workshop, landed, position):
    topic = workshop.topic("of-kafka", source=kafka.source())
    kafka.create(topic, 2)
    records = [
        (b"a", b"x", [("h", b"1"), ("h", None), ("h", b""), ("\u00e9", b"\xff")], 1_600_000_000_000),
        (None, b"without a key", None, 1_600_000_000_001),
        (b"", b"", [], 1_600_000_000_002),
        (b"\xff\x00", None, None, 1),
        (None, None, None, 4_102_444_800_000),
    ]
    kafka.send(topic, records)
    kafka.send(topic, [(b"other", b"y", None, 5)], partition=1)
    done = workshop.json("ingest", topic)
    assert (done["records"], done["partitions"][0]) == (6, {"partition": 0, "from_offset": 0, "to_offset": 5})
    assert landed(topic) == kafka.consumed(topic, 2)
    assert position(topic).next_offsets == {0: 5, 1: 1}
    assert workshop.json("ingest", topic)["records"] == 0
    status = workshop.ok("status", topic)
    assert f"  read from {topic} in Kafka, last 20" in status and "  nothing is left to read in its source" in status
    assert workshop.json("status", topic)["sources"][topic]["next_offsets"] == {"0": 5, "1": 1}
    kafka.send(topic, [(b"a", b"later")], partition=1)
    assert "  1 offset behind its source, for up to " in workshop.ok("status")
    lag = workshop.json("status", topic)["source_lags"][topic]
    assert (lag["behind"], lag["partitions"], lag["problem"]) == (1, {"0": 0, "1": 1}, "")
    assert lag["unread_since_ms"] >= position(topic).as_of_ms[1] > 0
    assert workshop.json("ingest", topic)["partitions"] == [{"partition": 1, "from_offset": 1, "to_offset": 2}]
    assert landed(topic) == kafka.consumed(topic, 2)


def test_a_topic_with_log_append_time_keeps_the_brokers_timestamp(kafka, workshop, landed):
    topic = workshop.topic("append-time", source=kafka.source())
    kafka.create(topic, message_timestamp_type="LogAppendTime")
    kafka.send(topic, [(b"a", b"x", None, 5)])
    workshop.ok("ingest", topic)
    [record] = landed(topic)
    assert (record.timestamp_type, record.timestamp_ms > 1_600_000_000_000) == (1, True)


def test_aborted_records_never_land_and_an_open_transaction_bounds_the_log(kafka, workshop, landed, position):
    topic = workshop.topic("transactions", source=kafka.source())
    kafka.create(topic, 2, segment_bytes=1_048_576)
    rng = random.Random(17)
    sender = kafka.transactions(topic, "transactions")
    for number in range(10):
        records = [(b"k%d" % rng.randrange(50), rng.randbytes(rng.randrange(18_000))) for _ in range(40)]
        end = sender.abort if number % 10 < 3 else sender.commit
        end(records, partition=number % 2)
    sender.begin([(b"open", b"x")])
    kafka.send(topic, [(b"behind", b"the open one")])
    workshop.ok("ingest", topic)
    seen = kafka.consumed(topic, 2)
    assert landed(topic) == seen and len(seen) == 7 * 40
    stable = position(topic).next_offsets
    [log, _] = workshop.json("status", topic)["topics"][topic]
    assert log["log_end_offset"] == stable[0] > seen[-1].offset - 41 and b"behind" not in {r.key for r in seen}
    sender.producer.commit_transaction(30)
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic, 2) and len(seen) + 2 == len(landed(topic))


def test_read_uncommitted_takes_what_was_aborted(kafka, workshop, landed):
    topic = workshop.topic("uncommitted", source={**kafka.source(), "isolation": "read_uncommitted"})
    kafka.create(topic)
    sender = kafka.transactions(topic, "uncommitted")
    sender.abort([(b"a", b"x")])
    sender.begin([(b"b", b"y")])
    workshop.ok("ingest", topic)
    assert landed(topic) == kafka.consumed(topic, committed=False) and len(landed(topic)) == 2
    [log] = workshop.json("status", topic)["topics"][topic]
    assert (log["log_end_offset"], log["first_uncleanable_offset"]) == (3, 2)
    sender.producer.abort_transaction(30)
    workshop.ok("ingest", topic)
    [log] = workshop.json("status", topic)["topics"][topic]
    assert (log["log_end_offset"], log["first_uncleanable_offset"]) == (4, 4)


def test_no_round_goes_beyond_the_last_stable_offset(kafka, workshop, landed):
    """A key that an open transaction overwrites keeps its committed record, and so does one that it aborts."""
    topic = workshop.topic("open-transaction", source=kafka.source())
    kafka.create(topic)
    sender = kafka.transactions(topic, "open-transaction")
    sender.commit([(b"a", b"1"), (b"a", b"2"), (b"b", b"1")])
    sender.begin([(b"a", b"3"), (b"b", None)])
    kafka.send(topic, [(b"b", b"behind")])
    workshop.ok("ingest", topic)
    workshop.ok("compact", topic, "--force")
    assert [(r.key, r.value) for r in landed(topic)] == [(b"a", b"2"), (b"b", b"1")]
    sender.producer.abort_transaction(30)
    workshop.ok("ingest", topic)
    workshop.ok("compact", topic, "--force")
    assert [(r.key, r.value) for r in landed(topic)] == [(b"a", b"2"), (b"b", b"behind")]


def test_what_the_brokers_cleaner_removes_between_two_reads_stays_a_gap(kafka, workshop, landed):
    topic = workshop.topic("cleaned-between", source=kafka.source())
    kafka.create(topic, cleanup_policy="compact", segment_ms=1000, min_cleanable_dirty_ratio=1.0)
    day = 86_400_000
    kafka.send(topic, [(b"k%d" % (n % 3), b"first", None, 1_600_000_000_000) for n in range(9)])
    workshop.ok("ingest", topic)
    first = landed(topic)
    kafka.send(topic, [(b"k%d" % (n % 2), b"second", None, 1_600_000_000_000 + day) for n in range(10)])
    kafka.send(topic, [(b"last", b"x", None, 1_600_000_000_000 + 2 * day)])
    kafka.client.alter(topic, LET_GO)
    until = time.monotonic() + 60
    while kafka.broker.checkpoints(topic).get(0, 0) < 19:
        assert time.monotonic() < until
        time.sleep(0.1)
    workshop.ok("ingest", topic)
    seen = kafka.consumed(topic)
    assert [r.offset for r in seen] == [8, 17, 18, 19]
    assert landed(topic) == [*first, *(r for r in seen if r.offset >= 9)]


# test_a_transaction_that_begins_in_one_range_and_... has several commits; here of two logs
@pytest.mark.deep
def test_a_large_partition_is_read_in_several_commits_by_several_tasks(kafka, workshop, landed, monkeypatch):
    """With portions and ranges as small as they never are."""
    topic = workshop.topic("in-portions", source=kafka.source())
    kafka.create(topic, 2)
    kafka.send(topic, [(b"%d" % n, b"v") for n in range(700)])
    kafka.send(topic, [(b"%d" % n, b"v") for n in range(90)], partition=1)
    monkeypatch.setattr("spark_jobs.round.intake.kafka_reading.PORTION_OFFSETS", 300)
    monkeypatch.setattr("spark_jobs.round.intake.kafka_reading.next_budget", lambda *_: 300)
    monkeypatch.setattr("cleantail.kafka.read_plan.RANGE_OFFSETS_MIN", 50)
    done = workshop.json("ingest", topic)
    assert done["partitions"] == [
        {"partition": 0, "from_offset": 0, "to_offset": 700},
        {"partition": 1, "from_offset": 0, "to_offset": 90},
    ]
    assert (done["commits"], done["records"]) == (3, 790)
    assert landed(topic) == kafka.consumed(topic, 2)


def test_a_transaction_that_begins_in_one_range_and_ends_in_another_lands_whole_or_not_at_all(
    kafka, workshop, landed, monkeypatch
):
    """Of two producers at once, so that aborted and committed records lie among each other."""
    topic = workshop.topic("across-ranges", source=kafka.source())
    kafka.create(topic)
    one, other = (kafka.transactions(topic, f"across-{n}") for n in range(2))
    for number in range(4):
        one.begin([(b"one", b"%d" % n) for n in range(40)])
        other.begin([(b"other", b"%d" % n) for n in range(40)])
        more = [(b"one", b"more")] * 30
        kafka.send(topic, [(b"between", b"x")] * 5)
        one.more(more)
        (one if number % 2 else other).producer.abort_transaction(30)
        (other if number % 2 else one).producer.commit_transaction(30)
    monkeypatch.setattr("spark_jobs.round.intake.kafka_reading.PORTION_OFFSETS", 110)
    monkeypatch.setattr("spark_jobs.round.intake.kafka_reading.next_budget", lambda *_: 110)
    monkeypatch.setattr("cleantail.kafka.read_plan.RANGE_OFFSETS_MIN", 30)
    done = workshop.json("ingest", topic)
    assert landed(topic) == kafka.consumed(topic) and done["records"] == 2 * (70 + 40) + 4 * 5
    assert done["commits"] > 3


# test_files_may_precede_a_read_of_kafka_but_not_bring_later_offsets in test_kafka_trouble.py holds the rule; here a
# table comes before
@pytest.mark.deep
def test_kafka_goes_on_behind_what_a_sinks_table_has_brought(kafka, workshop, landed, position, sink):
    """A team that kept its history in a sink's table reads that once, and the brokers from then on."""
    name = "after-table"
    kafka.create(name, 2)
    kafka.send(name, [(b"%d" % n, b"v", None, 5) for n in range(4)])
    kafka.send(name, [(b"other", b"y", None, 5)], partition=1)
    lake = sink("before-kafka")
    lake.append(*((0, n, 5, str(n), "v") for n in range(3)), (1, 0, 5, "other", "y"))
    topic = workshop.topic(name, source={"table": lake.source})
    workshop.ok("ingest", topic)
    workshop.topic(name, source=kafka.source())
    done = workshop.json("ingest", topic)
    assert done["partitions"] == [{"partition": 0, "from_offset": 3, "to_offset": 4}]
    assert [(r.partition, r.offset, r.key) for r in landed(topic)] == [
        (r.partition, r.offset, r.key) for r in kafka.consumed(name, 2)
    ]
    assert position(topic).next_offsets == {0: 4, 1: 1}
    workshop.topic(name, source={"table": lake.source})
    code, _, err = workshop.run("ingest", topic)
    assert code == 2 and f"was read from {name} in Kafka" in err


def test_records_that_another_engine_rolled_back_are_read_from_kafka_again(
    kafka, workshop, landed, position, table_of, spark
):
    topic = workshop.topic("rolled-away", source=kafka.source())
    kafka.create(topic)
    kafka.send(topic, [(b"k1", b"v1"), (b"k2", b"a")])
    workshop.ok("ingest", topic)
    table = table_of(topic)
    first = table.load().currentSnapshot().snapshotId()
    kafka.send(topic, [(b"k1", None), (b"k3", b"c")])
    workshop.ok("ingest", topic)
    assert position(topic).next_offsets == {0: 4}
    spark.sql(f"CALL cleantail.system.rollback_to_snapshot('{table.name}', {first})")
    status = workshop.json("status", topic)
    assert status["sources"][topic]["next_offsets"] == {"0": 2}
    assert "history was rewritten" in status["topics"][topic][0]["warnings"][0]
    assert workshop.json("ingest", topic)["partitions"] == [{"partition": 0, "from_offset": 2, "to_offset": 4}]
    assert landed(topic) == kafka.consumed(topic)

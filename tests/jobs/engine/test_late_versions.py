"""KIP-280 made sound, the memory budget, readers' hold and the latest view, on real tables (semantics.md 2, 3.8, 3.9)."""

from __future__ import annotations

import base64
import json

import pytest

from cleantail.lake.records.latest_state import load_latest
from spark_jobs.round.latest_view import view_name

NOW = 1_800_000_000_000
HOUR = 3_600_000
BY_HEADER = {"compaction.strategy": "header", "compaction.strategy.header": "o'ver\"sion"}


def record(offset, key, payload, version=None, partition=0, ts=None, raw=None):
    header = raw if version is None else version.to_bytes(8, "big", signed=True)
    named = [] if header is None else [BY_HEADER["compaction.strategy.header"], base64.b64encode(header).decode()]
    return {
        "partition": partition,
        "offset": offset,
        "tstype": "create",
        "ts": 1_700_000_000_000 + offset if ts is None else ts,
        "headers": named,
        "headers_encoding": "base64",
        "key": key,
        "payload": payload,
    }


def offsets(records):
    return [r["offset"] for r in records]


def add(workshop, topic, *records):
    workshop.ok("ingest", topic, "--file", workshop.file(f"{topic}-{records[0]['offset']}.jsonl", records))


def in_rounds(workshop, keys):
    """The platform of this test keeps a budget of so many keys by rounds; an entry without a version has 24 bytes."""
    cleaner = {
        "log.cleaner.dedupe.buffer.size": 24 * keys,
        "log.cleaner.io.buffer.load.factor": 1.0,
        "cleantail.over.budget": "rounds",
    }
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"cleaner": cleaner}}))


def checkpoints(workshop, table_of, topic, monkeypatch):
    """The checkpoint after every publish."""
    from spark_jobs.round import run as rounds

    seen = []
    publish = rounds.publish_round

    def watched(*arguments):
        result = publish(*arguments)
        seen.append((dict(result.ends), offsets(workshop.read(topic))))
        return result

    monkeypatch.setattr(rounds, "publish_round", watched)
    return seen


@pytest.mark.deep
def test_case_4_a_map_of_one_key_goes_record_by_record(workshop, table_of, monkeypatch):
    """test_case_10 below holds the rule for a map of two keys, test_offset_map.py that one of one key makes progress."""
    in_rounds(workshop, 1)
    topic = workshop.topic("case-4")
    add(workshop, topic, *(record(i, k, "v") for i, k in enumerate("01010")))
    seen = checkpoints(workshop, table_of, topic, monkeypatch)
    workshop.ok("compact", topic, "--now", NOW)
    assert seen == [
        ({0: 1}, [0, 1, 2, 3, 4]),
        ({0: 2}, [0, 1, 2, 3, 4]),
        ({0: 3}, [1, 2, 3, 4]),
        ({0: 4}, [2, 3, 4]),
        ({0: 5}, [3, 4]),
    ]


@pytest.mark.deep
def test_a_run_of_several_rounds_leaves_newly_expired_segments_to_the_next_run(workshop):
    """What a round removes is the young record that kept older segments: retention of it is the next run's.

    test_the_first_of_several_rounds_decides_retention_for_all_of_them in test_due_work.py holds the rule."""
    topic = workshop.topic("retained-by-rounds", {"cleanup.policy": "compact,delete", "retention.ms": HOUR})
    in_rounds(workshop, 1)
    old = [record(n, key, "v", ts=NOW - 5 * HOUR) for n, key in ((1, "b"), (2, "c"), (3, "d"))]
    for lines in ([record(0, "c", "v", ts=NOW - HOUR // 2)], old[:1], old[1:]):
        add(workshop, topic, *lines)
    for now, left in ((NOW, [1, 2, 3]), (NOW + 1, [])):
        workshop.ok("compact", topic, "--now", now, "--force")
        assert offsets(workshop.read(topic)) == left


def test_case_10_a_round_ends_inside_a_segment_where_the_map_is_full(workshop, table_of, monkeypatch):
    in_rounds(workshop, 2)
    topic = workshop.topic("case-10", {"delete.retention.ms": HOUR})
    log = (record(i, str(i), None if i == 3 else "v") for i in range(2, 7))
    add(workshop, topic, *log, *(record(i, "2", "w", partition=1) for i in range(3)))
    seen = checkpoints(workshop, table_of, topic, monkeypatch)
    result = workshop.json("compact", topic, "--now", NOW)
    assert [ends for ends, _ in seen] == [{0: 4, 1: 3}, {0: 6}, {0: 7}]
    totals = {
        m["partition"]: (m["records_in"], m["records_out"], m["deleted"]) for m in result["compacted"]["measures"]
    }
    assert totals == {0: (5, 5, {"superseded": 0}), 1: (3, 1, {"superseded": 2})}
    [log, _] = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert [(h["end_offset"], h["tombstones"]) for h in log["horizons"] if h["tombstones"]] == [(4, 1)]


def test_case_19_and_case_20_the_highest_version_wins_over_clean_and_dirty_records(workshop):
    """A header of another length counts as missing and is reported: partition 1."""
    topic = workshop.topic("case-19-20", BY_HEADER)
    case_20 = (record(20 + i, "b", "z", v) for i, v in enumerate((112, 114, 115, 113, 120, 119)))
    odd = [record(0, "a", "x", -5, 1), record(1, "a", "y", partition=1, raw=b"123")]
    odd += [record(2, "b", "z", partition=1), record(3, "b", "w", partition=1, raw=b"")]
    add(workshop, topic, record(0, "h1", "v5", 5), record(10, "a", "x", 111), record(11, "a", "y", 110), *case_20, *odd)
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 0 and "malformed_versions" in err and "2 violations" in err
    assert offsets(workshop.read(topic)) == [0, 10, 24, 0, 3]
    add(workshop, topic, record(30, "h1", "v3", 3))
    workshop.ok("compact", topic, "--now", NOW, "--force")
    assert offsets(workshop.read(topic)) == [0, 10, 24, 0, 3]


def test_case_21_a_late_version_of_a_deleted_key_stays_dead_within_the_bound(workshop):
    topic = workshop.topic("case-21", {**BY_HEADER, "cleantail.tombstone.lateness.ms": HOUR})
    late = 20
    stamp = 1_600_000_000_000
    add(workshop, topic, record(9, "a", None, 9, ts=stamp + 9), record(10, "b", "alive", 1, ts=stamp))
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("compact", topic, "--now", NOW + 1000)
    assert offsets(workshop.read(topic)) == [10]
    add(workshop, topic, record(late, "a", "late", 7, ts=stamp + 7), record(late + 1, "c", "new", 1, ts=stamp))
    state = workshop.ok("latest", topic, "--now", NOW + 1000 + HOUR - 1)
    assert sorted(json.loads(line)["key"] for line in state.splitlines()) == ["b", "c"]
    result = workshop.json("compact", topic, "--now", NOW + 1000 + HOUR - 1, "--force")
    assert result["ok"]
    [measure] = result["compacted"]["measures"]
    assert (measure["map_keys"], measure["map_records"]) == (2, 2)  # the dead key is in the map too
    assert sorted(offsets(workshop.read(topic))) == sorted([10, late + 1])
    add(workshop, topic, record(late + 2, "a", "later", 7, ts=stamp + 7))
    workshop.ok("compact", topic, "--now", NOW + 1000 + HOUR, "--force")
    assert late + 2 in offsets(workshop.read(topic))  # the bound is over: what was declared is what is kept


def test_a_recreated_table_forgets_the_remembered_deletions_of_the_dropped_one(workshop, table_of, spark):
    topic = workshop.topic("made-again", {**BY_HEADER, "cleantail.tombstone.lateness.ms": HOUR})
    add(workshop, topic, record(9, "a", None, 9), record(10, "b", "alive", 1))
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("compact", topic, "--now", NOW + 1000)
    assert offsets(workshop.read(topic)) == [10]
    spark.sql(f"DROP TABLE {table_of(topic).name}")
    add(workshop, topic, record(0, "a", "of the new topic", 7), record(1, "b", "x", 1))
    workshop.ok("compact", topic, "--now", NOW + 2000, "--force")
    assert offsets(workshop.read(topic)) == [0, 1]
    assert len(workshop.ok("latest", topic, "--now", NOW + 2000).splitlines()) == 2


def test_a_timestamp_far_in_the_future_does_not_win(workshop):
    topic = workshop.topic(
        "future", {"compaction.strategy": "timestamp", "message.timestamp.after.max.ms": HOUR, "segment.bytes": 14}
    )
    add(workshop, topic, record(0, "a", "wrong clock", ts=NOW + HOUR + 1), record(1, "a", "right", ts=NOW - 1000))
    add(workshop, topic, record(2, "b", "at the bound", ts=NOW + HOUR), record(3, "b", "now", ts=NOW))
    add(workshop, topic, record(4, "z", "rolls the segment", ts=NOW))
    _, _, err = workshop.run("compact", topic, "--now", NOW, "--force")
    assert offsets(workshop.read(topic)) == [1, 2, 4]
    assert "future_timestamps" in err


def test_tombstones_wait_for_the_slowest_reader_up_to_the_cap(workshop):
    topic = workshop.topic("held", {"cleantail.readers.hold.cap.ms": HOUR})
    add(workshop, topic, *(record(i, f"k{i}", None) for i in range(4)), record(4, "z", "v"))
    workshop.ok("reader", "set", topic, "fast", "--partition", 0, "--offset", 5)
    code, _, err = workshop.run("reader", "set", topic, "typo", "--partition", 99, "--offset", 5)
    assert code == 2 and "topic held has no partition 99: it has 0" in err
    workshop.ok("reader", "set", topic, "slow", "--partition", 0, "--offset", 2)
    workshop.ok("compact", topic, "--now", NOW)
    workshop.ok("compact", topic, "--now", NOW + 1000)
    assert offsets(workshop.read(topic)) == [2, 3, 4]
    plan = workshop.json("plan", topic, "--now", NOW + 2000)
    assert plan["sweep"] is None
    assert "2 tombstones past their horizon wait for reader slow (at offset 2 of partition 0)" in plan["sweep_reason"]
    workshop.ok("reader", "set", topic, "slow", "--partition", 0, "--offset", 3)
    workshop.ok("compact", topic, "--now", NOW + 2000)
    assert offsets(workshop.read(topic)) == [3, 4]
    workshop.ok("compact", topic, "--now", NOW + 1000 + HOUR - 1)
    assert offsets(workshop.read(topic)) == [3, 4]
    result = workshop.json("compact", topic, "--now", NOW + 1000 + HOUR)
    assert offsets(workshop.read(topic)) == [4]
    assert [(r["name"], r["offset"]) for r in result["expired"]["left_behind"]] == [("slow", 3)]


def test_spark_sql_arrow_and_the_command_line_return_the_same_latest_state(workshop, spark, table_of):
    topic = workshop.topic("latest", BY_HEADER)
    add(
        workshop, topic, record(0, "a", "x", 5), record(1, "b", "y", 5), record(2, "c", None, 5), record(3, "a", "w", 4)
    )
    workshop.ok("compact", topic, "--now", NOW)
    head = [record(4, "a", "stale", 3), record(5, "b", None, 6), record(6, "c", "back", 7), record(7, "", "", None)]
    add(workshop, topic, *head, record(2, "a", "elsewhere", 1, partition=3))
    positions = workshop.config / "positions.json"
    lines = workshop.ok("latest", topic, "--positions", positions).splitlines()
    state = [(r["partition"], r["key"], r["payload"]) for r in map(json.loads, lines)]
    assert state == [(0, "a", "x"), (0, "c", "back"), (0, "", ""), (3, "a", "elsewhere")]
    view = spark.table(view_name(table_of(topic))).orderBy("partition", "offset")
    assert [(r.partition, bytes(r.key).decode(), bytes(r.value).decode()) for r in view.collect()] == state
    arrow = load_latest(workshop.find(topic), NOW).to_arrow()
    assert arrow["value"].to_pylist() == [payload.encode() for _, _, payload in state]
    assert json.loads(positions.read_text())["positions"] == {"0": 8, "3": 3}
    add(workshop, topic, record(8, "d", "new", 1))
    assert offsets(workshop.read(topic, "--partition", 0, "--from-offset", 8)) == [8]


def test_the_view_follows_a_change_of_the_strategy(workshop, spark, table_of):
    topic = workshop.topic("switched")
    add(workshop, topic, record(0, "a", "old", ts=2_000), record(1, "a", "new", ts=1_000))
    name = view_name(table_of(topic))
    assert [r.offset for r in spark.table(name).collect()] == [1]
    workshop.topic("switched", {"compaction.strategy": "timestamp"})
    add(workshop, topic, record(2, "b", "x"))
    assert sorted(r.offset for r in spark.table(name).collect()) == [0, 2]


@pytest.mark.deep
def test_deletions_that_were_remembered_in_milliseconds_still_count(workshop, spark, table_of):
    """A late record that is older stays away, in a task, in the kernel and in the view.

    test_a_ledger_in_force_counts in test_latest.py holds the rule for the kernel, and
    test_a_deletion_is_remembered_in_microseconds that tasks go by the ledger."""
    config = {"compaction.strategy": "timestamp", "cleantail.tombstone.lateness.ms": 4 * HOUR}
    topic = workshop.topic("late-millis", config)
    at = NOW - 3 * HOUR
    add(workshop, topic, *(record(n, key, None, ts=at + 5) for n, key in enumerate("abcd")))
    for now in (NOW, NOW + 2000):
        workshop.ok("compact", topic, "--now", now)
    assert workshop.read(topic) == []
    ledger = f"{table_of(topic).name[:-1]}_deleted_versions`"
    spark.sql(f"UPDATE {ledger} SET strategy = 'timestamp', version = version DIV 1000 WHERE key < X'64'")
    assert {r[0] for r in spark.sql(f"SELECT version FROM {ledger}").collect()} == {at + 5, 1000 * (at + 5)}
    times = {"a": at + 4, "b": at + 5, "c": at + 6, "d": at + 4}
    add(workshop, topic, *(record(n, key, "late", ts=ts) for n, (key, ts) in enumerate(times.items(), 4)))
    left = ["b", "c"]  # of equal times the higher offset wins
    shown = workshop.ok("latest", topic, "--now", NOW + 3000).splitlines()
    assert [json.loads(line)["key"] for line in shown] == left
    rows = spark.table(view_name(table_of(topic))).collect()
    assert sorted(bytes(row.key).decode() for row in rows) == left
    workshop.ok("compact", topic, "--now", NOW + 3000)
    assert [r["key"] for r in workshop.read(topic)] == left

"""The cases of semantics.md part 4 in which records must vanish or stay, on real tables.

Most share one topic, a partition for each case, taken through three runs once; the others are in the tests of the part
that decides them (every case is found by its name, case_N).
"""

from __future__ import annotations

import itertools
import json
import os
import random

import pytest

from tests.jobs.conftest import QuietWorkshop
from tests.jobs.round.test_rounds import HOUR, NOW, offsets, record

MANY = int(os.environ.get("CLEANTAIL_CASE_RECORDS", "2000"))
"""Cases 18 and 23 speak of a million; `make test-deep` takes them at their word."""
BIG_KEY = "k" * 10_000_000
RETENTION = 1000


def of_keys(partition, keys, start=0, payload="v", **more):
    return (record(start + i, k, payload, partition, **more) for i, k in enumerate(keys))


def ten_copies_of_each_key():
    """Case 18: a tenth of all records are deletes, in random order."""
    rng = random.Random(18)
    keys = [f"k{i % (MANY // 10)}" for i in range(MANY)]
    rng.shuffle(keys)
    return (record(i, k, None if rng.random() < 0.1 else f"v{i}", 18) for i, k in enumerate(keys))


def first():
    yield from of_keys(1, "0123456789")
    yield from of_keys(2, "12331414")
    yield from of_keys(3, "01")
    yield from (record(i, str(i), str(i), 5) for i in range(20))
    yield from of_keys(6, [None] * 5)
    yield record(0, "a", "x", 9)
    yield record(7_206_178, "b", "y", 9)
    yield record(0, "a", "x", 11, ts=NOW + 10 * 365 * 24 * HOUR)
    yield from ten_copies_of_each_key()
    yield record(0, "only", "x", 230)
    yield from of_keys(231, "abc", payload=None)
    yield from of_keys(232, itertools.repeat("one", MANY))
    yield record(0, BIG_KEY, "old", 233)
    yield record(1, BIG_KEY, "new", 233)
    yield from of_keys(234, ["", "a", ""])
    yield record(0, "a", "x", 235)
    yield record(1, "a", "", 235)


SECOND = [
    *of_keys(1, "13579", start=10),
    *of_keys(5, map(str, range(0, 20, 2)), start=20, payload=None),
    record(1, "a", None, 11, ts=1),
]
THIRD = [*of_keys(1, ["20", "21"], start=15)]
LATER = [*of_keys(2, "2", start=8), *of_keys(3, "010", start=2)]


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory):
    """[records by partition, measures by partition] after the first run, after a run over more, and past the horizons."""
    (tmp_path_factory.mktemp("cases") / "config").mkdir()
    workshop = QuietWorkshop(tmp_path_factory.getbasetemp() / "cases0" / "config")
    topic = workshop.topic(
        "cases", {"delete.retention.ms": RETENTION, "cleantail.keyless.policy": "drop", "segment.bytes": 14}
    )
    for n, lines in enumerate((first(), SECOND, THIRD)):
        workshop.ok("ingest", topic, "--file", workshop.file(f"{n}.jsonl", lines))
    done = [run(workshop, topic, NOW)]
    workshop.ok("ingest", topic, "--file", workshop.file("later.jsonl", LATER))
    done.append(run(workshop, topic, NOW + 500))
    done.append(run(workshop, topic, NOW + RETENTION + 1))
    return done


def run(workshop, topic, now):
    result = workshop.json("compact", topic, "--now", now, "--force")
    measures = {m["partition"]: m for m in (result.get("compacted") or {}).get("measures", [])}
    records = {}
    for r in workshop.read(topic):
        records.setdefault(r["partition"], []).append(r)
    return records, measures


def test_case_1_only_the_superseded_records_of_three_segments_vanish(runs):
    assert offsets(runs[0][0][1]) == [0, 2, 4, 6, 8, *range(10, 17)]


def test_case_2_keys_keep_their_last_offset_over_two_runs(runs):
    first, second = ([(r["key"], r["offset"]) for r in runs[n][0][2]] for n in (0, 1))
    assert first == [("2", 1), ("3", 3), ("1", 6), ("4", 7)]
    assert second == [("3", 3), ("1", 6), ("4", 7), ("2", 8)]


def test_case_3_a_round_counts_what_it_read_and_wrote(runs):
    measures = runs[1][1][3]
    assert (measures["records_in"], measures["records_out"]) == (5, 2)
    assert {k: n for k, n in measures["deleted"].items() if n} == {"superseded": 3}
    assert offsets(runs[1][0][3]) == [3, 4]


def test_case_5_no_deleted_key_has_a_value(runs):
    for found in (runs[0][0][5], runs[2][0][5]):
        assert {int(r["key"]) % 2 for r in found if r["payload"] is not None} == {1}
    assert offsets(runs[0][0][5]) == [*range(1, 20, 2), *range(20, 30)]
    assert offsets(runs[2][0][5]) == [*range(1, 20, 2)]


def test_case_6_a_log_without_keys_is_emptied_by_drop_and_counted(runs):
    assert 6 not in runs[0][0]
    assert runs[0][1][6]["deleted"]["invalid"] == 5


def test_case_9_a_gap_of_seven_million_offsets_is_fine(runs):
    assert offsets(runs[2][0][9]) == [0, 7_206_178]


def test_case_11_a_tombstones_own_timestamp_plays_no_part(runs):
    assert [(r["offset"], r["payload"]) for r in runs[0][0][11]] == [(1, None)]
    assert [(r["offset"], r["payload"]) for r in runs[1][0][11]] == [(1, None)]
    assert 11 not in runs[2][0]


def test_case_18_the_last_value_of_every_key_is_the_same_before_and_after(runs):
    before = {r["key"]: r["payload"] for r in ten_copies_of_each_key()}
    assert {r["key"]: r["payload"] for r in runs[0][0][18]} == before
    assert len(runs[0][0][18]) == len(before)
    assert {r["key"]: r["payload"] for r in runs[2][0][18]} == {k: v for k, v in before.items() if v is not None}


@pytest.mark.parametrize(
    ("partition", "first", "last"),
    [
        pytest.param(230, [0], [0], id="one record"),
        pytest.param(231, [0, 1, 2], [], id="all tombstones, then an empty log"),
        pytest.param(232, [MANY - 1], [MANY - 1], id="one key over and over"),
        pytest.param(233, [1], [1], id="a key of 10 MB"),
        pytest.param(234, [1, 2], [1, 2], id="the empty key is a key"),
        pytest.param(235, [1], [1], id="the empty value is a value"),
    ],
)
def test_case_23_the_ends_of_the_range(runs, partition, first, last):
    assert offsets(runs[0][0][partition]) == first
    assert offsets(runs[2][0].get(partition, [])) == last


@pytest.mark.deep
def test_case_15_the_longest_lag_cleans_block_by_block(workshop):
    """The case in test_log_state.py holds the rule."""
    lags = {"min.cleanable.dirty.ratio": 1.0, "min.compaction.lag.ms": HOUR, "max.compaction.lag.ms": 6 * HOUR}
    topic = workshop.topic("case-15", {**lags, "segment.ms": 7 * 24 * HOUR})
    workshop.ok("ingest", topic, "--file", workshop.file("0.jsonl", of_keys(0, "aabb", ts=NOW)))
    assert not plans(workshop, topic, NOW + 3 * HOUR)
    assert not plans(workshop, topic, NOW + 6 * HOUR)
    late = NOW + 6 * HOUR + 1
    workshop.ok("ingest", topic, "--file", workshop.file("1.jsonl", of_keys(0, "aabb", start=4, ts=late)))
    workshop.ok("compact", topic, "--now", late)
    assert offsets(workshop.read(topic)) == [1, 3, 4, 5, 6, 7]
    assert not plans(workshop, topic, late + 6 * HOUR)
    workshop.ok("compact", topic, "--now", late + 6 * HOUR + 1)
    assert offsets(workshop.read(topic)) == [5, 7]


def plans(workshop, topic, now):
    return [p["partition"] for p in workshop.json("plan", topic, "--now", now)["partitions"] if p["compact"]]


def test_case_17_a_policy_switched_during_a_round_leaves_no_half_round(workshop, monkeypatch):
    from spark_jobs.round import run as rounds

    topic = workshop.topic("case-17")
    lines = [r for p in (0, 1) for r in of_keys(p, "aabbc")]
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", lines))
    publish = rounds.publish_round

    def switch_and_publish(*arguments):
        workshop.topic(topic, {"cleanup.policy": "delete", "retention.ms": -1})
        return publish(*arguments)

    monkeypatch.setattr(rounds, "publish_round", switch_and_publish)
    workshop.run("compact", topic, "--now", NOW)
    found = [(r["partition"], r["offset"]) for r in workshop.read(topic)]
    ended, dropped = [(p, o) for p in (0, 1) for o in (1, 3, 4)], [(p, o) for p in (0, 1) for o in range(5)]
    assert found in (ended, dropped)
    logs = workshop.json("status", topic, "--now", NOW)["topics"][topic]
    assert {log["checkpoint"] for log in logs} == ({5} if found == ended else {None})
    assert json.loads(workshop.ok("plan", topic, "--now", NOW, "--force", "--json"))["units"] == []

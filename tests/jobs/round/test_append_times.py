"""Records without timestamps are compacted by the time of their append."""

import time

import pytest

from tests.jobs.conftest import settings
from tests.jobs.round.test_rounds import offsets, record

HOUR_MS = 3_600_000
HOUR = {"segment.ms": HOUR_MS}


def after(hours):
    """The clock of a run so many hours from now."""
    return int(time.time() * 1000) + int(hours * HOUR_MS)


def no_times(*keys, first=0):
    return [{**record(first + n, key, "v"), "ts": -1} for n, key in enumerate(keys)]


def ingest(workshop, topic, records):
    workshop.ok("ingest", topic, "--file", workshop.file(f"{records[0]['offset']}.jsonl", records))


@pytest.fixture(
    params=["own", *(pytest.param(name, marks=pytest.mark.deep) for name in ("adopted_null", "adopted_without_column"))]
)
def untimed(request, workshop, lake):
    """A topic of three records of one key, none with a timestamp: its own table, or one that a sink fills."""
    name = f"untimed-{request.param.replace('_', '-')}"
    if request.param == "own":
        topic = workshop.topic(name, HOUR)
        ingest(workshop, topic, no_times("k", "k", "k"))
        return topic
    timed = request.param == "adopted_null"
    columns = "`partition` int, `offset` bigint, key string, value string" + timed * ", timestamp timestamp"
    select = ["p AS `partition`", "o AS `offset`", "k AS key", "v AS value"]
    select += timed * ["CAST(NULL AS TIMESTAMP) AS timestamp"]
    rows = [(0, n, 0, "k", "v") for n in range(3)]
    table = lake(name, columns, [rows], select)
    workshop.ok("adopt", table)
    settings(workshop, name, **HOUR)
    return name


def test_records_without_timestamps_are_compacted_once_their_append_is_as_old_as_segment_ms(untimed, workshop):
    assert "segment.ms 1h" in " ".join(workshop.ok("plan", untimed, "--now", after(0.5)).split())
    workshop.ok("compact", untimed, "--now", after(0.5))
    assert offsets(workshop.read(untimed)) == [0, 1, 2]
    [log] = workshop.json("status", untimed, "--now", after(1.1))["topics"][untimed]
    assert log["active_base_offset"] is None and log["cleanable_bytes"] > 0
    workshop.ok("compact", untimed, "--now", after(1.1))
    assert offsets(workshop.read(untimed)) == [2]


def log_of(workshop, topic, hours):
    [log] = workshop.json("status", topic, "--now", after(hours))["topics"][topic]
    return log


# test_a_file_without_timestamps_has_the_time_of_its_append in tests/cleantail/log/test_segments.py holds the rule for
# lags and retention; here with real tables
@pytest.mark.deep
def test_the_lags_of_records_without_timestamps_count_from_their_append(workshop):
    lags = {"segment.ms": 1, "min.compaction.lag.ms": 2 * HOUR_MS, "min.cleanable.dirty.ratio": 1.0}
    topic = workshop.topic("untimed-lags", {**lags, "max.compaction.lag.ms": 3 * HOUR_MS})
    ingest(workshop, topic, no_times("k", "k"))
    assert log_of(workshop, topic, 1.9)["cleanable_bytes"] == 0
    assert log_of(workshop, topic, 2.1)["cleanable_bytes"] > 0
    workshop.ok("compact", topic, "--now", after(2.9))
    assert offsets(workshop.read(topic)) == [0, 1]
    out = workshop.ok("compact", topic, "--now", after(3.1))
    assert offsets(workshop.read(topic)) == [1], out


def test_only_segments_of_recent_appends_are_active(workshop, table_of):
    """Whether the snapshots of older appends are kept or not."""
    topic = workshop.topic("untimed-expired", HOUR)
    for n, key in enumerate("abab"):
        ingest(workshop, topic, no_times(key, first=n))
    table = table_of(topic).load()
    last = table.currentSnapshot()
    times = {int(s.sequenceNumber()): int(s.timestampMillis()) for s in table.snapshots()}
    assert log_of(workshop, topic, 0.5)["active_base_offset"] == 0
    oldest_kept = sorted(times.values())[-2]
    table.expireSnapshots().expireOlderThan(oldest_kept).retainLast(1).commit()
    log = log_of(workshop, topic, 0.5)
    assert (log["active_base_offset"], log["first_uncleanable_offset"]) == (2, 2)
    assert last.snapshotId() == table_of(topic).load().currentSnapshot().snapshotId()


# as for the lags above
@pytest.mark.deep
def test_retention_of_records_without_timestamps_counts_from_their_append(workshop):
    policy = {"cleanup.policy": "compact,delete", "retention.ms": 2 * HOUR_MS}
    topic = workshop.topic("untimed-retention", policy)
    ingest(workshop, topic, no_times("a", "b"))
    workshop.ok("compact", topic, "--now", after(1.9))
    assert offsets(workshop.read(topic)) == [0, 1]
    workshop.ok("compact", topic, "--now", after(2.1))
    assert workshop.read(topic) == []


def test_the_replay_of_another_policy_counts_from_the_append(workshop):
    topic = workshop.topic("untimed-replay", HOUR)
    ingest(workshop, topic, no_times("k", "k", "k"))
    shown = workshop.json("plan", topic, "--set", "segment.ms=600000", "--now", after(5))
    assert [shown[side]["outcome"]["rounds"] for side in ("before", "after")] == [1, 1]
